"""The shared libraries that programs need, as the dynamic linker of this machine finds them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tests.kernel.lab.archive import Entry, file
from tests.kernel.lab.refused import LabRefused

__all__ = ["library_entries"]

_FOUND: Final = re.compile(r"^\s*(?:(\S+) => )?(/\S+) \(0x", re.MULTILINE)
_LACKING: Final = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)
_TARGET: Final = "/usr/lib/x86_64-linux-gnu"
_PLACES: Final = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/systemd")
"""Where packages keep libraries; systemd has some that are its own."""
_LINKER: Final = re.compile(r"/ld-linux[^/]*$")


def library_entries(programs: Iterable[Path], trees: Sequence[Path], inside: Sequence[Path] = ()) -> tuple[Entry, ...]:
    """Every library that one of the programs or extension modules needs, found in the unpacked trees or on this machine.

    Libraries under one of the `inside` directories are left out: they travel with their package. Raises LabRefused for one that
    is nowhere.
    """
    paths = [str(path) for path in programs]
    search = [str(tree / part) for tree in trees for part in _PLACES]
    environ = {**os.environ, "LD_LIBRARY_PATH": ":".join(search), "LC_ALL": "C"}
    shown = subprocess.run(["ldd", *paths], env=environ, capture_output=True, text=True, check=False).stdout
    lacking = sorted(set(_LACKING.findall(shown)))
    if lacking:
        raise LabRefused(f"the image needs libraries that this machine lacks: {', '.join(lacking)}")
    entries: dict[str, Entry] = {}
    for name, path in _FOUND.findall(shown):
        if any(Path(path).is_relative_to(directory) for directory in inside):
            continue
        real = Path(path).resolve()
        if _LINKER.search(path):
            entry = file(f"/lib64/{Path(path).name}", real, program=True)
        else:
            entry = file(f"{_TARGET}/{name or Path(path).name}", real, program=True)
        entries[entry.path] = entry
    return tuple(entries.values())
