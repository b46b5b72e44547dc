"""The repository as the tests of its own rules see it: its files, its services, its parsed modules."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

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


@cache
def modules(*folders: str) -> tuple[Path, ...]:
    """Return the Python files under the folders ("apps", "libs", "services", "tests"), in order of name."""
    roots = tuple(f"{ROOT / folder}/" for folder in folders)
    return tuple(path for path in files() if path.suffix == ".py" and str(path).startswith(roots))


@cache
def text_of(path: Path) -> str:
    """Return a module's source."""
    return path.read_text()


def mentioning(word: str, paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the modules whose text has the word: only these need be parsed to look for its use."""
    return tuple(path for path in paths if word in text_of(path))


def shown(path: Path, line: int | None = None) -> str:
    """Return the path from the root, and the line if given, as an editor opens it."""
    name = path.relative_to(ROOT).as_posix()
    return name if line is None else f"{name}:{line}"


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a module. It is kept: ask `functions_of` about every module of the project."""
    return ast.parse(text_of(path), filename=str(path))


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield each statement of a module, nested ones too, and the handlers and cases that hold some; expressions are not visited."""
    waiting: list[ast.AST] = [tree]
    for node in waiting:
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, field, ())


class Function(NamedTuple):
    """What the rules ask of one function or method."""

    name: str
    line: int
    lines: int
    """How long it is without its docstring: explaining more must not cost code."""


@cache
def functions_of(path: Path) -> tuple[Function, ...]:
    """Return the functions and methods of a module, nested ones too; its syntax tree is not kept."""
    return tuple(
        Function(node.name, node.lineno, _lines(node))
        for node in statements(ast.parse(text_of(path), filename=str(path)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    lines = node.end_lineno - node.lineno + 1
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        assert first.end_lineno is not None
        lines -= first.end_lineno - first.lineno + 1
    return lines


def service_package(service: str) -> Path:
    """Return the folder of a service's package."""
    return ROOT / "services" / service / f"colo_{service}"


def dotted(path: Path) -> str:
    """Return the import name of a module under apps, libs or services; a package for its __init__.py."""
    parts = path.relative_to(ROOT).with_suffix("").parts[2:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
