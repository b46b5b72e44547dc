"""Pure modules: the contract names every one of them, and none opens a file or keeps state of its own."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.repo.purity import BEGIN, END, IMPURE, contract_modules, pure_modules
from tests.repo.tree import ROOT, SERVICES, dotted, mentioning, modules, parsed, shown, text_of

REFUSED_CALLS = {"open", "print", "input", "exec", "eval", "breakpoint", "__import__"}
REACHES_OUTSIDE = re.compile(rf"\b(?:{'|'.join(sorted(REFUSED_CALLS))})\b")


def pure_paths() -> list[Path]:
    names = tuple(f"{name}." for name in pure_modules())
    return [path for path in modules("apps", "libs", "services") if f"{dotted(path)}.".startswith(names)]


def test_the_contract_names_every_pure_module() -> None:
    missing = sorted(set(pure_modules()) - set(contract_modules()))
    assert not missing, f"run `just purity`, or name the module in IMPURE with a reason: {missing}"


def test_the_contract_names_nothing_that_is_gone_or_impure() -> None:
    stale = sorted(set(contract_modules()) - set(pure_modules()))
    assert not stale, f"run `just purity`: {stale}"


def test_the_contract_can_be_rewritten() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert text.count(BEGIN) == 1
    assert text.count(END) == 1
    assert text.index(BEGIN) < text.index(END)


@pytest.mark.parametrize("service", SERVICES)
def test_the_core_of_a_service_is_never_excused(service: str) -> None:
    assert "core" not in IMPURE
    assert f"colo_{service}.core" in contract_modules()


def test_pure_modules_call_nothing_that_reaches_outside() -> None:
    found = [
        f"{shown(path, node.lineno)} {node.func.id}()"
        for path in pure_paths()
        if REACHES_OUTSIDE.search(text_of(path))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REFUSED_CALLS
    ]
    assert not found, found


def test_pure_modules_import_nothing_by_a_text_name() -> None:
    """An import that the import linter cannot see would be a hole in the wall."""
    found = [
        shown(path, node.lineno)
        for path in mentioning("importlib", pure_paths())
        for node in ast.walk(parsed(path))
        if (isinstance(node, ast.Import) and any(a.name.split(".")[0] == "importlib" for a in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "importlib")
    ]
    assert not found, found
