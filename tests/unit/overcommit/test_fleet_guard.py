"""What this service does when its own ears or clock fail: nobody ages, no fleet is declared lost, nothing is promised too early."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from colo_common.events.effects import Effect, Publish, Wake
from colo_common.events.node import AllocatableChanged, FreshnessChanged
from colo_common.events.requests import HoldEntry, HoldsListed
from colo_common.model.freshness import Freshness
from colo_common.model.placement import ZoneShare
from colo_overcommit.core import Event, OvercommitCore
from colo_overcommit.fleet_guard import BusReachable, GuardPolicy
from colo_overcommit.policy import OvercommitPolicy
from tests.support.builders import a_node, a_sample

HOUR_MS = 3_600_000


class Fleet:
    """Nodes that send a sample a second, and a core that is woken when it asked for it."""

    def __init__(self, count: int, *, needs_holds: bool = False) -> None:
        self.core = OvercommitCore(OvercommitPolicy(), guard=GuardPolicy(needs_holds=needs_holds))
        self.names = [f"n{number}" for number in range(count)]
        self.now_ms = 1_000_000
        self.seq = 0
        self.effects: list[Effect] = []
        for name in self.names:
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
    assert fleet.core.guard.problem().startswith("8 nodes fell silent together, more than 33 % of the fleet")
    fleet.live(5)
    assert fleet.core.guard.problem() == ""
    assert fleet.states() == {Freshness.FRESH}
    # A few are lost as ever, also where the alarm ends because the others are received again.
    fleet.live(70, silent=fleet.names[:8])
    fleet.live(30, silent=fleet.names[:2])
    assert sorted(fleet.lost()) == ["n0", "n1"]
    assert fleet.core.guard.problem() == ""


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
