"""The tree itself: apps, libraries, services and tests, as they stand now, committed or not."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

from tests.kernel.lab.archive import Entry, file
from tests.kernel.lab.interpreter import PACKAGES, PYTHON

__all__ = ["HOME", "ROOT", "environment", "project_entries"]

ROOT: Final = Path(__file__).parents[3]
HOME: Final = "/colo"
_FOLDERS: Final = ("apps", "examples", "libs", "services", "tests")
_LEFT_OUT: Final = frozenset({"parity", "props", "repo", "scripts", "sim"})
"""Folders of tests that run in no machine."""
_FILES: Final = ("pyproject.toml", "README.md")
_SCRIPTS: Final = {"python": "", "pytest": "-m pytest", "colo": "-m colo_cli"}


def project_entries() -> tuple[Entry, ...]:
    """Every file of the folders that a node or its tests need, and a command for each way in."""
    entries = [file(f"{HOME}/{name}", ROOT / name) for name in _FILES]
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            inner = path.relative_to(ROOT)
            is_left_out = folder == "tests" and inner.parts[1] in _LEFT_OUT
            if path.is_file() and "__pycache__" not in path.parts and not is_left_out:
                entries.append(file(f"{HOME}/{inner.as_posix()}", path))
    for name, way_in in _SCRIPTS.items():
        text = f'#!/bin/sh\nexec {PYTHON}/bin/python3 {way_in} "$@"\n'
        entries.append(file(f"/opt/bin/{name}", text.encode(), program=True))
    return tuple(entries)


def environment() -> dict[str, str]:
    """What the command inside finds in its environment."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    roots = [f"{HOME}/{str(package).rpartition('/')[0]}" for package in table["packages"]]
    return {
        "PATH": f"/opt/bin:{PYTHON}/bin:/usr/bin:/bin:/sbin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "PYTHONPATH": ":".join((HOME, *roots, PACKAGES)),
        "PYTHONDONTWRITEBYTECODE": "1",
        # Emulated, everything takes long; and what is run here is what the default run leaves out, one test at a time.
        "PYTEST_ADDOPTS": "-n 0 -m 'vm or kernel' -p no:cacheprovider -o timeout=180",
        "COLO_KERNEL_LAB": "1",
    }
