"""What is asked for: the requests of a real cluster in an order that a seed decides, or a trace's own requests in its own order."""

from __future__ import annotations

import csv
import gzip
import io
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Final, NamedTuple

from colo_common.model.invalid import InvalidInput
from colo_scheduler.numa.zones import CPU_MAX_MCPU, MEMORY_MAX_BYTES
from tests.bench.openb import CLASSES, MIB

__all__ = ["Ask", "Mix", "real_mix", "read_mix"]

_COLUMNS: Final = ("cpu_milli", "memory_mib", "creation_time")
_PODS_MAX: Final = 1_000_000


class Ask(NamedTuple):
    """What one replica asks for."""

    cpu_mcpu: int
    memory_bytes: int


class Mix(NamedTuple):
    """Request classes with how often each was seen, the most frequent first; `order`: the requests one by one, when it is known."""

    name: str
    classes: tuple[tuple[Ask, int], ...]
    order: tuple[Ask, ...] = ()

    def without(self, left_out: Sequence[Ask]) -> Mix:
        """The mix without these classes."""
        return Mix(
            self.name,
            tuple((ask, count) for ask, count in self.classes if ask not in left_out),
            tuple(ask for ask in self.order if ask not in left_out),
        )

    def asks(self, seed: int) -> Iterator[Ask]:
        """Requests without end: drawn as often as they were seen; a known order is told as it is, again and again."""
        if self.order:
            yield from cycle(self.order)
        rng = random.Random(seed)
        classes, counts = [ask for ask, _ in self.classes], [count for _, count in self.classes]
        while True:
            yield from rng.choices(classes, counts, k=1_000)

    @property
    def mean_mcpu(self) -> int:
        """The CPU of a request, mean over all that were seen, rounded down."""
        total = sum(count for _, count in self.classes)
        return sum(ask.cpu_mcpu * count for ask, count in self.classes) // total


def real_mix() -> Mix:
    """The 103 request classes of the openb trace. A request for no memory counts as one MiB."""
    classes = tuple((Ask(mcpu, max(mib, 1) * MIB), pods) for pods, mcpu, mib in CLASSES)
    return Mix("the 103 request classes of the openb trace", classes)


def read_mix(path: Path) -> Mix:
    """The requests of an openb pods file (CSV with a header, plain or .gz) in the order of their creation.

    Raises InvalidInput naming the line and the column for what is no such file.
    """
    pods: list[tuple[int, Ask]] = []
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        reader = csv.DictReader(io.TextIOWrapper(stream, "utf-8"))
        missing = [column for column in _COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise InvalidInput(f"{path.name} line 1", f"must have the columns {' '.join(_COLUMNS)}", reader.fieldnames)
        for row in islice(reader, _PODS_MAX + 1):
            where = f"{path.name} line {reader.line_num}"
            mcpu = _whole(row, "cpu_milli", where, 1, CPU_MAX_MCPU)
            mib = _whole(row, "memory_mib", where, 0, MEMORY_MAX_BYTES // MIB)
            pods.append((_whole(row, "creation_time", where, 0, 1 << 62), Ask(mcpu, max(mib, 1) * MIB)))
    if not 0 < len(pods) <= _PODS_MAX:
        raise InvalidInput(path.name, f"must have from 1 to {_PODS_MAX} pods", len(pods))
    pods.sort(key=lambda pod: pod[0])
    order = tuple(ask for _, ask in pods)
    classes = sorted(Counter(order).items(), key=lambda pair: (-pair[1], pair[0]))
    return Mix(f"the {len(order)} pods of {path.name} in the order of their creation", tuple(classes), order)


def _whole(row: dict[str, str], column: str, where: str, least: int, most: int) -> int:
    text = row[column] or ""
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise InvalidInput(f"{where} {column}", f"must be a whole number from {least} to {most}", text)
    return int(text)
