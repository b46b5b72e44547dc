"""Whether the executor reads what memory carries: where the operator says what it sustains, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from colo_common.model.node_rules import NodeRules
from colo_executor.bandwidth import BandwidthPolicy, MemoryTraffic, ZoneTraffic
from colo_executor.main import open_observing
from colo_executor.process import bandwidth_reader
from colo_executor.process.settings import ProcessPolicy
from colo_executor.settings import ExecutorSettings
from tests.support.cgroup2_files import Cgroup2Files
from tests.support.resctrl_tree import ResctrlTree


@pytest.mark.parametrize("bytes_per_s", [0, 80_000_000_000])
async def test_resctrl_is_read_where_the_operator_says_what_memory_sustains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_per_s: int
) -> None:
    files = Cgroup2Files(tmp_path, monkeypatch)
    ResctrlTree(tmp_path, "mon_L3_00")
    monkeypatch.setattr(bandwidth_reader, "file_systems_of", lambda *_: frozenset({"resctrl"}))
    monkeypatch.setattr("colo_executor.main.check_file_system", lambda *_: None)
    # Without a pause between two passes.
    monkeypatch.setattr(bandwidth_reader, "_SPARED", 0)
    monkeypatch.setattr(bandwidth_reader, "_NS_PER_S", 1)
    settings = ExecutorSettings(
        process=ProcessPolicy(
            state_dir=str(tmp_path / "state"), cgroup_root=str(files.root), sys_root=str(files.sys_root)
        ),
        bandwidth=BandwidthPolicy(zone_bytes_per_s=bytes_per_s),
        rules=NodeRules(enforcement="observe"),
    )
    runtime = open_observing(settings)
    readings = [runtime.read_fast(1) for _ in range(20)]
    await runtime.close()
    assert readings[-1] is not None
    # The machine has two zones, and no ids of its caches.
    traffic = MemoryTraffic(at_ms=1, zones=(ZoneTraffic(zone=None, bytes_per_s=0, zones=2),))
    assert readings[-1].memory == (traffic if bytes_per_s else None)
