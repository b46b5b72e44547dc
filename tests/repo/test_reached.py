"""Every module of the product is reached from a command or a service; what only tests import belongs to tests.

A module is reached when a chain of imports leads to it from a module that is run by its name. Imports inside functions count, and
so do the commands that `colo` loads by name. The simulator's fault world has one entry, which `python -m tests.sim` runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.repo.tree import dotted, modules, parsed, shown, text_of

FOLDERS: Final = ("libs", "services", "apps")
COMMANDS: Final = "colo_cli.main"
"""Names its commands' modules in text, to load them when they are asked for."""
FAULT_WORLD: Final = "colo_sim.world"
RUN_BY_NAME: Final = 'if __name__ == "__main__":'


def product() -> dict[str, Path]:
    """Return every module of libraries, services and commands by its import name."""
    return {dotted(path): path for path in modules(*FOLDERS)}


def is_entry(name: str, path: Path) -> bool:
    """Return whether a module is run by its name."""
    return path.stem == "__main__" or name in (COMMANDS, FAULT_WORLD) or RUN_BY_NAME in text_of(path)


def imported(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield the modules of the product that a module imports; a package comes with its `__init__`."""
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Import(names=aliases):
                found = [alias.name for alias in aliases]
            case ast.ImportFrom(module=str(module), names=aliases, level=0):
                found = [module, *(f"{module}.{alias.name}" for alias in aliases)]
            case ast.Constant(value=str(text)) if name == COMMANDS:
                module = text.partition(":")[0]
                found = [module, f"{name.rpartition('.')[0]}.{module}"]
            case _:
                continue
        for one in found:
            parts = one.split(".")
            yield from (whole for end in range(len(parts)) if (whole := ".".join(parts[: end + 1])) in known)


@cache
def reached() -> frozenset[str]:
    """Return the modules that something which is run by name leads to."""
    known = product()
    waiting = [name for name, path in known.items() if is_entry(name, path)]
    found = set(waiting)
    while waiting:
        name = waiting.pop()
        new = set(imported(name, known[name], known)) - found
        found |= new
        waiting.extend(sorted(new))
    return frozenset(found)


def test_no_module_of_the_product_is_imported_by_tests_only() -> None:
    known = product()
    unreached = sorted(shown(known[name]) for name in known.keys() - reached())
    assert not unreached, f"no service and no command imports these; move them to tests, or delete them: {unreached}"


@pytest.mark.parametrize(
    "package", ["colo_cli.lab", "colo_scheduler.core", "colo_collector.machine", "colo_gateway.api"]
)
def test_what_runs_is_found(package: str) -> None:
    assert package in reached()


def test_the_product_imports_no_test() -> None:
    found = [
        shown(path, node.lineno)
        for path in modules(*FOLDERS)
        if "tests" in text_of(path)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tests"
    ]
    assert not found, found
