"""The lab's own tests are left out only where it is certain that they need not run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.kernel.lab.changed import WATCHED, content_key, has_changed
from tests.repo.tree import ROOT

LAB = ("lab",)
WHO = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


class Tree:
    """A small repository with a lab, on the branch main."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main")
        self.write("lab/init", "one")
        self.write("other", "one")
        self.commit()

    def git(self, *words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *who, *words], cwd=self.root, check=True, env={**os.environ, **WHO}, capture_output=True)

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text(text)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a change")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_what_is_watched_is_there() -> None:
    assert all((ROOT / name).exists() for name in WATCHED)


def test_the_same_files_as_when_they_passed_need_no_run(tree: Tree) -> None:
    stamp = content_key(tree.root, LAB)
    tree.write("other", "two")
    assert not has_changed(tree.root, LAB, stamp=stamp)


@pytest.mark.parametrize("name", ["lab/init", "lab/new"])
def test_other_files_than_when_they_passed_need_a_run(tree: Tree, name: str) -> None:
    stamp = content_key(tree.root, LAB)
    tree.write(name, "two")
    assert has_changed(tree.root, LAB, stamp=stamp)


def test_a_branch_that_leaves_the_lab_alone_needs_no_run(tree: Tree) -> None:
    tree.git("checkout", "-q", "-b", "change")
    tree.write("other", "two")
    tree.commit()
    assert not has_changed(tree.root, LAB)


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("name", ["lab/init", "lab/new"])
def test_a_branch_that_changes_the_lab_needs_a_run(tree: Tree, name: str, *, is_committed: bool) -> None:
    tree.git("checkout", "-q", "-b", "change")
    tree.write("other", "two")
    tree.commit()
    tree.write(name, "two")
    if is_committed:
        tree.commit()
    assert has_changed(tree.root, LAB)


def test_a_base_of_another_name_can_be_given(tree: Tree) -> None:
    tree.git("branch", "-m", "trunk")
    tree.git("checkout", "-q", "-b", "change")
    tree.write("other", "two")
    tree.commit()
    assert has_changed(tree.root, LAB)
    assert not has_changed(tree.root, LAB, base="trunk")


def test_on_the_base_itself_nothing_tells(tree: Tree) -> None:
    tree.write("other", "two")
    tree.commit()
    assert has_changed(tree.root, LAB)


def test_without_a_repository_nothing_tells(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    assert has_changed(tmp_path, LAB)
