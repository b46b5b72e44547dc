"""The repository as the tests of its own rules see it: its files, its services, its parsed modules."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SERVICES: Final = ("collector", "overcommit", "jobs", "scheduler", "executor", "evictor", "gateway")
HIDDEN_OR_BUILT: Final = ("build", "dist", "venv", "__pycache__")


@cache
def files() -> tuple[Path, ...]:
    """Return every file that is, or would be, committed, in order of name; without git, every file not hidden."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0 and listing.stdout:
        found = (ROOT / name for name in listing.stdout.split("\0") if name)
    else:
        found = (path for path in ROOT.rglob("*") if not _is_left_out(path.relative_to(ROOT)))
    return tuple(sorted(path for path in set(found) if path.is_file()))


def _is_left_out(path: Path) -> bool:
    return any(part in HIDDEN_OR_BUILT or (part.startswith(".") and part != ".ci") for part in path.parts)


def modules(*folders: str) -> tuple[Path, ...]:
    """Return the Python files under the folders ("libs", "services", "tests"), in order of name."""
    roots = tuple(ROOT / folder for folder in folders)
    return tuple(path for path in files() if path.suffix == ".py" and any(path.is_relative_to(root) for root in roots))


def shown(path: Path, line: int | None = None) -> str:
    """Return the path from the root, and the line if given, as an editor opens it."""
    name = path.relative_to(ROOT).as_posix()
    return name if line is None else f"{name}:{line}"


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text(), filename=str(path))


def service_package(service: str) -> Path:
    """Return the folder of a service's package."""
    return ROOT / "services" / service / f"colo_{service}"


def dotted(path: Path) -> str:
    """Return the import name of a module under libs or services; a package for its __init__.py."""
    parts = path.relative_to(ROOT).with_suffix("").parts[2:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
