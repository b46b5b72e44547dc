"""The command: the same figures for the same arguments, tables with all of them, and clear words for bad arguments."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.evidence import placement
from tests.evidence.__main__ import main
from tests.evidence.mix import real_mix
from tests.evidence.placement import PLACERS, measured, reported


@pytest.fixture
def _few_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three small clusters instead of three hundred beside the exhaustive search: the shape of the answer is the same."""
    monkeypatch.setattr(placement, "measured", partial(measured, smalls=3))


def figures(seed: int) -> dict[str, Any]:
    return {name: each for name, each in measured(2, seed, real_mix(), 3).items() if name != "decision_us"}


def test_a_seed_gives_the_same_figures_and_another_seed_others() -> None:
    assert figures(1) == figures(1) != figures(2)


def test_the_tables_name_every_scheduler_and_say_nothing_else_than_the_figures() -> None:
    found = measured(4, 1, real_mix(), 3)
    text = reported(found)
    # Three tables for each of two fleets, and the regret.
    for name in PLACERS:
        assert sum(line.startswith(f"{name}  ") for line in text.splitlines()) == 7
    best = found["fleets"][0]["full"]["best-fit"]
    assert (best["packing_ratio"], best["crossing_ratio"]) == (1.0, 1.0)
    assert f"{best['end']['cpu_pct']:.1f}/{best['end']['memory_pct']:.1f}" in text


@pytest.mark.usefixtures("_few_clusters")
def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["placement", "--nodes", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(found) == ["decision_us", "fleets", "mix", "regret", "seed"]
    assert found["fleets"][1]["left_out"] == 2


@pytest.mark.usefixtures("_few_clusters")
def test_a_trace_of_one_s_own_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pods.csv"
    path.write_text("name,cpu_milli,memory_mib,creation_time\na,16000,1024,2\nb,30000,1024,1\n")
    assert main(["placement", "--nodes", "2", "--trace", str(path)]) == 0
    assert capsys.readouterr().out.startswith("the 2 pods of pods.csv in the order of their creation")


@pytest.mark.parametrize(
    ("arguments", "delivered"),
    [
        (["placement", "--nodes", "0"], "--nodes: must be from 1 to 10000 (got 0)"),
        (["placement", "--trace", "/nowhere.csv"], "No such file"),
        (["nothing"], "NAME: placement"),
        ([], "NAME: placement"),
    ],
)
def test_bad_arguments_are_told(arguments: list[str], delivered: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert delivered in capsys.readouterr().err
