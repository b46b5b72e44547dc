"""kill -9 at every write of the journal, on this machine's kernel: the next executor finds the same groups and processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.system.journal_faults import SURVIVED, FaultSeen, groups_of

pytestmark = pytest.mark.kernel


@pytest.mark.timeout(600)
def test_whatever_write_an_executor_dies_at_nothing_that_runs_ends_and_nothing_runs_twice(tmp_path: Path) -> None:
    subtree = f"colo-faults-{os.getpid()}"
    done = subprocess.run(
        [sys.executable, "-m", "tests.system.journal_faults", str(tmp_path), subtree],
        capture_output=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr.decode()[-4_000:]
    faults = [msgspec.json.decode(line, type=FaultSeen) for line in done.stdout.splitlines()]
    assert faults[-1].at == SURVIVED
    points = {(fault.at, fault.mode) for fault in faults[:-1]}
    assert len(points) == len(faults) - 1
    assert points == {(at, mode) for at in range(len(points) // 2) for mode in ("torn", "whole")}
    ways = {(fault.begun, fault.launched_again) for fault in faults}
    assert ways >= {((), ("job", "web")), (("job",), ("web",)), (("job", "web"), ())}, (
        "deaths before, between and after"
    )
    for fault in faults:
        what = f"write {fault.at}, {fault.mode}: {fault}"
        assert fault.after == fault.before, what
        assert fault.adopted == {job: pids[0] for job, pids in fault.before.items() if pids}, what
        assert set(fault.adopted) == set(fault.begun), what
        assert set(fault.groups_after) >= {group for group in fault.groups_before if _runs(group, fault)}, what
        assert not [group for group in fault.groups_after if _is_attempt(group) and not _runs(group, fault)], what
        assert fault.left == (), what
    assert groups_of(subtree) == ()


def _is_attempt(group: str) -> bool:
    return "@" in group


def _runs(group: str, fault: FaultSeen) -> bool:
    return any(f"{job}.main.0@1" in group for job in fault.begun)
