"""Running totals of the facts on the lab's bus: the figures of the screen and of the verdict."""

from collections import Counter, deque
from typing import Final

from msgspec import Struct

from colo_common.events.enforcement import EnforcementChanged, ReplicaEnded
from colo_common.events.eviction import EvictionFinished, EvictionRequested
from colo_common.events.fact import Fact
from colo_common.events.fact_text import tells_of_freeze, zones_text
from colo_common.events.job import JobStateChanged, JobSubmitted
from colo_common.events.node import AllocatableChanged, FreshnessChanged, NodeTopologyReported, NodeUsageSampled
from colo_common.events.placement import PlacementRejected, PlacementsDecided
from colo_common.events.service import DeadLettered
from colo_common.model.freshness import Freshness
from colo_common.model.percentile import percentile
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.slo import OnlineViolation, worst_online_violation

__all__ = ["FINAL_STATES", "LabObserver", "NodeView"]

_LATENCIES_MAX: Final = 200_000
_EVENTS_SHOWN: Final = 8
FINAL_STATES: Final = frozenset({"Completed", "Failed", "Terminated"})


class NodeView(Struct, kw_only=True):
    """One node's newest numbers. `online_mcpu` is use without batch work."""

    capacity_mcpu: int = 0
    used_mcpu: int = 0
    batch_mcpu: int = 0
    allocatable_mcpu: int = 0
    ceiling_mcpu: int | None = None
    simulated: bool = True
    has_devices: bool = False
    sampled_at_ms: int = 0


