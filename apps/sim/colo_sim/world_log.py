"""The event log of a simulated world: every line is hashed, and passed to a callback if there is one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b

__all__ = ["WorldLog"]

_KEPT = 400


class WorldLog:
    """Hashes every line, keeps the last 400 for reports, and calls `on_line` with every line."""

    def __init__(self, start_ms: int, on_line: Callable[[str], None] | None = None) -> None:
        self.lines = 0
        self._start_ms = start_ms
        self._on_line = on_line
        self._hash = blake2b(digest_size=16)
        self._last: deque[str] = deque(maxlen=_KEPT)

    def add(self, now_ms: int, process: str, what: str, data: bytes = b"") -> None:
        """Add a line: the time, the `process` or "world", and `what` it did. `data` is hashed with it and not shown."""
        line = f"{now_ms - self._start_ms:>9} {process:<20} {what}"
        self.lines += 1
        self._hash.update(line.encode())
        self._hash.update(data)
        self._last.append(line)
        if self._on_line is not None:
            self._on_line(line)

    def digest(self) -> str:
        """The hash of all lines so far; equal for equal histories."""
        return self._hash.hexdigest()

    def last(self, count: int, word: str = "") -> list[str]:
        """The last kept lines that contain the word, at most `count`."""
        return [line for line in self._last if word in line][-count:]
