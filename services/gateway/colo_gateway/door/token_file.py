"""The tokens of a running gateway: its file is read again when it changes."""

from pathlib import Path

import structlog

from colo_common.model.invalid import InvalidInput
from colo_gateway.door.file_changes import FileChanges
from colo_gateway.door.token_rows import read_tokens
from colo_gateway.door.tokens import TokenBook

__all__ = ["TokenFile"]


class TokenFile:
    """The tokens of a file, looked at again at most once a second. While it cannot be read, the last tokens that could be hold.

    The constructor raises InvalidInput for a file that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = structlog.get_logger(source="tokens")
        self._changes = FileChanges(path)
        self._book = TokenBook(read_tokens(path))

    def book(self, now_s: float) -> TokenBook:
        """The tokens as of now; `now_s` is a clock that only goes forward."""
        if self._changes.has_changed(now_s):
            try:
                self._book = TokenBook(read_tokens(self._path))
                self._log.info("tokens-read")
            except InvalidInput as error:
                self._log.error("tokens-unreadable", error=str(error))
        return self._book