class LabObserver:
    """Totals of all facts that `see` received. Integrals are over simulated time, sample by sample."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeView] = {}
        self.counts: Counter[str] = Counter()
        self.messages = 0
        self.jobs: dict[str, str] = {}
        self.capacity_mcpu_ms = 0
        self.used_mcpu_ms = 0
        self.batch_mcpu_ms = 0
        self.placements = 0
        self.ends: Counter[str] = Counter()
        self._places: dict[str, tuple[str, tuple[ZoneShare, ...]]] = {}
        self.redelivered = 0
        #: The highest violation rate of online latency that a sample told, and its node.
        self.violation: tuple[str, OnlineViolation] | None = None
        self.stale = 0
        self.lost = 0
        self.placed_twice: list[str] = []
        self.event_log: deque[str] = deque(maxlen=_EVENTS_SHOWN)
        self.first_placement_us: int | None = None
        self._submitted_us: dict[str, int] = {}
        self._replicas: dict[str, int] = {}
        self._decided: set[str] = set()
        self._latencies_ms: deque[float] = deque(maxlen=_LATENCIES_MAX)

    def submitted(self, job: str, at_us: int, replicas: int = 1) -> None:
        """Note that the lab submitted a job of equal replicas at that wall time (us)."""
        self._submitted_us[job] = at_us
        self._replicas[job] = replicas

    def latencies_ms(self) -> list[float]:
        """Submit -> first decision (placed or rejected) of each replica, ascending."""
        return sorted(self._latencies_ms)

    def latency_ms(self, pct: int) -> float:
        """A percentile of `latencies_ms`; 0.0 before the first decision."""
        return percentile(self._latencies_ms, pct) if self._latencies_ms else 0.0

    def see(self, fact: Fact) -> None:
        """Count one message."""
        self.messages += 1
        self.counts[type(fact).__name__] += 1
        match fact:
            case NodeUsageSampled():
                self._sampled(fact)
            case PlacementsDecided():
                self._decided_now(fact)
            case PlacementRejected():
                self._rejected(fact)
            case NodeTopologyReported():
                view = self._view(fact.node)
                view.capacity_mcpu = fact.topology.cpu_capacity_mcpu
                view.simulated = fact.simulated
                view.has_devices = bool(fact.topology.devices)
            case AllocatableChanged():
                self._view(fact.node).allocatable_mcpu = fact.batch_cpu_mcpu
            case JobStateChanged():
                self.jobs[fact.job] = fact.state
                if fact.state in FINAL_STATES:
                    self._submitted_us.pop(fact.job, None)
                    self._replicas.pop(fact.job, None)
            case ReplicaEnded():
                self._ended(fact)
            case _:
                self._note(fact)

    def oldest_sample_ms(self, now_ms: int) -> int:
        """The age of the oldest newest sample of the simulated nodes; 0 before the first sample."""
        sampled = [view.sampled_at_ms for view in self.nodes.values() if view.simulated and view.sampled_at_ms]
        return max(now_ms - min(sampled), 0) if sampled else 0

    def state_counts(self) -> Counter[str]:
        """Jobs by state."""
        return Counter(self.jobs.values())

    def _note(self, fact: Fact) -> None:
        match fact:
            case JobSubmitted():
                self.jobs.setdefault(fact.job, "Pending")
            case EnforcementChanged() if not fact.observed:
                self._view(fact.node).ceiling_mcpu = fact.ceiling_mcpu
                if tells_of_freeze(fact):
                    state = "frozen" if fact.frozen else "no longer frozen"
                    self.event_log.append(f"{fact.node}: batch work {state} ({fact.reason.value})")
                    return
                before, after = fact.ceiling_before_mcpu / 1000, fact.ceiling_mcpu / 1000
                zones = f", {zones_text(fact.zones, fact.zone_terms)}" if fact.zones else ""
                self.event_log.append(
                    f"{fact.node}: batch ceiling {before:.1f} -> {after:.1f} CPU{zones} ({fact.reason.value})"
                )
            case EvictionRequested():
                sign = "<" if fact.reason is Reason.CPU_SATISFACTION else ">="
                level = f"{fact.reason.value} {fact.value_pct}% {sign} {fact.threshold_pct}%"
                self.event_log.append(f"{fact.node}: evict {fact.replica}: {level}")
            case EvictionFinished():
                self.event_log.append(f"{fact.node}: {fact.replica} left after {fact.took_ms / 1000:.1f} simulated s")
            case FreshnessChanged():
                self.stale += fact.freshness is Freshness.STALE
                self.lost += fact.freshness is Freshness.LOST
            case DeadLettered():
                self.event_log.append(f"dead letter in {fact.service}: {fact.reason}")
            case _:
                return

    def _sampled(self, sample: NodeUsageSampled) -> None:
        view = self._view(sample.node)
        batch = sum(w.cpu_used_mcpu for w in sample.workloads if w.band in (PriorityBand.BATCH, PriorityBand.FREE))
        view.used_mcpu, view.batch_mcpu, view.sampled_at_ms = sample.cpu_used_mcpu, batch, sample.at_ms
        self.capacity_mcpu_ms += view.capacity_mcpu * sample.interval_ms
        self.used_mcpu_ms += sample.cpu_used_mcpu * sample.interval_ms
        self.batch_mcpu_ms += batch * sample.interval_ms
        worst = worst_online_violation(sample.workloads)
        if worst is not None and (self.violation is None or worst.violation_ratio > self.violation[1].violation_ratio):
            self.violation = sample.node, worst

    def _decided_now(self, fact: PlacementsDecided) -> None:
        if self.first_placement_us is None:
            self.first_placement_us = fact.sent_us
        for placement in fact.placements:
            key = f"{placement.replica}#{placement.attempt}"
            place = (placement.node, placement.zones)
            before = self._places.setdefault(key, place)
            if before is not place:
                # A restarted scheduler redelivers placements that no executor has confirmed.
                if before == place:
                    self.redelivered += 1
                else:
                    self.placed_twice.append(key)
                continue
            self.placements += 1
            self._latency(placement.replica, placement.job, placement.attempt, fact.sent_us)

    def _rejected(self, fact: PlacementRejected) -> None:
        """Count a rejection for all replicas of its job, because they have equal requests."""
        stem = fact.replica.rpartition("/")[0]
        for index in range(self._replicas.get(fact.job, 0)):
            self._latency(f"{stem}/{index}", fact.job, fact.attempt, fact.sent_us)

    def _latency(self, replica: str, job: str, attempt: int, decided_us: int) -> None:
        """Note the latency of the first decision about the first attempt; later decisions answer no submission."""
        submitted_us = self._submitted_us.get(job)
        if attempt != 1 or replica in self._decided or submitted_us is None:
            return
        self._decided.add(replica)
        self._latencies_ms.append(max(decided_us - submitted_us, 0) / 1000)

    def _ended(self, fact: ReplicaEnded) -> None:
        done = fact.cause is EndCause.EXITED and fact.exit_code == 0
        self.ends["succeeded" if done else fact.cause.value] += 1

    def _view(self, node: str) -> NodeView:
        return self.nodes.setdefault(node, NodeView())
