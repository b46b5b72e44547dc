"""A second process that gives batch work the floor when the reflex has not run for a second: it died, or stands still.

It imports nothing of colo, so that it is small and begins at once. Its arguments are BEAT PARENT QUOTA FLOOR AFTER_MS FROZEN: BEAT
is the descriptor of 8 bytes of shared memory in which the reflex writes the monotonic time of each turn in ns, and 0 when the
executor leaves in order; PARENT is the executor's pid, QUOTA the batch group's quota file, FLOOR the quota in us, FROZEN the file
that freezes and thaws the batch group, "" without one. Frozen work runs again, at the floor: nobody judges whether that must be.
What the kernel refuses is tried again at each look.
"""

import contextlib
import mmap
import os
import sys
import time
from collections.abc import Sequence
from typing import Final

__all__ = ["BEAT_BYTES", "main", "step_down", "thaw"]

BEAT_BYTES: Final = 8
_LOOKS_PER_LIMIT: Final = 5
_ORPHAN_TRIES_MOST: Final = 50
"""So many looks without success end the watchdog of an executor that is gone: the next one has its own."""
_ENDIAN: Final = "little"


def main(argv: Sequence[str]) -> int:
    """Watch until the executor leaves in order, or is gone and batch work has the floor. Returns the exit code."""
    beat_fd, parent, quota_path, floor_us, after_ms = int(argv[0]), int(argv[1]), argv[2], int(argv[3]), int(argv[4])
    frozen_path = argv[5] if len(argv) > 5 else ""
    beat = mmap.mmap(beat_fd, BEAT_BYTES, mmap.MAP_SHARED, mmap.PROT_READ)
    is_down, tries = False, 0
    while True:
        at_ns = int.from_bytes(beat[:BEAT_BYTES], _ENDIAN)
        if not at_ns:
            return 0
        is_late = time.monotonic_ns() - at_ns > after_ms * 1_000_000
        if is_late and not is_down:
            # Both, whatever becomes of the first.
            is_down = all([step_down(quota_path, floor_us), thaw(frozen_path)])
            tries += 1
        elif not is_late:
            is_down, tries = False, 0
        if is_late and os.getppid() != parent and (is_down or tries >= _ORPHAN_TRIES_MOST):
            return 0
        time.sleep(after_ms / 1_000 / _LOOKS_PER_LIMIT)


def step_down(quota_path: str, floor_us: int) -> bool:
    """Lower the quotas of the batch group and of the groups in it to the floor, the inner ones first, as cgroup v1 demands.

    A quota that is lower stays. A group in the batch group that has no quota keeps none: that of the batch group is valid for it as
    well, and the executor writes only the quotas of replicas that have a limit. False when the batch group's could not be written.
    """
    directory, name = os.path.split(quota_path)
    inner: list[str] = []
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        inner = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    is_down = False
    for group in (*inner, directory):
        with contextlib.suppress(OSError, ValueError, IndexError):
            _lower(os.path.join(group, name), floor_us, is_inner=group != directory)
            is_down = group == directory
    return is_down


def thaw(frozen_path: str) -> bool:
    """Let the group run, with cgroup.freeze (v2) or freezer.state (v1). What is frozen in it by itself stays so.

    False when the kernel refused it.
    """
    if not frozen_path:
        return True
    text = b"0" if os.path.basename(frozen_path) == "cgroup.freeze" else b"THAWED"
    with contextlib.suppress(OSError):
        fd = os.open(frozen_path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.pwrite(fd, text, 0)
        finally:
            os.close(fd)
        return True
    return False


def _lower(path: str, floor_us: int, *, is_inner: bool) -> None:
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        words = os.read(fd, 64).decode("ascii").split()
        has_quota = words[0] not in ("max", "-1")
        if int(words[0]) <= floor_us if has_quota else is_inner:
            return
        # "quota period" under v2, the quota alone under v1.
        os.pwrite(fd, " ".join([str(floor_us), *words[1:]]).encode(), 0)
    finally:
        os.close(fd)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
