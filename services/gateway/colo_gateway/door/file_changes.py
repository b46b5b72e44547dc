"""Whether a file has changed since it was last looked at."""

import math
from pathlib import Path
from typing import Final

__all__ = ["FileChanges"]

_LOOK_AGAIN_S: Final = 1.0


class FileChanges:
    """Looks at a file once a second at most: its time of change, its size, its inode. That it is not there is a state too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looked_s = -math.inf
        self._stamp = self._stamp_now()

    def has_changed(self, now_s: float) -> bool:
        """Whether it differs from the last look, or from the start; `now_s` is a clock that only goes forward.

        Ask before the file is read: what changes while it is read differs again at the next look.
        """
        if now_s < self._looked_s + _LOOK_AGAIN_S:
            return False
        self._looked_s = now_s
        before, self._stamp = self._stamp, self._stamp_now()
        return self._stamp != before

    def _stamp_now(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_mtime_ns, found.st_size, found.st_ino)
