"""The pace of a lab's clock, shared by its processes through a small file that one of them writes."""

import mmap
import struct
from pathlib import Path
from typing import Final, NamedTuple

from colo_common.model.invalid import InvalidInput

__all__ = ["ClockPace", "Pace"]

# A number before and after the content: a reader that finds two different ones came in the middle of a write.
_LAYOUT: Final = struct.Struct("<qqqdq")
_READS_MOST: Final = 100


class Pace(NamedTuple):
    """The clock showed `now_ms` when the wall clock showed `wall_ms` (both Unix ms), and runs `speed` times as fast since."""

    wall_ms: int
    now_ms: int
    speed: float


class ClockPace:
    """The file of a pace. Raises InvalidInput when it cannot be used."""

    def __init__(self, path: Path | str) -> None:
        try:
            with Path(path).open("r+b") as file:
                self._memory = mmap.mmap(file.fileno(), _LAYOUT.size)
        except (OSError, ValueError) as error:
            raise InvalidInput(
                "clock_pace_file", f"must be the pace file of a running lab: {error}", str(path)
            ) from error
        self._last = Pace(0, 0, 1.0)
        self._last = self.read()

    @classmethod
    def create(cls, path: Path, pace: Pace) -> "ClockPace":
        """Write a new file with this pace."""
        path.write_bytes(_LAYOUT.pack(1, *pace, 1))
        return cls(path)

    def read(self) -> Pace:
        """The pace now; the one read before while a write does not end."""
        for _ in range(_READS_MOST):
            before, wall_ms, now_ms, speed, after = _LAYOUT.unpack_from(self._memory)
            if before == after:
                self._last = Pace(wall_ms, now_ms, speed)
                break
        return self._last

    def write(self, pace: Pace) -> None:
        """Set the pace for all readers. One process may write."""
        number = _LAYOUT.unpack_from(self._memory)[0] + 1
        struct.pack_into("<q", self._memory, _LAYOUT.size - 8, number)
        struct.pack_into("<qqd", self._memory, 8, *pace)
        struct.pack_into("<q", self._memory, 0, number)
