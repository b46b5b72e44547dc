"""When the lease of batch work was last renewed, for the next executor of this boot: a start alone renews nothing."""

import contextlib
import os
import re
import time
from pathlib import Path
from typing import Final

from colo_executor.lease import LONGEST_LEASE_MS, LastLease

__all__ = ["LeaseFile"]

_LINE: Final = re.compile(rb"([0-9a-f-]{1,64}) ([0-9]{1,18}) ([0-9]{1,9})\n")
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class LeaseFile:
    """One line: boot id, time since boot of the renewal in ms, length in ms (0: not known).

    It is written with each renewal and never flushed: it has to outlive this process, and means nothing after another boot. A disk
    that takes nothing keeps the older renewal, by which batch work steps down sooner.
    """

    def __init__(self, directory: Path, boot: str) -> None:
        self._path = directory / "lease"
        self._boot = boot.encode()
        self._lease_ms = 0

    def continued(self) -> LastLease:
        """The lease as an executor of this boot last heard of it. Where none did it begins now, also for the next one."""
        found = self._read()
        if found is None:
            self.renewed(0)
            return LastLease(age_ms=0, lease_ms=0)
        self._lease_ms = found.lease_ms
        return found

    def renewed(self, lease_ms: int) -> None:
        """Note a renewal of now; below 1 the length stays."""
        self._lease_ms = min(lease_ms, LONGEST_LEASE_MS) if lease_ms > 0 else self._lease_ms
        line = b"%s %d %d\n" % (self._boot, _boot_ms(), self._lease_ms)
        with contextlib.suppress(OSError):
            fd = os.open(self._path, _FLAGS, 0o600)
            try:
                # In one piece, and the rest of a longer line after it: a crash leaves the old line or the new one.
                os.pwrite(fd, line, 0)
                os.ftruncate(fd, len(line))
            finally:
                os.close(fd)

    def _read(self) -> LastLease | None:
        try:
            data = self._path.read_bytes()
        except OSError:
            return None
        line = _LINE.match(data)
        if line is None or line[1] != self._boot:
            return None
        age_ms = _boot_ms() - int(line[2])
        # One of the future was written by nobody who could know it.
        return LastLease(age_ms=age_ms, lease_ms=min(int(line[3]), LONGEST_LEASE_MS)) if age_ms >= 0 else None


def _boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
