"""The keys of an identity provider from a file, which is read again when it changes."""

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from colo_gateway.door.file_changes import FileChanges

__all__ = ["KeyFile"]

_BYTES_MOST: Final = 1_000_000


class KeyFile:
    """Keys by their names, as `keys_of` reads them from the text of the file; it raises ValueError for what holds none.

    The file is looked at once a second at most. While it cannot be read, is no key set or is larger than a megabyte, the last keys
    hold, and the log says so once for each state of the file. The constructor raises OSError or ValueError.
    """

    def __init__(self, path: Path, keys_of: Callable[[bytes], Mapping[str, Any]]) -> None:
        self._path = path
        self._keys_of = keys_of
        self._log = structlog.get_logger(source="issuer-keys")
        self._changes = FileChanges(path)
        self._keys = self._read()

    def keys(self, now_s: float) -> Mapping[str, Any]:
        """The keys as of now; `now_s` is a clock that only goes forward."""
        if self._changes.has_changed(now_s):
            try:
                self._keys = self._read()
                self._log.info("issuer-keys-read", keys=len(self._keys))
            except (OSError, ValueError) as error:
                self._log.error("issuer-keys-unreadable", file=str(self._path), error=str(error))
        return self._keys

    def _read(self) -> Mapping[str, Any]:
        # Whoever opens a pipe waits for its writer, and everybody would wait with him.
        if not stat.S_ISREG(self._path.stat().st_mode):
            raise ValueError("it is no regular file")
        with self._path.open("rb") as file:
            text = file.read(_BYTES_MOST + 1)
        if len(text) > _BYTES_MOST:
            raise ValueError(f"it has more than {_BYTES_MOST} bytes")
        found = self._keys_of(text)
        if not found:
            raise ValueError("it has no key with a name (kid) for signatures")
        return found
