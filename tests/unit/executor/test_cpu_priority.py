"""How batch work gives way, by the files of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from colo_executor.knob_table import Knob
from colo_executor.process.cpu_priority import RATIO_LEAST, low_priority
from colo_executor.process.group_identity import heeded_knobs

Groups = dict[str, dict[str, str]]


def made(root: Path, groups: Groups) -> str:
    for name, files in groups.items():
        (root / name).mkdir()
        for file, text in files.items():
            (root / name / file).write_text(f"{text}\n")
    return str(root / "colo")


@pytest.mark.parametrize(
    ("groups", "way"),
    [
        pytest.param({"colo": {"cpu.idle": "1", "cpu.shares": "1024"}}, "idle", id="idle class, whatever the weights"),
        pytest.param({"colo": {"cpu.idle": "1"}, "web": {"cpu.weight": "100"}}, "idle", id="idle class under v2"),
        pytest.param({"colo": {"cpu.idle": "0", "cpu.shares": "2"}, "web": {"cpu.shares": "1024"}}, "weight", id="v1"),
        pytest.param({"colo": {"cpu.shares": "2"}, "web": {"cpu.shares": "1000"}}, "weight", id="just enough"),
        pytest.param({"colo": {"cpu.shares": "2"}, "web": {"cpu.shares": "999"}}, "", id="just too little"),
        pytest.param({"colo": {"cpu.shares": "2"}}, "weight", id="nobody beside it but processes without a group"),
        pytest.param(
            {"colo": {"cpu.shares": "2"}, "web": {"cpu.shares": "1024"}, "small": {"cpu.shares": "102"}},
            "",
            id="one of several weighs too little",
        ),
        pytest.param({"colo": {"cpu.weight": "1"}, "web": {"cpu.weight": "100"}}, "", id="v2 against its default"),
        pytest.param({"colo": {"cpu.weight": "1"}, "web": {"cpu.weight": "500"}}, "weight", id="v2 against more"),
        pytest.param({"colo": {"cpu.shares": "1024"}, "web": {"cpu.shares": "1024"}}, "", id="equal weights"),
        pytest.param(
            {"colo": {"cpu.shares": "2"}, "colo-leaving": {"cpu.shares": "2"}},
            "weight",
            id="batch work that is being ended",
        ),
        pytest.param({"colo": {"cpu.shares": "2"}, "web": {}}, "", id="a weight that cannot be read"),
        pytest.param({"colo": {"cpu.weight": "0"}, "web": {"cpu.weight": "100"}}, "", id="no weight of its own"),
        pytest.param({"colo": {"cpu.shares": "max"}, "web": {"cpu.shares": "1024"}}, "", id="no number"),
        pytest.param({"colo": {"cpu.bvt_warp_ns": "-1", "cpu.shares": "2"}}, "bvt", id="identity of batch work"),
        pytest.param({"colo": {"cpu.bvt_warp_ns": "-2"}, "web": {"cpu.weight": "100"}}, "bvt", id="the least identity"),
        pytest.param({"colo": {"cpu.bvt_warp_ns": "0", "cpu.shares": "2"}}, "weight", id="an ordinary identity"),
        pytest.param(
            {"colo": {"cpu.bvt_warp_ns": "2", "cpu.shares": "1024"}, "web": {"cpu.shares": "1024"}}, "", id="2"
        ),
        pytest.param({"colo": {"cpu.idle": "1", "cpu.bvt_warp_ns": "-1"}}, "idle", id="both"),
        pytest.param({"colo": {}}, "", id="no file"),
        pytest.param({"web": {"cpu.shares": "1024"}}, "", id="no group"),
        pytest.param(
            {"colo": {"cpu.shares": "2"}, **{f"g{n}": {"cpu.shares": "1024"} for n in range(257)}},
            "",
            id="too many to look at",
        ),
    ],
)
def test_the_files_say_how_batch_work_low_priority(tmp_path: Path, groups: Groups, way: str) -> None:
    assert low_priority(made(tmp_path, groups), str(tmp_path)) == way


@pytest.mark.parametrize(
    ("files", "way"),
    [
        ({}, "bvt"),
        ({"sched_group_identity_enabled": "1\n"}, "bvt"),
        ({"sched_group_identity_enabled": "0\n"}, ""),
        ({"osrelease": "4.19.91-25.3.al7.x86_64\n"}, ""),
        ({"osrelease": "4.19.91-25.6.al7.x86_64\n"}, "bvt"),
        ({"osrelease": "5.10.134-13.al8.x86_64\n", "sched_group_identity_enabled": "0\n"}, ""),
    ],
    ids=["no switch", "switched on", "switched off", "a kernel that it brings down", "its repair", "a newer one, off"],
)
def test_an_identity_counts_where_the_kernel_heeds_it(tmp_path: Path, files: dict[str, str], way: str) -> None:
    group = made(tmp_path, {"colo": {"cpu.bvt_warp_ns": "-1"}})
    (tmp_path / "sys/kernel").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / "sys/kernel" / name).write_text(text)
    assert low_priority(group, str(tmp_path)) == way
    both = frozenset({Knob.CPU_BVT, Knob.CPU_WEIGHT})
    assert (heeded_knobs(both, str(tmp_path)) == both) is bool(way)
    assert Knob.CPU_WEIGHT in heeded_knobs(both, str(tmp_path))


def test_the_ratio_is_one_that_the_defaults_of_version_1_reach() -> None:
    assert RATIO_LEAST <= 1_024 // 2
