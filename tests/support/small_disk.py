"""A disk that is soon full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["small_disk_at"]


@contextmanager
def small_disk_at(path: Path) -> Iterator[Path]:
    """A disk of 256 KiB at a new directory, which every user may enter. Needs the right to mount."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=0711", "tmpfs", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)
