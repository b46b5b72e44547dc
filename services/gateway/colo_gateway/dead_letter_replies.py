"""Response bodies of the routes of dead letters."""

from msgspec import Struct

__all__ = ["DeadLetterDetail", "DeadLetterDone", "DeadLetterEntry", "DeadLetterList"]


class DeadLetterEntry(Struct, frozen=True, kw_only=True):
    """One dead letter: `service` could not handle a message of `subject`, for the reason. `seq` is its number.

    `stream` and `stream_seq` are where the message itself is stored; "" for a part of a message.
    """

    seq: int
    at_ms: int
    service: str
    subject: str
    reason: str
    size_bytes: int
    stream: str = ""
    stream_seq: int = 0


class DeadLetterList(Struct, frozen=True, kw_only=True):
    """A page of dead letters, oldest first. `after` is where the next page begins; None at the end."""

    now_ms: int
    dead_letters: tuple[DeadLetterEntry, ...]
    after: int | None = None


class DeadLetterDetail(Struct, frozen=True, kw_only=True):
    """One dead letter with its message: `text` is that, or its hex digits when `is_text` is false.

    Of a very large message `text` is the beginning. `lost` says why the message cannot be published again; "" where it can.
    """

    entry: DeadLetterEntry
    headers: dict[str, str]
    text: str
    is_text: bool
    lost: str = ""


class DeadLetterDone(Struct, frozen=True, kw_only=True):
    """What was done with the dead letter: replayed (everybody who hears the subject gets its message again) or dropped."""

    seq: int
    subject: str
    done: str
