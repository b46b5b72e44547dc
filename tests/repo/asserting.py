"""Which functions of the tests can fail for what they are about: they assert themselves, or call a check that does."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.repo.tree import ROOT

__all__ = ["Case", "cases_in", "cases_of"]

EXPECTS: Final = ("raises", "warns", "fail")
"""Calls of pytest that fail the test which makes them."""
CHECKS: Final = ("assert_", "check_", "expect_", "play", "verify_")
"""How a function of the tests begins that asserts for its caller. The name alone proves nothing: its own body must assert too."""
PLAYS: Final = "Play"
"""The type of the fixture that plays a conversation file and fails at the first answer that differs."""


class Case(NamedTuple):
    """A function whose name begins with `test_`, and whether anything in it can fail."""

    name: str
    line: int
    asserts: bool


def cases_of(path: Path) -> tuple[Case, ...]:
    """Return the test functions of a module of this repository."""
    return cases_in(ast.parse(path.read_text(), filename=str(path)))


def cases_in(tree: ast.Module) -> tuple[Case, ...]:
    """Return the test functions of a parsed module."""
    checks = _checks_of(tree)
    return tuple(
        Case(function.name, function.lineno, _asserts(function, checks))
        for function in _functions(tree)
        if function.name.startswith("test_")
    )


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _asserts(function: ast.AST, checks: frozenset[str]) -> bool:
    return any(_can_fail(node, checks) for node in ast.walk(function))


def _can_fail(node: ast.AST, checks: frozenset[str]) -> bool:
    """Whether a node asserts, expects an error, checks the invariants of an object, plays a conversation, or calls a check."""
    match node:
        case ast.Assert():
            return True
        case ast.arg(arg="play", annotation=ast.Name(id=name)):
            return name == PLAYS
        case ast.Call(func=ast.Attribute(value=ast.Name(id="pytest"), attr=name)):
            return name in EXPECTS
        case ast.Call(func=ast.Attribute(attr="check")):
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in checks
        case _:
            return False


def _checks_of(tree: ast.Module) -> frozenset[str]:
    """The names that a module may call for an assertion: its own functions and those it imports from the tests."""
    imported = frozenset(
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests.")
        for alias in node.names
        if alias.name in _checks_of_module(node.module or "")
    )
    own = {function.name: function for function in _functions(tree) if function.name.startswith(CHECKS)}
    return imported | _closed(own, imported)


def _closed(own: Mapping[str, ast.AST], known: frozenset[str]) -> frozenset[str]:
    """Those of the functions that assert, whichever of them calls which."""
    while True:
        more = known | {name for name, function in own.items() if _asserts(function, known)}
        if more == known:
            return known
        known = more


@cache
def _checks_of_module(name: str) -> frozenset[str]:
    path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    return _checks_of(ast.parse(path.read_text(), filename=str(path))) if path.is_file() else frozenset()
