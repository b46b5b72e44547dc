"""What a directory takes of the disk is counted whatever a job made in it, a slice at a time, and the limit is the smallest one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.model.invalid import InvalidInput
from colo_common.model.workload import ResourceLimits, RunSpec
from colo_executor.disk_limits import check_disk_limits, disk_limit
from colo_executor.process.disk_walk import DEPTH_MOST, Counted, count
from colo_executor.process.disk_watch import DiskWatch
from colo_executor.process.launch import attempt_dir, make_attempt_dir
from tests.support.builders import a_placement
from tests.support.waiting import eventually_blocking

MIB = 1 << 20


def last(directory: Path) -> Counted:
    return list(count(directory))[-1]


def test_blocks_count_and_neither_links_nor_holes_nor_what_links_point_at(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for directory in (inside / "a" / "b", outside):
        directory.mkdir(parents=True)
    empty = last(inside).taken_bytes
    (outside / "large").write_bytes(bytes(4 * MIB))
    (inside / "a" / "link").symlink_to(outside)
    (inside / "a" / "file").write_bytes(bytes(MIB))
    os.link(inside / "a" / "file", inside / "a" / "b" / "again")
    with open(inside / "hole", "wb") as file:
        file.truncate(64 * MIB)
    assert MIB <= last(inside).taken_bytes - empty <= MIB + 64 * 1024


def test_many_files_come_in_slices_and_every_one_is_counted(tmp_path: Path) -> None:
    for index in range(1_001):
        (tmp_path / f"{index}").touch()
    assert [counted.entries for counted in count(tmp_path)] == [200] * 5 + [1]


def test_what_is_too_deep_is_told_and_no_file_stays_open(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(DEPTH_MOST + 1):
        os.mkdir("a", dir_fd=fd)
        inner = os.open("a", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    open_before = len(os.listdir("/proc/self/fd"))
    assert last(tmp_path).deep == 1
    # A look that is given up in the middle closes what it opened.
    walk = count(tmp_path)
    next(walk)
    walk.close()
    assert len(os.listdir("/proc/self/fd")) == open_before


@pytest.mark.parametrize(
    ("job", "tenant", "limits", "found"),
    [
        (0, "red", {}, None),
        (3, "red", {}, (3 * MIB, "limits.disk of the job")),
        (0, "red", {"blue": "1Mi"}, None),
        (0, "red", {"red": "2Mi", "*": "1Mi"}, (2 * MIB, "process_disk_limits of the node (red)")),
        (3, "red", {"*": "2Mi"}, (2 * MIB, "process_disk_limits of the node (*)")),
        (1, "red", {"*": "2Mi"}, (MIB, "limits.disk of the job")),
        (0, "", {"default": "2Mi"}, (2 * MIB, "process_disk_limits of the node (default)")),
    ],
)
def test_the_smallest_limit_counts(
    job: int, tenant: str, limits: dict[str, str], found: tuple[int, str] | None
) -> None:
    run = RunSpec(command=("true",), limits=ResourceLimits(disk_bytes=job * MIB))
    assert disk_limit(replace(a_placement(), run=run, tenant=tenant), limits) == found


def test_what_is_known_by_its_group_alone_is_not_ended_by_a_limit_of_others() -> None:
    assert disk_limit(replace(a_placement(), run=RunSpec()), {"default": "1Mi", "*": "1Mi"}) is None


@pytest.mark.parametrize("amount", ["much", "1Ki", "2Pi", ""])
def test_an_amount_that_cannot_be_one_is_refused(amount: str) -> None:
    with pytest.raises(InvalidInput, match="process_disk_limits"):
        check_disk_limits({"red": amount})


def test_a_disk_that_cannot_be_looked_at_keeps_nobody_else_from_being_told(tmp_path: Path) -> None:
    run = RunSpec(command=("true",))
    absent, file, fills = (replace(a_placement(f"job/main/{index}"), run=run) for index in range(3))
    make_attempt_dir(tmp_path, "job.main.1@1")
    os.rename(tmp_path / "attempts/job.main.1@1", tmp_path / "aside")
    (tmp_path / "attempts/job.main.1@1").touch()
    (make_attempt_dir(tmp_path, "job.main.2@1") / "work" / "file").write_bytes(bytes(2 * MIB))
    named = [(each, attempt_dir(tmp_path, f"job.main.{index}@1")) for index, each in enumerate((absent, file, fills))]
    watch = DiskWatch({"*": "1Mi"}, 0.01, lambda: named)
    watch.begin()
    try:
        found = []
        eventually_blocking(lambda: found.extend(watch.found()) or found, "the one that fills the disk")
    finally:
        watch.close()
    assert {one.replica for one in found} == {"job/main/2"}
