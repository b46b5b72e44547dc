"""CpuSet: an immutable set of logical CPU ids, with the kernel's list notation "0-3,8" in both directions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from colo_common.model.invalid import InvalidInput

MAX_CPUS: Final = 8192
"""The largest CONFIG_NR_CPUS of mainstream kernels; every id is below it."""

_MAX_CHARACTERS: Final = 65_536
_OVERFLOW: Final = 2**32
_MAX_DIGITS: Final = 10
_DIGITS: Final = re.compile(r"[0-9]+")
_SPACE: Final = " \t\n\v\f\r"

CpuListErrno = Literal["EINVAL", "ERANGE", "EOVERFLOW"]


class InvalidCpuList(InvalidInput):
    """A CPU list that the kernel would refuse with the error `errno_name`."""

    def __init__(self, field: str, rule: str, value: object, errno_name: CpuListErrno = "EINVAL") -> None:
        self.errno_name = errno_name
        super().__init__(field, rule, value)


@dataclass(frozen=True, slots=True, order=False)
class CpuSet:
    """A set of CPU ids below MAX_CPUS, kept as a bit mask: bit i is set when CPU i belongs to the set.

    Iteration is always ascending, equality and hash follow the content, and every operation returns a new set.
    """

    mask: int = 0

    def __post_init__(self) -> None:
        if self.mask < 0 or self.mask.bit_length() > MAX_CPUS:
            raise InvalidInput("cpus", f"must be CPU ids from 0 to {MAX_CPUS - 1}", self.mask.bit_length() - 1)

    @classmethod
    def from_iterable(cls, cpus: Iterable[object], field: str = "cpus") -> CpuSet:
        """Return the set of the given ids; order and repetition do not matter."""
        mask = 0
        for cpu in cpus:
            if isinstance(cpu, bool) or not isinstance(cpu, int) or not 0 <= cpu < MAX_CPUS:
                raise InvalidInput(field, f"must be CPU ids from 0 to {MAX_CPUS - 1}", cpu)
            mask |= 1 << cpu
        return cls(mask)

    @classmethod
    def parse(cls, text: object, field: str = "cpus", *, nr_cpus: int | None = None) -> CpuSet:
        """Read the kernel's list notation (lib/bitmap-str.c): "0-3,8", "all", "N" (last CPU), "a-b:used/group".

        Regions are separated by commas or white space, repeated ones included; an empty text is the empty set. With
        `nr_cpus` given, ids must be below it; without, "all" and "N" have no meaning and are refused. Raises
        InvalidCpuList, which carries the kernel's errno.
        """
        if not isinstance(text, str):
            raise InvalidCpuList(field, 'must be text such as "0-3,8"', text)
        if len(text) > _MAX_CHARACTERS:
            raise InvalidCpuList(field, f"must be at most {_MAX_CHARACTERS} characters", text)
        limit = MAX_CPUS if nr_cpus is None else nr_cpus
        if not 0 < limit <= MAX_CPUS:
            raise InvalidInput("nr_cpus", f"must be from 1 to {MAX_CPUS}", nr_cpus)
        return cls(_ListReader(text, field, limit, has_last=nr_cpus is not None).mask())

    def format(self) -> str:
        """Return the canonical list "0-3,8" ("%*pbl" in the kernel); the empty set is ""."""
        parts = []
        for first, last in self.ranges():
            parts.append(str(first) if first == last else f"{first}-{last}")
        return ",".join(parts)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the runs of neighbouring ids as (first, last), ascending."""
        rest, base = self.mask, 0
        while rest:
            skip = (rest & -rest).bit_length() - 1
            rest >>= skip
            run = (~rest & (rest + 1)).bit_length() - 1
            yield base + skip, base + skip + run - 1
            rest >>= run
            base += skip + run

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges():
            yield from range(first, last + 1)

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __bool__(self) -> bool:
        return self.mask != 0

    def __contains__(self, cpu: object) -> bool:
        return isinstance(cpu, int) and 0 <= cpu < MAX_CPUS and bool(self.mask >> cpu & 1)

    def __or__(self, other: CpuSet) -> CpuSet:
        return CpuSet(self.mask | other.mask)

    def __and__(self, other: CpuSet) -> CpuSet:
        return CpuSet(self.mask & other.mask)

    def __sub__(self, other: CpuSet) -> CpuSet:
        return CpuSet(self.mask & ~other.mask)

    def __xor__(self, other: CpuSet) -> CpuSet:
        return CpuSet(self.mask ^ other.mask)

    def __le__(self, other: CpuSet) -> bool:
        return self.mask & ~other.mask == 0

    def __lt__(self, other: CpuSet) -> bool:
        return self.mask != other.mask and self <= other

    def __ge__(self, other: CpuSet) -> bool:
        return other <= self

    def __gt__(self, other: CpuSet) -> bool:
        return other < self

    def is_disjoint(self, other: CpuSet) -> bool:
        """Return whether the two sets share no CPU."""
        return self.mask & other.mask == 0

    def first(self, count: int) -> CpuSet:
        """Return the `count` lowest ids, or the whole set if it is smaller."""
        taken, mask = 0, 0
        for low, high in self.ranges():
            if taken >= count:
                break
            run = min(high - low + 1, count - taken)
            mask |= ((1 << run) - 1) << low
            taken += run
        return CpuSet(mask)

    def __str__(self) -> str:
        return self.format()

    def __repr__(self) -> str:
        return f"CpuSet({self.format()!r})"


