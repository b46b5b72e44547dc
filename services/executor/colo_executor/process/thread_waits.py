"""What the threads of control groups ran and waited in a run queue, as /proc/TID/schedstat shows it."""

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from colo_executor.run_queue import some_wait_ns

__all__ = ["ThreadWaits", "has_thread_waits"]

_GROUPS_MOST: Final = 64
_DIRS_MOST: Final = 256
_THREADS_MOST: Final = 512
_OF_A_GROUP_MOST: Final = 128
_OPENED_MOST: Final = 128
_OPENED_OF_A_GROUP_MOST: Final = 64
"""So many files are opened at one listing: the first look at a thread costs the kernel ten times as much as the next ones."""
_OPENED_WITHIN: Final = 5
"""After so many listings a group is judged by the threads that could be opened."""
_READ_MOST: Final = 256
"""From so many threads on, a reading leaves the groups that remain to the next one."""
_ASKED_MOST: Final = 4
"""So many threads of a group are asked at each listing which CPUs they may use."""
_NS_OF_MS: Final = 1_000_000
_THREAD_FILES: Final = {1: "tasks", 2: "cgroup.threads"}


def has_thread_waits(proc_root: str) -> bool:
    """Whether the kernel shows them (CONFIG_SCHED_INFO): without it the file is absent, or all its numbers are 0."""
    with contextlib.suppress(OSError, ValueError), open(os.path.join(proc_root, "self/schedstat"), "rb") as file:
        return any(_times(file.read()))
    return False


class _Thread:
    __slots__ = ("fd", "listed_run_ns", "run_ns", "wait_ns")

    def __init__(self, fd: int, run_ns: int, wait_ns: int) -> None:
        self.fd = fd
        self.run_ns = run_ns
        self.wait_ns = wait_ns
        self.listed_run_ns = 0


class _Group:
    __slots__ = ("cpus", "listed_at_ms", "listings", "next_id", "ran_ns", "read_at_ms", "threads", "waited_ns")

    def __init__(self, now_ms: int) -> None:
        self.threads: dict[int, _Thread] = {}
        self.read_at_ms = now_ms
        self.listed_at_ms: int | None = None
        self.listings = 0
        self.cpus = 1
        self.waited_ns = 0
        self.ran_ns: int | None = None
        self.next_id = 0


