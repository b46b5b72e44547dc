"""Tests about tests: no waiting by the clock, no second try, nothing that a fixed port or a skipped suite could hide."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.repo.asserting import cases_in, cases_of
from tests.repo.tree import ROOT, mentioning, modules, parsed, shown, statements, text_of

TESTS = ROOT / "tests"
#: The one place where a test may wait in real time, bounded and for a condition.
MAY_WAIT = {TESTS / "support" / "waiting.py"}
#: Programs that offer load at a rate, or let faults last, and are no tests.
PROGRAMS = tuple(TESTS / name for name in ("audit", "bench", "chaos", "soak"))
#: Who imports one of these runs on virtual time.
VIRTUAL_LOOPS = {"tests.support.vloop", "colo_sim.process_loop"}
RETRIES = re.compile(r"\b(?:flaky|reruns?|pytest_rerunfailures)\b")
#: The one place that says how many examples a property draws.
PROFILES = TESTS / "support" / "profiles.py"
EXAMPLES = re.compile(r"\bmax_examples\s*=")
MOCKS = re.compile(r"\b(?:MagicMock|AsyncMock|unittest\.mock)\b")


def in_virtual_time(path: Path) -> bool:
    """Return whether a module runs on a virtual loop, where asyncio.sleep costs nothing and is exact."""
    return any(isinstance(node, ast.ImportFrom) and node.module in VIRTUAL_LOOPS for node in statements(parsed(path)))


def test_no_test_sleeps() -> None:
    found = [
        shown(path, node.lineno)
        for path in mentioning("sleep", modules("tests"))
        if path not in MAY_WAIT and not any(path.is_relative_to(program) for program in PROGRAMS)
        for allow_asyncio in (in_virtual_time(path),)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and _is_a_sleep(node, allow_asyncio=allow_asyncio)
    ]
    assert not found, f"use the virtual loop, or tests.support.waiting.eventually: {found}"


def test_no_test_is_tried_twice_or_mocked() -> None:
    here = Path(__file__)
    found = [
        shown(path, number)
        for path in modules("tests")
        if path != here and (RETRIES.search(text_of(path)) or MOCKS.search(text_of(path)))
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if RETRIES.search(line) or MOCKS.search(line)
    ]
    assert not found, found


def test_no_property_overrides_the_profile() -> None:
    """A number of its own would be the same in the nightly run: a share of the profile scales with it."""
    found = [
        shown(path, number)
        for path in mentioning("max_examples", modules("tests"))
        if path != PROFILES
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if EXAMPLES.search(line)
    ]
    assert not found, f"use tests.support.profiles.examples: {found}"


def test_every_folder_of_tests_is_a_package() -> None:
    missing = sorted({shown(path.parent) for path in modules("tests") if not (path.parent / "__init__.py").is_file()})
    assert not missing, missing


def test_nothing_imports_a_conftest() -> None:
    found = [
        shown(path, node.lineno)
        for path in mentioning("conftest", modules("tests"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("conftest")
    ]
    assert not found, found


def test_every_test_function_asserts_something() -> None:
    found = [
        f"{shown(path, case.line)} {case.name}"
        for path in modules("tests")
        if path.name.startswith("test_")
        for case in cases_of(path)
        if not case.asserts
    ]
    assert not found, found


@pytest.mark.parametrize(
    ("body", "asserts"),
    [
        ("assert place() == 1", True),
        ("with pytest.raises(ValueError): place()", True),
        ("core.check()", True),
        ("check_own(1)", True),
        ("check_through_another(1)", True),
        ("check_nothing(1)", False),
        ("check_policy(Policy())", False),
        ("run_filters(view)", False),
        ("run_virtual(story())", False),
        ("expectations()", False),
        ("play(path)", False),
    ],
)
def test_a_name_alone_is_no_assertion(body: str, asserts: bool) -> None:
    text = (
        "from colo_scheduler.policy import Policy, check_policy\n"
        "def check_own(value): assert value\n"
        "def check_through_another(value): check_own(value)\n"
        "def check_nothing(value): place(value)\n"
        f"def test_it():\n    {body}\n"
    )
    (case,) = cases_in(ast.parse(text))
    assert case.asserts is asserts


def _is_a_sleep(call: ast.Call, *, allow_asyncio: bool) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id="asyncio"), attr="sleep"):
            is_zero = bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
            return not (allow_asyncio or is_zero)
        case ast.Attribute(attr="sleep") | ast.Name(id="sleep"):
            return True
        case _:
            return False