class _Region(NamedTuple):
    """One region of a list: from each group of `group` ids between start and end, the first `used` ones."""

    start: int
    end: int
    used: int
    group: int
    has_pattern: bool


class _ListReader:
    """Reads one list text from left to right, exactly as far as the kernel does."""

    def __init__(self, text: str, field: str, limit: int, *, has_last: bool) -> None:
        self._text = text.split("\0", 1)[0]
        self._shown = text
        self._field = field
        self._limit = limit
        self._has_last = has_last
        self._at = 0

    def mask(self) -> int:
        mask = 0
        while self._skip_separators():
            region = self._region()
            if region.start > region.end:
                raise self._refuse("a range must not end below its start")
            if region.group == 0 or region.used > region.group:
                raise self._refuse("in a-b:used/group, group must be at least 1 and used at most group")
            if region.end >= self._limit:
                raise self._refuse(f"every CPU id must be below {self._limit}", "ERANGE")
            mask |= _region_mask(region)
            if self._peek() == "\n" and not region.has_pattern:
                break  # the kernel stops at a line end after a plain region, but not after a pattern
        return mask

    def _region(self) -> _Region:
        if self._text[self._at : self._at + 3].lower() == "all":
            start, end = 0, self._last()
            self._at += 3
        else:
            start = end = self._number()
            if not self._at_region_end():
                self._expect("-")
                end = self._number()
        if self._at_region_end():
            whole = (end + 1) % _OVERFLOW  # wraps to 0 for the largest number, which the group rule then refuses
            return _Region(start, end, whole, whole, has_pattern=False)
        self._expect(":")
        used = self._number()
        self._expect("/")
        return _Region(start, end, used, self._number(), has_pattern=True)

    def _number(self) -> int:
        if self._peek() == "N":
            self._at += 1
            return self._last()
        match = _DIGITS.match(self._text, self._at)
        if match is None:
            raise self._refuse('must be a list such as "0-3,8"')
        self._at = match.end()
        digits = match[0].lstrip("0") or "0"
        if len(digits) > _MAX_DIGITS or int(digits) >= _OVERFLOW:
            raise self._refuse("a CPU id must fit in 32 bits", "EOVERFLOW")
        return int(digits)

    def _last(self) -> int:
        if not self._has_last:
            raise self._refuse('"all" and "N" need a known number of CPUs')
        return self._limit - 1

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _at_region_end(self) -> bool:
        here = self._peek()
        return here == "" or here == "," or here in _SPACE

    def _skip_separators(self) -> bool:
        while self._peek() and self._at_region_end():
            self._at += 1
        return self._peek() != ""

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise self._refuse('must be a list such as "0-3,8" or "0-7:1/2"')
        self._at += 1

    def _refuse(self, rule: str, errno_name: CpuListErrno = "EINVAL") -> InvalidCpuList:
        return InvalidCpuList(self._field, rule, self._shown, errno_name)


def _region_mask(region: _Region) -> int:
    if region.used == 0:
        return 0
    mask = 0
    for start in range(region.start, region.end + 1, region.group):
        run = min(region.end - start + 1, region.used)
        mask |= ((1 << run) - 1) << start
    return mask
