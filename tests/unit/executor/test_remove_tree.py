"""Directories that a hostile job leaves behind are removed, and nothing outside of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from colo_executor.process.ended_dirs import EndedDirs, prune_attempts
from colo_executor.process.launch import attempt_dir, make_attempt_dir
from colo_executor.process.remove_tree import remove_tree
from colo_executor.process.settings import ProcessPolicy
from tests.support.waiting import eventually_blocking

GIB = 1 << 30
DEPTH = 3_000
"""Beyond the limit of Python's stack, of open files, and of the length of a path."""


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for directory in (tmp_path / "attempts").glob("*"):
        assert remove_tree(directory)


def dig(directory: Path) -> None:
    """Directories in directories, as deep as a job likes, with a file at the bottom."""
    fd = os.open(directory, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("a", dir_fd=fd)
        inner = os.open("a", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.close(fd)


def test_an_attempt_that_dug_deep_keeps_no_later_one_from_being_pruned(state_dir: Path) -> None:
    for index in range(3):
        dig(make_attempt_dir(state_dir, f"job.main.{index}@1") / "work")
        os.utime(attempt_dir(state_dir, f"job.main.{index}@1"), (index, index))
    prune_attempts(state_dir, 1, GIB, frozenset())
    assert os.listdir(state_dir / "attempts") == ["job.main.2@1"]


def test_what_ended_attempts_said_takes_no_more_together_than_it_may(state_dir: Path) -> None:
    for index in range(6):
        directory = make_attempt_dir(state_dir, f"job.main.{index}@1")
        (directory / "stdout").write_bytes(bytes(100_000))
        os.utime(directory, (index, index))

    def left() -> list[int]:
        return sorted(int(name[9]) for name in os.listdir(state_dir / "attempts"))

    runs = frozenset({"job.main.0@1"})
    # Those that run are not counted.
    prune_attempts(state_dir, 5, GIB, runs)
    assert left() == [0, 1, 2, 3, 4, 5]
    prune_attempts(state_dir, 200, 350_000, runs)
    assert left() == [0, 3, 4, 5]
    prune_attempts(state_dir, 200, 0, runs)
    assert left() == [0, 5]
    prune_attempts(state_dir, 0, GIB, runs)
    assert left() == [0]


def test_what_an_attempt_said_at_its_end_is_bounded_like_all_before(state_dir: Path) -> None:
    ended = make_attempt_dir(state_dir, "job.main.0@1")
    (ended / "stdout").write_bytes(b"a" * 10_000 + b"b" * 4_096)
    dirs = EndedDirs(state_dir, ProcessPolicy(output_most_bytes=4_096), frozenset)
    dirs.ended(ended)
    eventually_blocking(lambda: (ended / "stdout").stat().st_size == 0, "the outputs are bounded")
    dirs.close()
    assert (ended / "stdout.1").read_bytes() == b"b" * 4_096


def test_a_working_directory_ends_with_its_attempt_and_the_outputs_stay(state_dir: Path) -> None:
    ended, runs = (make_attempt_dir(state_dir, f"job.main.{index}@1") for index in range(2))
    for directory in (ended, runs):
        dig(directory / "work")
        (directory / "stdout").write_text("said\n")
    dirs = EndedDirs(state_dir, ProcessPolicy(), frozenset)
    dirs.ended(ended)
    eventually_blocking(lambda: not (ended / "work").exists(), "the working directory is gone")
    dirs.close()
    assert (ended / "stdout").read_text() == "said\n"
    assert os.listdir(runs / "work") == ["a"]


def test_a_start_removes_what_an_earlier_executor_left_and_nothing_of_a_later_attempt(state_dir: Path) -> None:
    left, runs = (make_attempt_dir(state_dir, f"job.main.{index}@1") for index in range(2))
    for directory in (left, runs):
        dig(directory / "work")
    dirs = EndedDirs(state_dir, ProcessPolicy(), frozenset)
    dirs.begin(frozenset({"job.main.1@1"}))
    # Renamed at once, so that an attempt of this name may begin.
    assert not (left / "work").exists()
    (left / "work").mkdir()
    eventually_blocking(lambda: os.listdir(left) == ["work"], "what was left is gone")
    dirs.close()
    assert os.listdir(runs / "work") == ["a"]


def test_an_attempt_of_the_same_name_begins_with_an_empty_directory(state_dir: Path) -> None:
    dig(make_attempt_dir(state_dir, "job.main.0@1") / "work")
    assert os.listdir(make_attempt_dir(state_dir, "job.main.0@1") / "work") == []


def test_links_lead_nowhere_and_names_that_are_taken_stand_in_nobodys_way(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    directory = tmp_path / "attempt"
    for name in ("0/1/2", "1/0", "2/0/0"):
        (directory / name).mkdir(parents=True)
        (directory / name / "link").symlink_to(outside)
        (directory / name / "file").symlink_to(outside / "kept")
    (directory / "3").write_text("a file with the name of a number")
    assert remove_tree(directory)
    assert not directory.exists()
    assert (outside / "kept").read_text() == "kept"
    link = tmp_path / "link"
    link.symlink_to(outside)
    assert not remove_tree(link)
    assert (outside / "kept").exists()
