"""A disk of its own for a store, which can be full: a tmpfs, whose size is set to what is used."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

__all__ = ["Disk"]

#: A tmpfs takes what is written and no more; the server reserves what its streams may take one day.
_SIZE: Final = "64g"
_SPARE_BYTES: Final = 64 * 1024


class Disk:
    """Mounted at `path` where this process may mount; `can_fill` says whether it is. Without it `path` is a plain directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.can_fill = _mount("-t", "tmpfs", "-o", f"size={_SIZE},mode=0700", "tmpfs", str(path))

    def fill(self) -> None:
        """Leave no room but a few pages."""
        found = os.statvfs(self.path)
        used_bytes = (found.f_blocks - found.f_bfree) * found.f_frsize
        if not _mount("-o", f"remount,size={used_bytes + _SPARE_BYTES}", str(self.path)):
            raise OSError(f"the disk {self.path} cannot be made smaller")

    def free(self) -> None:
        """Give the room back."""
        if self.can_fill and not _mount("-o", f"remount,size={_SIZE}", str(self.path)):
            raise OSError(f"the disk {self.path} cannot be made larger")

    def empty(self) -> None:
        """Delete everything on it."""
        for entry in self.path.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def close(self) -> None:
        """Unmount it."""
        if self.can_fill:
            subprocess.run(["umount", "--lazy", str(self.path)], check=False, capture_output=True)


def _mount(*arguments: str) -> bool:
    try:
        return subprocess.run(["mount", *arguments], check=False, capture_output=True).returncode == 0
    except OSError:
        return False
