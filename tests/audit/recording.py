"""What an auditor wrote down: messages of the bus, rows of Redis and what clients were told, one JSON line each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

__all__ = ["Accepted", "Emptied", "Received", "LedgerRow", "Record", "StoredAtEnd", "append", "read"]


class Received(Struct, frozen=True, kw_only=True, tag="received", omit_defaults=True):
    """One message. `at_us` is when the server stored it (Unix us), or when it was heard; `seq` 0: heard live, in no stream.

    `id` is the message id under which its publisher repeats it.
    """

    at_us: int
    subject: str
    text: str
    stream: str = ""
    seq: int = 0
    id: str = ""

    @property
    def where(self) -> str:
        """Where a reader finds the message again."""
        return f"{self.stream} {self.seq} {self.subject}" if self.seq else f"live {self.subject}"


class LedgerRow(Struct, frozen=True, kw_only=True, tag="ledger"):
    """The fields of one node's row of the ledger, read in one step."""

    at_us: int
    node: str
    fields: dict[str, str]


class Emptied(Struct, frozen=True, kw_only=True, tag="emptied"):
    """A store was found to have lost what it had: `what` is a stream, or "redis"."""

    at_us: int
    what: str


class Accepted(Struct, frozen=True, kw_only=True, tag="accepted"):
    """A client was told that this job is accepted."""

    at_us: int
    job: str


class StoredAtEnd(Struct, frozen=True, kw_only=True, tag="stored"):
    """What Redis held when everything had been drained: job id -> state, and the ledger's index of what is held where."""

    at_us: int
    jobs: dict[str, str]
    held: dict[str, str]
    rows: dict[str, dict[str, str]]


Record = Received | LedgerRow | Emptied | Accepted | StoredAtEnd

_DECODER: Final = msgspec.json.Decoder(Record)


def append(path: Path, records: Iterable[Record]) -> None:
    """Add the records to the file."""
    with path.open("ab") as file:
        file.write(msgspec.json.Encoder().encode_lines(list(records)))


def read(path: Path) -> Iterator[Record]:
    """The records of the file in the order in which they were written. A line that a kill cut off at the end is left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield _DECODER.decode(line)