class ThreadWaits:
    """Keeps the files of the threads of the watched groups open, and adds up for how long each group waited (`some_wait_ns`).

    `root` is the mount of the cpu controller, `version` that of its cgroups. At most 64 groups, of each at most 128 threads, 512 in
    all; a reading reads about 256 and the next one goes on from there. A thread counts from the listing that found it to its end:
    neither its beginning nor its end changes a sum. Of a group with more threads those that ran since the last listing are kept,
    and the others make room for threads that were not looked at yet. `cpus_of` returns the number of CPUs that a thread may use;
    it raises OSError for one that has ended.
    """

    def __init__(
        self,
        root: str,
        version: int,
        *,
        proc_root: str,
        cpus_of: Callable[[int], int] = lambda number: len(os.sched_getaffinity(number)),
    ) -> None:
        self._root = root
        self._file = _THREAD_FILES[version]
        self._proc_root = proc_root
        self._cpus_of = cpus_of
        self._groups: dict[str, _Group] = {}
        self._threads = 0
        self._next = 0
        self._first_listed = 0

    def watch(self, names: Sequence[str], now_ms: int) -> None:
        """Watch these groups, the first 64 of them, and no others; list the threads of each, and read them."""
        wanted = dict.fromkeys(names[:_GROUPS_MOST])
        for name in self._groups.keys() - wanted.keys():
            self._drop(name)
        for name in wanted:
            group = self._groups.setdefault(name, _Group(now_ms))
            self._read(group, now_ms)
        # Each group comes first in turn, so that none has to leave all files to those before it.
        order = list(wanted)
        first = self._first_listed % max(1, len(order))
        self._first_listed = first + 1
        left = _OPENED_MOST
        for name in (*order[first:], *order[:first]):
            left -= self._list(name, self._groups[name], now_ms, left)

    def read(self, now_ms: int) -> tuple[tuple[str, int], ...]:
        """For how long each watched group waited since it was first watched, in us, in order of names. Never raises OSError."""
        names = list(self._groups)
        left = _READ_MOST
        for step in range(len(names)):
            group = self._groups[names[(self._next + step) % len(names)]]
            left -= len(group.threads)
            if group.read_at_ms != now_ms:
                self._read(group, now_ms)
            if left <= 0:
                self._next = (self._next + step + 1) % len(names)
                break
        return tuple((name, self._groups[name].waited_ns // 1_000) for name in sorted(names))

    def ran_ns(self, name: str) -> int | None:
        """The CPU time, between the last two listings, of the threads that the last one found.

        None before the second listing and while files are still to be opened, and 0 of a group that is not watched.
        """
        group = self._groups.get(name)
        return 0 if group is None else group.ran_ns

    def close(self) -> None:
        """Close all files and watch nothing."""
        for name in list(self._groups):
            self._drop(name)

    def __del__(self) -> None:
        # As a file object does: nobody closes files that only a forgotten reader knew.
        for group in getattr(self, "_groups", {}).values():
            for thread in group.threads.values():
                os.close(thread.fd)

    def _read(self, group: _Group, now_ms: int) -> None:
        times = []
        for number, thread in list(group.threads.items()):
            try:
                run_ns, wait_ns = _times(os.pread(thread.fd, 80, 0))
            except (OSError, ValueError):
                # It has ended.
                self._forget(group, number)
                continue
            if run_ns != thread.run_ns or wait_ns != thread.wait_ns:
                times.append((max(0, run_ns - thread.run_ns), max(0, wait_ns - thread.wait_ns)))
                thread.run_ns, thread.wait_ns = run_ns, wait_ns
        group.waited_ns += some_wait_ns(times, (now_ms - group.read_at_ms) * _NS_OF_MS, group.cpus)
        group.read_at_ms = now_ms

    def _list(self, name: str, group: _Group, now_ms: int, left: int) -> int:
        """List the threads of the group, and open at most `left` files; returns how many it opened."""
        found = self._ids(name)
        is_crowded = len(found) > _OF_A_GROUP_MOST
        for number, thread in list(group.threads.items()):
            if number not in found or (is_crowded and thread.run_ns == thread.listed_run_ns):
                self._forget(group, number)
        wanted = min(_OF_A_GROUP_MOST - len(group.threads), _THREADS_MOST - self._threads)
        room = max(0, min(wanted, left, _OPENED_OF_A_GROUP_MOST))
        is_cut = min(wanted, len(found) - len(group.threads)) > room
        opened = self._to_open(group, found, room)
        for number in opened:
            self._open(group, number)
        span_ns = 0 if group.listed_at_ms is None else (now_ms - group.listed_at_ms) * _NS_OF_MS
        # What a thread ran before it was in this group is not told apart, and no thread runs for longer than the time that passed.
        ran_ns = sum(min(span_ns, thread.run_ns - thread.listed_run_ns) for thread in group.threads.values())
        group.listings += 1
        is_known = span_ns > 0 and (not is_cut or group.listings > _OPENED_WITHIN)
        group.ran_ns = ran_ns if is_known else None
        group.listed_at_ms = now_ms
        for thread in group.threads.values():
            thread.listed_run_ns = thread.run_ns
        group.cpus = self._cpus(group)
        return len(opened)

    def _cpus(self, group: _Group) -> int:
        """The most CPUs that one of a few of its threads may use."""
        found = [1]
        for number in islice(group.threads, _ASKED_MOST):
            with contextlib.suppress(OSError):
                found.append(self._cpus_of(number))
        return max(found)

    def _to_open(self, group: _Group, found: set[int], room: int) -> list[int]:
        """The threads to open, of a crowded group those behind the last one that was opened, and round again."""
        unknown = sorted(found - group.threads.keys())
        chosen = [*(number for number in unknown if number > group.next_id), *unknown][: min(room, len(unknown))]
        group.next_id = chosen[-1] if len(unknown) > len(chosen) > 0 else 0
        return chosen

    def _ids(self, name: str) -> set[int]:
        """The threads of the group and of those in it; what cannot be listed has none."""
        found: set[int] = set()
        waiting = [os.path.join(self._root, name)]
        for _ in range(_DIRS_MOST):
            if not waiting:
                break
            path = waiting.pop()
            with contextlib.suppress(OSError, ValueError):
                with open(os.path.join(path, self._file), "rb") as file:
                    # 0 is a thread that is not in this PID namespace.
                    found.update(number for number in map(int, file.read().split()) if number > 0)
                waiting += _directories(path)
        return found

    def _open(self, group: _Group, number: int) -> None:
        with contextlib.suppress(OSError):
            fd = os.open(os.path.join(self._proc_root, str(number), "schedstat"), os.O_RDONLY | os.O_CLOEXEC)
            try:
                run_ns, wait_ns = _times(os.pread(fd, 80, 0))
            except (OSError, ValueError):
                os.close(fd)
                return
            group.threads[number] = _Thread(fd, run_ns, wait_ns)
            self._threads += 1

    def _forget(self, group: _Group, number: int) -> None:
        self._threads -= 1
        with contextlib.suppress(OSError):
            os.close(group.threads.pop(number).fd)

    def _drop(self, name: str) -> None:
        group = self._groups.pop(name)
        for number in list(group.threads):
            self._forget(group, number)


def _times(text: bytes) -> tuple[int, int]:
    """Run time and wait time in ns. Raises ValueError for another text."""
    run, wait, _ = text.split(maxsplit=2)
    return int(run), int(wait)


def _directories(path: str) -> Iterable[str]:
    with os.scandir(path) as entries:
        return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
