"""How batch work gives way, by the files of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from colo_executor.process.cpu_priority import RATIO_LEAST, low_priority

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
    assert low_priority(made(tmp_path, groups)) == way


def test_the_ratio_is_one_that_the_defaults_of_version_1_reach() -> None:
    assert RATIO_LEAST <= 1_024 // 2
