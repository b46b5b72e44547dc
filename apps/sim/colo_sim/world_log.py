"""What happened in a simulated world, as lines: hashed always, told to whoever wants to read them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b

__all__ = ["WorldLog"]

_KEPT = 400


class WorldLog:
    """`digest` is that of every line so far. The last lines are kept for reports; `tell` gets every one."""

    def __init__(self, start_ms: int, tell: Callable[[str], None] | None = None) -> None:
        self.lines = 0
        self._start_ms = start_ms
        self._tell = tell
        self._hash = blake2b(digest_size=16)
        self._last: deque[str] = deque(maxlen=_KEPT)

    def add(self, now_ms: int, who: str, what: str, data: bytes = b"") -> None:
        """One line; `data` is hashed with it and not shown."""
        line = f"{now_ms - self._start_ms:>9} {who:<20} {what}"
        self.lines += 1
        self._hash.update(line.encode())
        self._hash.update(data)
        self._last.append(line)
        if self._tell is not None:
            self._tell(line)

    def digest(self) -> str:
        """Equal for equal histories."""
        return self._hash.hexdigest()

    def last(self, count: int, word: str = "") -> list[str]:
        """The last lines that contain the word."""
        return [line for line in self._last if word in line][-count:]
