"""What many worlds reached together, and what none of them did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import get_args

from colo_common.events.registry import EVENTS
from colo_common.model.lifecycle import JOB, REPLICA
from colo_common.model.reasons import EndCause
from colo_sim.faults import FaultKind, NetworkFaults
from colo_sim.world import Outcome


class Coverage:
    """Counters of all worlds, added up."""

    def __init__(self) -> None:
        self.worlds = 0
        self.simulated_ms = 0
        self._reached: Counter[str] = Counter()

    def add(self, outcome: Outcome) -> None:
        """One more world."""
        self.worlds += 1
        self.simulated_ms += outcome.simulated_ms
        self._reached.update(outcome.reached)
        self._reached.update({f"judged {what}": count for what, count in outcome.judged.items()})

    def missing(self) -> list[str]:
        """What a world can reach and none did."""
        return sorted(set(possible()) - {what for what, count in self._reached.items() if count})

    def lines(self) -> list[str]:
        """A line for each kind of thing, and one for what was never reached."""
        counted = sorted(self._reached.items(), key=lambda item: (_group(item[0]), -item[1], item[0]))
        lines = [f"{self.worlds} worlds, {self.simulated_ms / 3_600_000:.1f} h of virtual time"]
        for group, found in groupby(counted, key=lambda item: _group(item[0])):
            lines.append(f"{group}: " + ", ".join(f"{what[len(group) + 1 :]} {count}" for what, count in found))
        lines.append("never reached: " + (", ".join(self.missing()) or "nothing"))
        return lines


def possible() -> Iterable[str]:
    """Faults, network faults, durable facts, states, transitions and ends, as they are counted."""
    yield from (f"fault {kind}" for kind in get_args(FaultKind))
    yield from (f"network_faults {name}" for name in NetworkFaults.__struct_fields__ if not name.endswith("_ms"))
    yield from (f"judged {event.body.__name__}" for event in EVENTS if event.stream is not None)
    yield from (f"ReplicaEnded {cause.value}" for cause in EndCause)
    for machine in (JOB, REPLICA):
        yield from (f"{machine.name} {state.name}" for state in machine.states if state.name != machine.initial)
        yield from (f"{machine.name} transition {transition.id}" for transition in machine.transitions)


def _group(what: str) -> str:
    for group in ("replica transition", "job transition", "died before"):
        if what.startswith(group):
            return group
    return what.split(maxsplit=1)[0]
