"""Every service has the same anatomy, and every module is small and named by the word for its concept."""

from __future__ import annotations

import ast
import re

import pytest

from tests.repo.tree import (
    ROOT,
    SERVICES,
    functions_of,
    mentioning,
    modules,
    parsed,
    service_package,
    shown,
    text_of,
)

FIXED_MODULES = ("main", "settings", "core", "shell")
README_HEADINGS = ["Hears", "Says", "Keeps", "Timers", "Settings"]
#: A cohesive core may have so many; everything else aims at 300.
MODULE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70
#: Words that say nothing about what is inside.
EMPTY_NAMES = {
    "base", "common", "helper", "helpers", "manager", "managers", "misc", "types", "util", "utils",
}  # fmt: skip
PACKAGES = {
    "apps": ("cli", "sim"),
    "libs": ("common",),
    "services": SERVICES,
}


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("module", FIXED_MODULES)
def test_a_service_has_its_fixed_modules(service: str, module: str) -> None:
    assert (service_package(service) / f"{module}.py").is_file()


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_readme_has_the_five_headings_in_order(service: str) -> None:
    text = (ROOT / "services" / service / "README.md").read_text()
    headings = re.findall(r"^## (.+?)\s*$", text, flags=re.MULTILINE)
    assert [heading for heading in headings if heading in README_HEADINGS] == README_HEADINGS


@pytest.mark.parametrize("folder", sorted(PACKAGES))
def test_the_folder_holds_its_packages_and_no_other(folder: str) -> None:
    found = sorted({path.relative_to(ROOT).parts[1] for path in modules(folder)})
    assert found == sorted(PACKAGES[folder])


@pytest.mark.parametrize("folder", sorted(PACKAGES))
def test_a_package_says_what_it_is_and_that_it_is_typed(folder: str) -> None:
    for name in PACKAGES[folder]:
        package = ROOT / folder / name / f"colo_{name}"
        assert ast.get_docstring(parsed(package / "__init__.py")), shown(package)
        assert (package / "py.typed").is_file(), shown(package)


def test_no_module_is_too_long() -> None:
    sizes = {shown(path): len(text_of(path).splitlines()) for path in modules("apps", "libs", "services", "tests")}
    assert not {name: lines for name, lines in sizes.items() if lines > MODULE_LINES_MAX}


def test_no_function_is_too_long() -> None:
    found = [
        f"{shown(path, function.line)} {function.name}: {function.lines} lines"
        for path in modules("apps", "libs", "services", "tests")
        if text_of(path).count("\n") > FUNCTION_LINES_MAX
        for function in functions_of(path)
        if function.lines > FUNCTION_LINES_MAX
    ]
    assert not found, found


def test_no_module_has_an_empty_name() -> None:
    found = [
        shown(path)
        for path in modules("apps", "libs", "services", "tests")
        if path.stem in EMPTY_NAMES or path.parent.name in EMPTY_NAMES - {"common"}
    ]
    assert not found, found


def test_no_function_changes_a_global() -> None:
    found = [
        shown(path, node.lineno)
        for path in mentioning("global ", modules("apps", "libs", "services"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Global)
    ]
    assert not found, found
