"""The waits of online work without a pressure file, read from its threads on this machine's kernel. Needs root."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from colo_executor.cgroup import CgroupTree
from colo_executor.process.stall_reader import StallReader, stall_reader, unified_root
from colo_executor.process.thread_waits import ThreadWaits
from colo_executor.stall import OnlineStalls
from tests.support.online_service import ROOT
from tests.support.waiting import eventually_blocking

pytestmark = pytest.mark.kernel

SPIN: Final = "while :; do :; done"
#: Each process lives for some milliseconds.
SHORT_LIVED: Final = "while :; do sh -c 'i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done'; done"
CPU: Final = min(os.sched_getaffinity(0))
SPAN_MS: Final = 1_500
#: Two loops that share a CPU each wait half of the time; other programs can only add to it.
SHARED_PCT_LEAST: Final = 30
DIFFERENCE_PCT_MOST: Final = 15


@pytest.fixture
def trees() -> Iterator[tuple[CgroupTree, CgroupTree]]:
    """A group of online work and one beside it, under the cpu controller alone."""
    only_cpu = {1: ("cpu", "cpuacct"), 2: ("cpu",)}
    made = [CgroupTree(ROOT, f"colo-{name}-{os.getpid()}", controllers=only_cpu) for name in ("online", "sibling")]
    for tree in made:
        tree.make("")
    yield made[0], made[1]
    for tree in made:
        assert tree.remove("")


@contextlib.contextmanager
def running(tree: CgroupTree, script: str = SPIN) -> Iterator[int]:
    """A shell on the one CPU, in the group before its script begins; it ends with all its children."""
    gated = f"read go; {script}"
    command = ["taskset", "-c", str(CPU), "sh", "-c", gated]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        tree.attach("", process.pid)
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
        yield process.pid
    finally:
        tree.kill_now("")
        process.wait()
        eventually_blocking(lambda: tree.kill_now(""), "the group to be empty")


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def read(reader: StallReader) -> OnlineStalls:
    stalls = reader.read(now_ms())
    assert stalls is not None
    return stalls


def waited_pct(reader: StallReader, name: str) -> int:
    """The share of a span in which the group waited; every reading of it shows the group, and no total falls."""
    first = last = read(reader)

    def is_over() -> bool:
        nonlocal last
        before, last = dict(last.total_us)[name], read(reader)
        assert dict(last.total_us)[name] >= before
        return last.at_ms - first.at_ms >= SPAN_MS

    eventually_blocking(is_over, "the span to be over")
    waited_us = dict(last.total_us)[name] - dict(first.total_us)[name]
    return waited_us // 10 // (last.at_ms - first.at_ms)


@pytest.fixture
def reader(trees: tuple[CgroupTree, CgroupTree]) -> Iterator[StallReader]:
    online, sibling = trees
    reader = stall_reader(online, (sibling.name,), "/proc")
    assert reader is not None
    if online.version != 1:
        pytest.skip("every group of cgroup v2 has a pressure file")
    yield reader
    reader.close()


def test_a_group_without_a_pressure_file_is_seen_to_wait_in_competition(
    trees: tuple[CgroupTree, CgroupTree], reader: StallReader
) -> None:
    online, sibling = trees
    with running(online), running(sibling):
        eventually_blocking(lambda: online.name in read(reader).by_threads, "its threads to be read")
        assert waited_pct(reader, online.name) >= SHARED_PCT_LEAST
        assert online.name not in read(reader).unseen


def test_a_group_of_processes_that_live_for_milliseconds_is_unseen(
    trees: tuple[CgroupTree, CgroupTree], reader: StallReader
) -> None:
    online, _ = trees
    with running(online, SHORT_LIVED):
        eventually_blocking(lambda: online.name in read(reader).unseen, "the group to be unseen")
        assert online.name not in read(reader).by_threads


@pytest.mark.parametrize("is_shared", [True, False], ids=["beside another loop", "alone"])
def test_the_estimate_is_near_the_pressure_of_the_same_process(
    trees: tuple[CgroupTree, CgroupTree], *, is_shared: bool
) -> None:
    online, sibling = trees
    unified = unified_root(ROOT)
    if unified is None or not os.path.exists("/proc/pressure/cpu"):
        pytest.skip("this kernel keeps no pressure of groups to compare with")
    twin = Path(unified) / online.name
    twin.mkdir(exist_ok=True)
    waits = ThreadWaits(online.hierarchy.mounts["cpu"], online.version, proc_root="/proc")
    try:
        with running(online) as pid, running(sibling) if is_shared else contextlib.nullcontext():
            (twin / "cgroup.procs").write_text(str(pid))
            eventually_blocking(lambda: online.cpu_used_us("") > 100_000, "the loop to run")
            waits.watch([online.name], now_ms())
            begun_ms, pressure_us = now_ms(), some_us(twin)

            def is_over() -> bool:
                waits.read(now_ms())
                return now_ms() - begun_ms >= SPAN_MS

            eventually_blocking(is_over, "the span to be over")
            ((_, waited_us),) = waits.read(now_ms())
            span_ms, pressure_us = now_ms() - begun_ms, some_us(twin) - pressure_us
        estimated, shown = waited_us // 10 // span_ms, pressure_us // 10 // span_ms
        assert abs(estimated - shown) <= DIFFERENCE_PCT_MOST, (estimated, shown)
        assert not is_shared or estimated >= SHARED_PCT_LEAST
    finally:
        waits.close()
        if online.version == 1:
            twin.rmdir()


def some_us(group: Path) -> int:
    return int((group / "cpu.pressure").read_text().partition("\n")[0].rpartition("total=")[2])
