"""What this service does when its own ears or clock fail: nobody ages, no fleet is declared lost, nothing is promised too early."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from colo_common.events.effects import BusReachable, Effect, Publish, Wake
from colo_common.events.node import AllocatableChanged, FreshnessChanged
from colo_common.events.requests import HoldEntry, HoldsListed
from colo_common.model.freshness import Freshness
from colo_common.model.partition import PartitionsHeld
from colo_common.model.placement import ZoneShare
from colo_overcommit.core import Event, OvercommitCore
from colo_overcommit.fleet_guard import GuardPolicy
from colo_overcommit.policy import OvercommitPolicy
from tests.support.builders import a_node, a_sample

HOUR_MS = 3_600_000


class Fleet:
    """Nodes that send a sample a second, and a core that is woken when it asked for it."""

    def __init__(self, count: int, *, needs_holds: bool = False, partitions: int = 0) -> None:
        self.core = OvercommitCore(
            OvercommitPolicy(), guard=GuardPolicy(needs_holds=needs_holds), partitions=partitions
        )
        self.names = [f"n{number}" for number in range(count)]
        self.now_ms = 1_000_000
        self.seq = 0
        self.effects: list[Effect] = []
        self.join(self.names)

    def join(self, names: Sequence[str]) -> None:
        for name in names:
            self.handle(a_node(name))

    def handle(self, event: Event) -> None:
        self.effects += self.core.handle(event, self.now_ms)

    def live(self, seconds: int, silent: Sequence[str] = ()) -> None:
        """Let time pass; all but the silent nodes are received."""
        for _ in range(seconds):
            self.now_ms += 1_000
            self.seq += 1
            for name in self.names:
                if name not in silent:
                    self.handle(a_sample(name, seq=self.seq, at_ms=self.now_ms))
            deadline_ms = self.core.deadline_ms()
            if deadline_ms is not None and deadline_ms <= self.now_ms:
                self.handle(Wake())
                after_ms = self.core.deadline_ms()
                assert after_ms is None or after_ms > self.now_ms

    def states(self) -> set[Freshness]:
        return {known.freshness for known in self.core.nodes.values()}

    def lost(self) -> list[str]:
        """The nodes that were declared lost, in order."""
        facts = [effect.fact for effect in self.effects if isinstance(effect, Publish)]
        return [fact.node for fact in facts if isinstance(fact, FreshnessChanged) and fact.freshness is Freshness.LOST]


@pytest.mark.parametrize("step_ms", [6_000, 90_000, HOUR_MS])
def test_a_pause_of_the_process_or_a_step_of_its_clock_makes_nobody_older(step_ms: int) -> None:
    fleet = Fleet(3)
    fleet.live(5)
    fleet.now_ms += step_ms
    fleet.handle(Wake())
    assert fleet.states() == {Freshness.FRESH}
    # Nor is it an alarm that all of them fell silent.
    assert (fleet.core.guard.withheld, fleet.core.guard.watched_ms(fleet.now_ms)) == (set(), 1_000_000 + 5_000 + 2_000)
    fleet.live(5)
    assert fleet.states() == {Freshness.FRESH}
    fleet.live(70, silent=["n1"])
    assert fleet.lost() == ["n1"]


def test_while_the_bus_is_away_nobody_ages_and_afterwards_the_silent_node_is_found() -> None:
    fleet = Fleet(3)
    fleet.live(5)
    fleet.handle(BusReachable(is_reachable=False))
    fleet.live(600, silent=fleet.names)
    assert fleet.states() == {Freshness.FRESH}
    fleet.handle(BusReachable(is_reachable=True))
    fleet.live(9, silent=["n2"])
    assert fleet.states() == {Freshness.FRESH}
    fleet.live(52, silent=["n2"])
    assert fleet.lost() == ["n2"]


def test_many_nodes_that_fall_silent_together_are_one_alarm_and_none_is_lost() -> None:
    fleet = Fleet(12)
    fleet.live(5)
    assert fleet.core.guard.problem() == ""
    fleet.live(300, silent=fleet.names[:8])
    assert fleet.lost() == []
    assert fleet.states() == {Freshness.FRESH, Freshness.STALE}
    assert fleet.core.guard.problem().startswith("8 of 12 nodes are silent, too many at once: none is declared lost")
    fleet.live(5)
    assert fleet.core.guard.problem() == ""
    assert fleet.states() == {Freshness.FRESH}
    # A few are lost as ever, also where the alarm ends because the others are received again.
    fleet.live(70, silent=fleet.names[:8])
    fleet.live(30, silent=fleet.names[:2])
    assert sorted(fleet.lost()) == ["n0", "n1"]
    assert fleet.core.guard.problem() == ""


@pytest.mark.parametrize(
    ("count", "silent", "lost"),
    [
        (1, 1, 0),
        (2, 1, 1),
        (2, 2, 0),
        (3, 1, 1),
        (3, 2, 0),
        (3, 3, 0),
        (4, 2, 2),
        (4, 4, 0),
        (5, 2, 2),
        (5, 3, 0),
        (5, 5, 0),
        (9, 5, 0),
        (10, 5, 5),
        (10, 6, 0),
        (12, 8, 0),
        (30, 9, 9),
        (30, 10, 0),
    ],
)
def test_of_few_nodes_half_may_be_lost_at_once_and_of_many_a_third(count: int, silent: int, lost: int) -> None:
    fleet = Fleet(count)
    fleet.live(5)
    # Not at one moment: what silences a fleet may take some seconds.
    for number in range(silent):
        fleet.live(4, silent=fleet.names[: number + 1])
    fleet.live(300, silent=fleet.names[:silent])
    assert sorted(fleet.lost()) == sorted(fleet.names[:lost])
    is_alarm = fleet.core.guard.problem().startswith(f"{silent} of {count} nodes are silent")
    assert is_alarm is (lost < silent)


def test_two_instances_with_half_of_the_nodes_each_count_all_of_them() -> None:
    fleets = [Fleet(10, partitions=2) for _ in range(2)]
    for partition, fleet in enumerate(fleets):
        fleet.handle(PartitionsHeld(fences=((partition, 1),)))
        fleet.live(5)
        fleet.live(300, silent=fleet.names)
        assert 0 < len(fleet.core.own_nodes()) < 10
        assert fleet.lost() == []
        assert fleet.core.guard.problem().startswith("10 of 10 nodes are silent")
    # What one instance declares lost is no more to be lost by the other within the minute.
    first, second = fleets
    first.live(70, silent=[*first.core.own_nodes()][:3])
    own = [*second.core.own_nodes()][:3]
    second.live(40, silent=first.lost())
    second.live(30, silent=[*first.lost(), *own])
    for effect in first.effects:
        if isinstance(effect, Publish) and isinstance(effect.fact, FreshnessChanged):
            second.handle(effect.fact)
    second.live(40, silent=[*first.lost(), *own])
    assert (len(first.lost()), second.lost()) == (3, [])
    second.live(60, silent=[*first.lost(), *own])
    assert sorted(second.lost()) == sorted(own)


def test_an_only_node_is_lost_when_another_one_came_in_its_place() -> None:
    fleet = Fleet(1)
    fleet.live(5)
    fleet.live(120, silent=["n0"])
    assert fleet.lost() == []
    fleet.names.append("n1")
    fleet.join(["n1"])
    fleet.live(20, silent=["n0"])
    assert fleet.lost() == ["n0"]
    assert fleet.core.guard.problem() == ""


def test_nodes_that_were_lost_before_the_start_do_not_fall_silent_again() -> None:
    fleet = Fleet(3)
    for name in ("n0", "n1"):
        fleet.handle(
            FreshnessChanged(node=name, freshness=Freshness.LOST, previous=Freshness.STALE, sample_seq=1, age_ms=1)
        )
    fleet.live(300, silent=["n0", "n1"])
    assert fleet.core.guard.problem() == ""
    assert fleet.states() == {Freshness.LOST, Freshness.FRESH}
    # Of what is left none goes, because it is all.
    fleet.live(120, silent=fleet.names)
    assert fleet.lost() == []
    fleet.live(5)
    assert fleet.states() == {Freshness.FRESH}


def test_nodes_that_fall_silent_at_one_moment_have_twice_the_time() -> None:
    """A server of the bus stands still with fewer nodes than the alarm needs, and they find another one."""
    fleet = Fleet(30)
    fleet.live(5)
    fleet.live(110, silent=fleet.names[:8])
    assert fleet.lost() == []
    assert fleet.states() == {Freshness.FRESH, Freshness.STALE}
    fleet.live(5)
    assert fleet.states() == {Freshness.FRESH}
    fleet.live(135, silent=fleet.names[:8])
    assert sorted(fleet.lost()) == sorted(fleet.names[:8])


def test_nodes_that_fall_silent_one_after_the_other_and_few_nodes_are_lost_in_time() -> None:
    fleet = Fleet(60)
    fleet.live(5)
    fleet.live(65, silent=fleet.names[:5])
    assert sorted(fleet.lost()) == fleet.names[:5]
    for number in range(5, 13):
        fleet.live(7, silent=fleet.names[: number + 1])
    fleet.live(56, silent=fleet.names[:13])
    assert sorted(fleet.lost()) == sorted(fleet.names[:13])


def test_nothing_is_promised_before_the_holds_are_listed_and_then_never_less_than_they_hold() -> None:
    fleet = Fleet(1, needs_holds=True)
    fleet.live(5)
    assert not any(isinstance(e, Publish) and isinstance(e.fact, AllocatableChanged) for e in fleet.effects)
    assert "before the scheduler has listed" in fleet.core.guard.problem()
    shares = (ZoneShare(zone=0, cpu_mcpu=15_000, memory_bytes=1 << 30),)
    hold = HoldEntry(node="n0", replica="j/t/0", attempt=1, zones=shares)
    fleet.handle(HoldsListed(holds=(hold,), asked_at_ms=fleet.now_ms))
    fleet.live(1)
    published = [e.fact for e in fleet.effects if isinstance(e, Publish) and isinstance(e.fact, AllocatableChanged)]
    assert [fact.zones[0].batch_cpu_mcpu >= 15_000 for fact in published] == [True]
    assert fleet.core.guard.problem() == ""
