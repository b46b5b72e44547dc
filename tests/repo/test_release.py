"""What a newcomer and a release rely on: the README's test command, the CI that runs it, the lock file, the license."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib

import pytest

from tests.repo.tree import ROOT

TEST_COMMAND = "pip install -e '.[test]' && pytest"
#: Names that the lock leaves out: what pip itself brings.
UNLOCKED = {"pip", "setuptools"}


def normal(name: str) -> str:
    """Return a distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> dict[str, str]:
    text = (ROOT / "requirements.lock").read_text()
    return {
        normal(name): version for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE)
    }


def test_the_readme_shows_the_test_command_in_a_block_of_its_own() -> None:
    blocks = re.findall(r"^```\w*\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    assert any(TEST_COMMAND in block.splitlines() for block in blocks)


def test_ci_runs_the_command_of_the_readme() -> None:
    script = ROOT / ".ci" / "run"
    assert TEST_COMMAND in script.read_text()
    assert os.access(script, os.X_OK)
    syntax = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert (syntax.returncode, syntax.stderr) == (0, "")


def test_ci_checks_before_it_tests_and_runs_every_suite() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    steps = ("ruff check", "ruff format --check", "mypy", "lint-imports", "documents --check", TEST_COMMAND)
    places = [
        script.index(step)
        for step in (*steps, "-m 'sim or failover'", "(kernel or slow) and not sim", "tests/kernel/ci.sh")
    ]
    assert places == sorted(places)


def test_the_lock_has_no_address() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert "index-url" not in text
    assert "file:" not in text


def test_the_lock_pins_every_requirement_with_a_hash() -> None:
    text = (ROOT / "requirements.lock").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert lines
    unpinned = [line[:60] for line in lines if not re.match(r"[A-Za-z0-9._-]+==\S+.*--hash=sha256:[0-9a-f]{64}", line)]
    assert not unpinned, unpinned


def test_the_lock_covers_every_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *(d for group in project["optional-dependencies"].values() for d in group)]
    names = {normal(re.split(r"[\s;<>=!\[]", dependency, maxsplit=1)[0]) for dependency in declared}
    # An extra may contain another extra.
    assert not names - locked().keys() - UNLOCKED - {normal(project["name"])}, "run `just lock`"


def test_the_license_is_whole_and_declared() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"] == "Apache-2.0"


@pytest.mark.parametrize("group", ["setup", "check", "test", "run", "release"])
def test_the_justfile_has_its_groups_and_a_sentence_for_each_recipe(group: str) -> None:
    text = (ROOT / "justfile").read_text()
    assert f"[group('{group}')]" in text
    recipes = re.findall(r"^(?!_)([a-z][a-z0-9-]*)(?: [^:=\n]*)?:(?!=)", text, flags=re.MULTILINE)
    described = re.findall(r"^\[doc\('.+?'\)\]$", text, flags=re.MULTILINE)
    assert len(recipes) == len(described)
