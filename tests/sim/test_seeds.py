"""Worlds drawn from their seeds, and the runner that lives thousands of them: what it prints, keeps and makes smaller."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import get_args

import pytest
from msgspec import Struct, json, structs
from msgspec.structs import replace

from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_sim.faults import NO_NETWORK_FAULTS, STOPPING, FaultKind, FaultPlan
from colo_sim.invariants import InvariantChecker
from colo_sim.world import OnlineHarm, Outcome, World, WorldSettings
from tests.sim import __main__ as runner
from tests.sim.bounds import broken_bound
from tests.sim.command import add_settings, command_of, settings_of
from tests.sim.drawn import settings_from
from tests.sim.lives import Life, life_of, lived, versions
from tests.sim.shrink import shrunk

pytestmark = pytest.mark.sim

SEEDS = range(20)
KEPT = sorted(runner.FAILURES.glob("*.json"))


class Kept(Struct):
    """A failure as the runner keeps it."""

    broken: str
    command: str
    settings: WorldSettings


@pytest.mark.parametrize("seed", SEEDS)
def test_the_world_of_a_seed_keeps_every_invariant_and_finishes_its_work(seed: int) -> None:
    life = life_of(seed)
    assert not life.broken, "\n".join((life.broken, *life.lines[-40:], command_of(life.settings, life.at_ms)))


def test_what_broke_once_does_not_break_again() -> None:
    broken = {path.name: lived(json.decode(path.read_bytes(), type=Kept).settings).broken for path in KEPT}
    assert not {name: sentence for name, sentence in broken.items() if sentence}


def test_seeds_differ_in_size_faults_and_network_faults() -> None:
    drawn = [settings_from(seed) for seed in range(40)]
    assert drawn == [settings_from(seed) for seed in range(40)]
    assert len({settings.nodes for settings in drawn}) > 3
    assert len({settings.faults.weights for settings in drawn}) > 30
    assert len({settings.faults.network_faults for settings in drawn}) > 30
    assert {settings.sharers for settings in drawn} == {1, 2, 3}
    assert {settings.job_sharers for settings in drawn} == {1, 2}
    assert 10 <= sum(settings.other_versions > 0 for settings in drawn) <= 25


def test_processes_of_other_versions_are_replaced_while_there_are_faults() -> None:
    settings = replace(settings_from(3), other_versions=5)
    life = lived(settings)
    assert not life.broken, "\n".join((life.broken, *life.lines[-40:]))
    assert life.outcome.reached["versions changed"] >= 5
    with World(settings, versions=versions(settings)) as world:
        assert len(world.wires) == 5
        world.run_until(settings.faults.quiet_after_ms)
        assert not world.wires
    with pytest.raises(InvalidInput, match="other_versions: must be 0"):
        World(settings)


def test_every_kind_of_fault_is_drawn_by_some_seed() -> None:
    kinds = {kind for seed in range(100) for kind, _ in settings_from(seed).faults.weights}
    assert kinds == set(get_args(FaultKind))


@pytest.mark.parametrize(
    "settings",
    [
        WorldSettings(seed=1),
        WorldSettings(seed=2, nodes=7, online_jobs=3, schedulers=2, shards=4, skew_most_ms=0, faults=STOPPING),
        *(settings_from(seed) for seed in range(5)),
    ],
)
def test_the_printed_command_has_every_setting(settings: WorldSettings) -> None:
    parser = argparse.ArgumentParser()
    add_settings(parser)
    words = shlex.split(command_of(settings))
    assert words[:3] == ["python", "-m", "tests.sim.replay"]
    assert settings_of(parser.parse_args(words[3:])) == settings
    assert {f"--{name.replace('_', '-')}" for name in WorldSettings.__struct_fields__} <= set(words)


QUIET = FaultPlan(weights=(("crash-jobs", 1),))
AWAY = FaultPlan(weights=(("stop-node", 1),), away_most_ms=15_000, long_permille=0, down_most_ms=6_000)


@pytest.mark.parametrize(
    ("faults", "harm", "moves", "broken"),
    [
        (QUIET, OnlineHarm(node_ms=1_000_000, added_ms=10_000, longest_added_ms=10_000), (8, 6), ""),
        (QUIET, OnlineHarm(node_ms=1_000_000, added_ms=10_001, longest_added_ms=5_000), (0, 0), "10 permille"),
        (QUIET, OnlineHarm(node_ms=9_000_000, added_ms=10_001, longest_added_ms=10_001), (0, 0), "10000 ms"),
        (QUIET, OnlineHarm(), (8, 7), "7 of 8 moves"),
        (AWAY, OnlineHarm(node_ms=2_000_000, added_ms=40_000, longest_added_ms=31_000), (3, 2), ""),
        (AWAY, OnlineHarm(node_ms=2_000_000, added_ms=40_001, longest_added_ms=31_000), (0, 0), "20 permille"),
        (AWAY, OnlineHarm(node_ms=2_000_000, added_ms=40_000, longest_added_ms=31_001), (0, 0), "31000 ms"),
    ],
)
def test_a_world_is_judged_by_its_machines_and_moves(
    faults: FaultPlan, harm: OnlineHarm, moves: tuple[int, int], broken: str
) -> None:
    settings = WorldSettings(seed=1, faults=faults)
    outcome = structs.replace(a_life(settings).outcome, online=harm, moves=moves[0], moves_back=moves[1])
    found = broken_bound(settings, outcome)
    assert broken in found
    assert bool(found) is bool(broken)


def a_life(settings: WorldSettings, broken: str = "") -> Life:
    """What came of a world that nobody lived."""
    reached = {"fault crash-jobs": 2, "replica Running": 5}
    outcome = Outcome(
        seed=settings.seed,
        digest="",
        events=1,
        lines=1,
        messages=1,
        simulated_ms=1_000,
        judged={"ReplicaStarted": 3},
        reached=reached,
    )
    return Life(settings=settings, outcome=outcome, took_s=1.0, broken=broken, kind=broken, at_ms=700, lines=("last",))


def breaks_where_two_nodes_are_cut_off(settings: WorldSettings) -> Life:
    is_broken = settings.nodes > 1 and "cut-node" in dict(settings.faults.weights)
    return a_life(settings, "it broke" if is_broken else "")


def test_what_breaks_is_made_as_small_as_it_breaks() -> None:
    first = WorldSettings(seed=7, nodes=9, jobs=30, online_jobs=5, schedulers=3, shards=8, faults=STOPPING)
    small = shrunk(a_life(first, "it broke"), breaks_where_two_nodes_are_cut_off, 100)
    assert small.broken == "it broke"
    assert (small.settings.nodes, small.settings.jobs, small.settings.online_jobs) == (2, 1, 0)
    assert (small.settings.schedulers, small.settings.shards) == (1, 0)
    assert small.settings.jobs_within_ms <= 20_000 < 2 * small.settings.jobs_within_ms
    assert small.settings.faults.network_faults == NO_NETWORK_FAULTS
    assert [kind for kind, _ in small.settings.faults.weights] == ["cut-node"]


def test_making_smaller_ends_when_its_lives_are_spent() -> None:
    lived_: list[WorldSettings] = []

    def live(settings: WorldSettings) -> Life:
        lived_.append(settings)
        return a_life(settings, "it broke")

    shrunk(a_life(WorldSettings(seed=7), "it broke"), live, 5)
    assert len(lived_) == 5


def test_a_failure_is_kept_with_its_settings_and_printed_with_its_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_from(3)
    found = [a_life(settings, "it broke"), a_life(settings_from(4))]
    monkeypatch.setattr(runner, "_lives", lambda _seeds, _jobs: iter(found))
    assert runner.main(["--seeds", "3..5", "--shrink", "0", "--failures", str(tmp_path)]) == 1
    (path,) = tmp_path.iterdir()
    kept = json.decode(path.read_bytes(), type=Kept)
    assert (kept.broken, kept.settings, kept.command) == ("it broke", settings, command_of(settings, 700))
    printed = capsys.readouterr().out
    assert kept.command in printed
    assert "2 worlds, 1 broke" in printed
    assert "fault: crash-jobs 4" in printed
    assert "judged: ReplicaStarted 6" in printed
    assert "fault cut-node" in printed.split("never reached: ")[1]


def test_seeds_without_a_failure_are_a_success(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runner, "_lives", lambda seeds, _jobs: iter([a_life(settings_from(seed)) for seed in seeds]))
    assert runner.main(["--seeds", "0..3", "--failures", str(tmp_path)]) == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "5", "5..", "5..5", "7..2", "a..b"])
def test_what_is_no_range_of_seeds_is_refused(text: str) -> None:
    with pytest.raises(SystemExit):
        runner.main(["--seeds", text])


def test_whatever_the_code_of_a_world_raises_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_what: object) -> None:
        raise InvariantBroken("nobody may say anything", who="anybody")

    monkeypatch.setattr(InvariantChecker, "stored", refuse)
    life = life_of(0)
    assert (life.kind, life.broken) == ("nobody may say anything", "nobody may say anything (who='anybody')")
    assert life.lines
    assert life.at_ms < 10_000
