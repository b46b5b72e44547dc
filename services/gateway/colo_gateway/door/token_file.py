"""The tokens of a running gateway: its file is read again when it changes."""

from pathlib import Path
from typing import Final

import structlog

from colo_common.model.invalid import InvalidInput
from colo_gateway.door.token_rows import read_tokens
from colo_gateway.door.tokens import TokenBook

__all__ = ["TokenFile"]

_READ_AGAIN_S: Final = 1.0


class TokenFile:
    """The tokens of a file, looked at again at most once a second. While it cannot be read, the last tokens that could be hold.

    The constructor raises InvalidInput for a file that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = structlog.get_logger(source="tokens")
        self._looked_s = 0.0
        self._stamp = self._stamp_now()
        self._book = TokenBook(read_tokens(path))

    def book(self, now_s: float) -> TokenBook:
        """The tokens as of now; `now_s` is a clock that only goes forward."""
        if now_s < self._looked_s + _READ_AGAIN_S:
            return self._book
        self._looked_s = now_s
        stamp = self._stamp_now()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._book = TokenBook(read_tokens(self._path))
                self._log.info("tokens-read")
            except InvalidInput as error:
                self._log.error("tokens-unreadable", error=str(error))
        return self._book

    def _stamp_now(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_mtime_ns, found.st_size, found.st_ino)
