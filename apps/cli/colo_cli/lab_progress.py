"""The line on a terminal that says what a starting lab waits for."""

import sys
from typing import TextIO

__all__ = ["LabProgress"]


class LabProgress:
    """One line on a terminal that says what the lab waits for; nothing anywhere else."""

    def __init__(self, stream: TextIO | None = None, *, is_quiet: bool = False) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._shows = not is_quiet and self._stream.isatty()

    def say(self, text: str) -> None:
        """Replace the line."""
        if self._shows:
            self._stream.write(f"\r\x1b[Kcolo lab: {text}")
            self._stream.flush()

    def clear(self) -> None:
        """Remove the line."""
        if self._shows:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
