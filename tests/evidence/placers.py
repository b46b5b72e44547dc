"""Who chooses a place for one request after the other. Here: colo's scheduler, whole."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from colo_common.events.effects import Effect, Publish, Wake
from colo_common.events.job import PlacementRequest, PlacementsRequested, ReplicasWithdrawn
from colo_common.events.placement import PlacementsDecided
from colo_common.model.placement import Placement
from colo_common.model.reasons import Reason
from colo_scheduler.commit.jobs_asked import AskPending
from colo_scheduler.core import Event, SchedulerCore
from colo_scheduler.policy import SchedulerPolicy, ScorerWeights, check_policy
from tests.evidence.fleets import Fleet
from tests.evidence.mix import Ask
from tests.support.builders import a_node
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable

__all__ = ["COLO_WEIGHTS", "ByColo", "Placer", "Share", "Spot"]

COLO_WEIGHTS: Final[dict[str, ScorerWeights]] = {
    "colo: one zone, then most free": ScorerWeights(),
    "colo: one zone, then packed": ScorerWeights(fewest_zones=10, most_free=0, most_allocated=1),
    "colo: packed, then one zone": ScorerWeights(fewest_zones=1, most_free=0, most_allocated=10),
}
"""The policies of colo that are compared; the first is the default."""


class Share(NamedTuple):
    """What a replica takes of one zone of a machine."""

    zone: int
    cpu_mcpu: int
    memory_bytes: int


class Spot(NamedTuple):
    """A place: the number of the machine in its fleet, and the shares of its zones."""

    machine: int
    shares: tuple[Share, ...]


class Placer(Protocol):
    """Chooses places on a fleet that is empty at first. `seconds`: the CPU time of all its decisions so far."""

    @property
    def seconds(self) -> float:
        """See above."""
        ...

    def place(self, number: int, ask: Ask) -> Spot | None:
        """Choose a place for request `number` and hold it; None when no machine can take it."""
        ...

    def end(self, number: int, spot: Spot) -> None:
        """Give back what request `number` holds."""
        ...


class _Clock:
    """Adds up the CPU time of the decisions themselves, from the filters to the last choice."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begun = 0.0

    def mark(self, stage: str) -> None:
        """See decide.Stages."""
        if stage == "filter":
            self._begun = time.process_time()
        elif stage == "done":
            self.seconds += time.process_time() - self._begun

    def decided(self, placement_requests: Sequence[PlacementRequest]) -> None:
        """Nothing."""


class ByColo:
    """The scheduler's core and a ledger in memory: wants go in by its one door, and what it says is believed.

    Each request is a want of its own, decided and committed before the next one is told; one that is rejected is withdrawn.
    """

    def __init__(self, fleet: Fleet, weights: ScorerWeights) -> None:
        policy = SchedulerPolicy(facts_max_age_ms=0, ledger_refresh_ms=0, weights=weights)
        check_policy(policy)
        self._clock = _Clock()
        self._bench = Bench(policy, is_loaded=False)
        self._bench.core = SchedulerCore(policy, self._clock)
        self._bench.load()
        self._slots: list[dict[int, int]] = []
        for number, machine in enumerate(fleet.machines):
            name, topology = f"node-{number:06}", machine.topology
            self._slots.append({zone.zone: slot for slot, zone in enumerate(topology.zones)})
            self._tell(a_node(name, topology))
            self._tell(an_allocatable(name, [(machine.zone_mcpu, machine.zone_bytes)] * machine.zones))
        self._tell(Wake())

    @property
    def seconds(self) -> float:
        """See Placer."""
        return self._clock.seconds

    def place(self, number: int, ask: Ask) -> Spot | None:
        """See Placer."""
        placement_request = a_placement_request(
            f"r{number}/t/0", mcpu=ask.cpu_mcpu, memory_bytes=ask.memory_bytes, queued_at_ms=number
        )
        placements = [*self._tell(PlacementsRequested(placement_requests=(placement_request,))), *self._tell(Wake())]
        if not placements:
            self._withdraw(number)
            return None
        (placement,) = placements
        machine = int(placement.node.rpartition("-")[2])
        slots = self._slots[machine]
        return Spot(machine, tuple(Share(slots[z.zone], z.cpu_mcpu, z.memory_bytes) for z in placement.zones))

    def end(self, number: int, spot: Spot) -> None:
        """See Placer."""
        self._withdraw(number)

    def check(self) -> None:
        """Raise InvariantBroken unless the core's own invariants hold."""
        self._bench.core.check()

    def _withdraw(self, number: int) -> None:
        self._tell(ReplicasWithdrawn(attempts=((f"r{number}/t/0", 1),), reason=Reason.CANCELLED))
        self._tell(Wake())

    def _tell(self, event: Event) -> list[Placement]:
        """Handle an event and what the ledger answers; the placements that were said."""
        reported: list[Placement] = []
        effects = self._bench.core.handle(event, 0)
        while effects:
            following: list[Effect] = []
            for effect in effects:
                if isinstance(effect, Publish):
                    if isinstance(effect.fact, PlacementsDecided):
                        reported += effect.fact.placements
                elif not isinstance(effect, AskPending):
                    answer = self._bench.perform(effect)
                    if answer is not None:
                        following += self._bench.core.handle(answer, 0)  # type: ignore[arg-type]
            effects = following
        return reported
