"""Reads kernel files on a thread of their own, each read with a deadline: one that hangs is given up and delays nothing else."""

from __future__ import annotations

import contextlib
import errno
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from msgspec import Struct, structs

from colo_collector.files import FileReader, Gathered
from colo_common.model.invalid import InvalidInput

__all__ = ["BoundedReader"]

_ABANDONED_MAX: Final = 16
"""Threads that may hang at once; beyond that nothing is read until one of them returns."""
_Answer = TypeVar("_Answer")


class _Job(Struct, kw_only=True):
    """A call for the reading thread, and its outcome."""

    call: Callable[[FileReader], Any]
    done: threading.Event
    answer: Any = None
    error: BaseException | None = None


class _Worker:
    """A thread with a reader of its own. It ends when it is given up or told to."""

    def __init__(self, reader: FileReader) -> None:
        self.reader = reader
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.is_over = threading.Event()
        threading.Thread(target=self._run, name="kernel-files", daemon=True).start()

    def _run(self) -> None:
        while (job := self.jobs.get()) is not None:
            try:
                job.answer = job.call(self.reader)
            except BaseException as error:
                # It is raised again where the call was made.
                job.error = error
            job.done.set()
        self.reader.close()
        self.is_over.set()


class BoundedReader:
    """A FileReader whose reads have a deadline. Not for use by two threads at once.

    A file whose read does not return within `deadline_ms`, rounded up to whole slices, is refused with ETIMEDOUT until it does; the
    batch is read again without it, so its values are of one moment. A span in which the whole machine stood still is one slice. A
    batch that hangs more than `retries` times, or a directory that cannot be listed in time, counts as missing.
    """

    def __init__(
        self, make: Callable[[], FileReader], *, deadline_ms: int = 500, retries: int = 4, slice_ms: int = 50
    ) -> None:
        if deadline_ms < 1:
            raise InvalidInput("deadline_ms", "must be at least 1", deadline_ms)
        self._make = make
        slice_ms = min(slice_ms, deadline_ms)
        self._slice_s = slice_ms / 1_000
        self._slices = -(-deadline_ms // slice_ms)
        self._retries = retries
        self._worker: _Worker | None = None
        self._hung: dict[str, _Worker] = {}
        self.hangs = 0

    @property
    def held(self) -> int:
        """How many files are open now, without those of threads that hang."""
        return 0 if self._worker is None else self._worker.reader.held

    @property
    def hung(self) -> tuple[str, ...]:
        """The paths whose read has not returned yet, sorted."""
        self._returned()
        return tuple(sorted(self._hung))

    def read(self, path: str) -> str | None:
        """As FileReader.read."""
        return self.read_all((path,), keep=False).texts[path]

    def read_all(self, paths: Sequence[str], *, keep: bool = True) -> Gathered:
        """As FileReader.read_all; a path that hangs is in `refused` with ETIMEDOUT."""
        self._returned()
        for _ in range(self._retries + 1):
            wanted = [path for path in paths if path not in self._hung]
            found = self._batch(wanted, keep=keep)
            if found is not None and len(found.texts) == len(set(wanted)):
                return self._with_refused(found, paths)
        now_ns = time.monotonic_ns()
        empty = Gathered(texts={}, inodes={}, cut=(), refused={}, started_ns=now_ns, finished_ns=now_ns)
        return self._with_refused(empty, paths)

    def list_directories(self, path: str, limit: int = 10_000) -> tuple[str, ...]:
        """As FileReader.list_directories."""
        return self._ask(path, lambda reader: reader.list_directories(path, limit), ())

    def list_each(self, paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """As FileReader.list_each, with one question to the thread; a directory that hangs is empty until it returns."""
        self._returned()
        unknown: dict[str, tuple[str, ...]] = {}
        for _ in range(self._retries + 1):
            wanted = [path for path in paths if path not in self._hung]
            found = self._ask("", partial(FileReader.list_each, paths=wanted), unknown)
            if len(found) == len(set(wanted)):
                break
        return {path: found.get(path, ()) for path in paths}

    def list_trees(self, paths: Sequence[str], *, depth: int, most: int) -> dict[str, tuple[str, ...]]:
        """As FileReader.list_trees."""
        unknown: dict[str, tuple[str, ...]] = {}
        return self._ask("", lambda reader: reader.list_trees(paths, depth=depth, most=most), unknown)

    def list_names(self, path: str, limit: int = 10_000) -> tuple[str, ...]:
        """As FileReader.list_names."""
        return self._ask(path, lambda reader: reader.list_names(path, limit), ())

    def link(self, path: str) -> str:
        """As FileReader.link."""
        return self._ask(path, lambda reader: reader.link(path), "")

    def is_writable(self, path: str) -> bool:
        """As FileReader.is_writable."""
        return self._ask(path, lambda reader: reader.is_writable(path), False)

    def forget(self, paths: Iterable[str]) -> None:
        """As FileReader.forget."""
        listed = tuple(paths)
        self._ask("", lambda reader: reader.forget(listed), None)

    def close(self) -> None:
        """Close every file. A thread that hangs closes its own when it returns."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.jobs.put(None)
            worker.is_over.wait(self._slices * self._slice_s)

    def _batch(self, paths: Sequence[str], *, keep: bool) -> Gathered | None:
        unknown: Gathered | None = None
        return self._ask("", lambda reader: reader.read_all(paths, keep=keep), unknown)

    def _ask(self, name: str, call: Callable[[FileReader], _Answer], unknown: _Answer) -> _Answer:
        """The answer of the reading thread, or `unknown` when it hangs; then the next call has another thread.

        `name` is the path of a call that reads one thing only: while it hangs it is not asked again.
        """
        self._returned()
        if name in self._hung:
            return unknown
        if self._worker is None:
            if len({id(worker) for worker in self._hung.values()}) >= _ABANDONED_MAX:
                return unknown
            self._worker = _Worker(self._make())
        worker = self._worker
        job = _Job(call=call, done=threading.Event())
        worker.jobs.put(job)
        waited_for: tuple[str, int] | None = None
        waits = 0
        while not job.done.wait(self._slice_s):
            # Counted and not taken from a clock: while the machine stood still nothing could be read either.
            at = worker.reader.reading
            waits = waits + 1 if at == waited_for else 1
            waited_for = at
            if waits > self._slices:
                self._give_up(worker, name if at is None else at[0])
                return unknown
        if job.error is not None:
            raise job.error
        answer: _Answer = job.answer
        return answer

    def _give_up(self, worker: _Worker, path: str) -> None:
        self.hangs += 1
        self._worker = None
        # A call without a path is remembered, too, so that threads which hang are counted.
        self._hung[path or f"({self.hangs})"] = worker
        with contextlib.suppress(OSError):
            worker.reader.abandon()
        worker.jobs.put(None)

    def _returned(self) -> None:
        for path in [path for path, worker in self._hung.items() if worker.is_over.is_set()]:
            del self._hung[path]

    def _with_refused(self, found: Gathered, paths: Sequence[str]) -> Gathered:
        """The batch with every path asked for; those that were not read are refused."""
        missing = [path for path in paths if path not in found.texts]
        if not missing:
            return found
        return structs.replace(
            found,
            texts={**found.texts, **dict.fromkeys(missing)},
            refused={**found.refused, **dict.fromkeys(missing, errno.ETIMEDOUT)},
        )
