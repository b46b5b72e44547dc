"""Programs without their symbols: an interpreter built from source carries three times its size of them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from tests.kernel.lab.archive import Entry
from tests.kernel.lab.cache import cache_dir

__all__ = ["without_symbols"]

_WORTH_BYTES: Final = 100_000


def without_symbols(entry: Entry) -> Entry:
    """The entry with its file stripped; as it is where binutils is missing or refuses, or there is little to gain."""
    source = entry.source
    if source is None or source.stat().st_size < _WORTH_BYTES or shutil.which("strip") is None:
        return entry
    # By content, because every new environment has the same programs in other places.
    key = hashlib.sha256(source.read_bytes()).hexdigest()[:32]
    target = cache_dir("stripped") / key
    if not target.exists():
        scratch = target.with_suffix(f".{os.getpid()}")
        command = ["strip", "--strip-unneeded", "-o", str(scratch), str(source)]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode != 0:
            scratch.unlink(missing_ok=True)
            return entry
        scratch.replace(target)
    return replace(entry, source=Path(target))
