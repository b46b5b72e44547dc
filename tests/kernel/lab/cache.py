"""Where kernels, packages and images are kept: outside the tree, in the user's cache directory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from tests.kernel.lab.archive import Entry

__all__ = ["cache_dir", "entries_key", "made_once"]

_KEPT: Final = 2
"""Images of earlier inputs that stay, so that going to and fro between two branches builds nothing."""


def cache_dir(*parts: str) -> Path:
    """The directory of that name in the lab's cache, made if it is missing. XDG_CACHE_HOME is heeded."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = root.joinpath("colo-kernel-lab", *parts)
    found.mkdir(parents=True, exist_ok=True)
    return found


def entries_key(entries: Iterable[Entry]) -> str:
    """A name for the content: it changes when an entry, or size or time of a file behind one, does."""
    digest = hashlib.sha256()
    for entry in sorted(entries, key=lambda entry: entry.path):
        if entry.source is None:
            behind = hashlib.sha256(entry.content).hexdigest()
        else:
            status = entry.source.stat()
            behind = f"{entry.source} {status.st_size} {status.st_mtime_ns}"
        digest.update(f"{entry.path} {entry.mode:o} {behind}\n".encode())
    return digest.hexdigest()[:20]


def made_once(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The file `kind`-`key` of the cache; `make` writes it when it is not there. Older ones of the kind are removed."""
    path = cache_dir("images") / f"{kind}-{key}.cpio"
    if path.exists():
        path.touch()
        return path
    # A second lab may build the same file at the same time: the last one to finish wins, both are right.
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        make(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    old = sorted(path.parent.glob(f"{kind}-*.cpio"), key=lambda one: one.stat().st_mtime_ns, reverse=True)
    for one in old[_KEPT:]:
        one.unlink(missing_ok=True)
    return path
