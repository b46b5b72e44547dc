"""Invariants across services that must hold under any fault, checked on facts, ledger answers and machines as they occur."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import structs

from colo_common.events.enforcement import PlacementRefused, ReplicaEnded, ReplicaStarted
from colo_common.events.eviction import EvictionFinished, EvictionRequested
from colo_common.events.fact import Fact
from colo_common.events.job import (
    JobStateChanged,
    MidPlacementsRequested,
    PlacementsRequested,
    ReplicaChange,
    ReplicasChanged,
    ReplicasWithdrawn,
)
from colo_common.events.node import AllocatableChanged
from colo_common.events.placement import PlacementRejected, PlacementsDecided, PlacementsReleased
from colo_common.events.service import DeadLettered
from colo_common.model.freshness import Freshness
from colo_common.model.invalid import InvariantBroken
from colo_common.model.lifecycle import JOB, REPLICA
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand
from colo_common.model.reasons import Reason
from colo_evictor.policy import EvictorPolicy
from colo_executor.suppress import bounds_mcpu
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.port import Hold, NodeAnswer
from colo_sim.moves import ReplicaMoves
from colo_sim.online_rules import check_online
from colo_sim.world_ledger import WorldLedger
from colo_sim.world_node import ExecutorRole, SimNode

__all__ = ["InvariantChecker"]

Attempt = tuple[str, int]
#: Ticks that the reflex may be late: it acts at its next tick, and a whole step of the lease's decay may lie before that.
_TICKS_LATE: Final = 3
#: From the table's arrival at the executor until no batch work of the node gets any CPU.
_SUSPENDED_WITHIN_MS: Final = 3_000
_LEAVING: Final = (Reason.NODE_DRAINED, Reason.COLOCATION_OFF)


class InvariantChecker:
    """Raises InvariantBroken for the first broken invariant.

    `counts` has the number of checks by kind, so that a run without checks is not taken for proof; `reached` counts states,
    transitions, end causes and refusals. `reported` has, for each attempt, the facts published about its start and end.
    """

    def __init__(self, nodes: Mapping[str, SimNode], ledger: WorldLedger, policy: EvictorPolicy) -> None:
        self.counts: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.job_states: dict[str, str] = {}
        self.placed: dict[Attempt, str] = {}
        self.reported: dict[Attempt, set[str]] = {}
        #: The ledger lost releases, so it may hold places of attempts that are over until they are released again.
        self.has_lost_releases = False
        #: The newest rows of jobs were lost with its process: jobs and replicas may leave a state once more that they had left.
        self.has_lost_jobs = False
        #: The wall clock of a machine was set: times that two starts of a service tell do not compare.
        self.has_set_clocks = False
        #: Jobs came back after all was lost, and attempts run twice for a while: messages and launches are not judged.
        self.has_two_lives = False
        self.moves = ReplicaMoves()
        self._nodes = nodes
        self._ledger = ledger
        self._policy = policy
        self._replicas: dict[str, ReplicaChange] = {}
        self._was_in: set[tuple[str, int, str]] = set()
        self._message_ids: set[str] = set()
        self._queued: set[Attempt] = set()
        self._outlived: set[Attempt] = set()
        self._wanted: dict[Attempt, str] = {}
        self._over: set[Attempt] = set()
        self._committed: set[Attempt] = set()
        self._online: set[str] = set()
        self._evicting: dict[str, EvictionRequested] = {}
        self._last_eviction: dict[str, EvictionRequested] = {}
        self._suspended: dict[str, tuple[ExecutorRole, int, int, dict[Attempt, int]]] = {}

    # ------------------------------------------------------------ facts

    def stored(self, fact: Fact, message_id: str) -> None:
        """Check a newly stored message. A known message id is a copy, published after the duplicate window."""
        if self.has_two_lives:
            return
        if message_id in self._message_ids:
            self.counts["copies"] += 1
            return
        self._message_ids.add(message_id)
        self.counts[type(fact).__name__] += 1
        match fact:
            case PlacementsDecided():
                for placement in fact.placements:
                    self._decided((placement.replica, placement.attempt), placement.node, fact.at_ms)
                    if placement.band is PriorityBand.PROD:
                        self._online.add(placement.replica)
            case ReplicaStarted() | ReplicaEnded() | PlacementRefused():
                self._enforced(fact)
            case PlacementsReleased():
                for release in fact.nodes:
                    for attempt in release.attempts:
                        self._note_reported(attempt, "released")
            case ReplicasWithdrawn():
                for attempt in fact.attempts:
                    self._over.add(attempt)
            case ReplicasChanged():
                for change in fact.changes:
                    self._replica(change)
            case JobStateChanged():
                self._job(fact)
            case PlacementRejected() if fact.newest_over:
                self._outlived.add((fact.replica, fact.newest_over + 1))
            case PlacementsRequested() | MidPlacementsRequested():
                for placement_request in fact.placement_requests:
                    self._placement_request(
                        (placement_request.replica, placement_request.attempt),
                        f"{placement_request.request} {placement_request.queued_at_ms}",
                    )
            case EvictionRequested():
                self._evict(fact)
            case EvictionFinished():
                self._evicted(fact)
            case AllocatableChanged():
                self._allocatable(fact)
            case DeadLettered() if ".cmd.node." in fact.subject and "generation: " in fact.reason:
                # An order that comes again after one of a later holder of the node: the node refuses it, as it should.
                self.counts["fenced_orders"] += 1
            case DeadLettered():
                raise InvariantBroken("a message of our own was dead-lettered", dead_letter=fact)
            case _:
                # No invariant is about the other facts.
                pass

    def _decided(self, attempt: Attempt, node: str, at_ms: int) -> None:
        if attempt not in self.placed:
            self.moves.placed(attempt[0], node, at_ms)
        before = self.placed.setdefault(attempt, node)
        if before != node:
            raise InvariantBroken("an attempt was placed twice", attempt=attempt, first=before, then=node)

    def _enforced(self, fact: ReplicaStarted | ReplicaEnded | PlacementRefused) -> None:
        attempt = (fact.replica, fact.attempt)
        self._note_reported(attempt, type(fact).__name__)
        if not isinstance(fact, ReplicaStarted):
            self._over.add(attempt)
            why = fact.cause if isinstance(fact, ReplicaEnded) else fact.reason
            self.reached[f"{type(fact).__name__} {why.value}"] += 1
        elif self.placed.get(attempt) != fact.node and attempt in self.placed:
            raise InvariantBroken("an attempt runs elsewhere than it was placed", attempt=attempt, node=fact.node)

    def _note_reported(self, attempt: Attempt, what: str) -> None:
        self.reported.setdefault(attempt, set()).add(what)

    def _replica(self, fact: ReplicaChange) -> None:
        last = self._replicas.get(fact.replica)
        state = REPLICA.initial if last is None else last.state
        was_there = (fact.replica, fact.attempt, fact.previous) in self._was_in
        self._was_in.add((fact.replica, fact.attempt, fact.state))
        if self.has_lost_jobs and (last is None or fact.attempt >= last.attempt or was_there):
            # What a store lost is moved, and published, once more, by the same way or another one: also the end of an attempt that
            # a newer one had followed.
            self._replicas[fact.replica] = fact
            return
        if fact.previous != state:
            raise InvariantBroken(
                "a replica leaves a state that it is not in", replica=fact.replica, is_in=state, leaves=fact.previous
            )
        attempt = 1 if last is None else last.attempt
        if fact.attempt not in (attempt, attempt + 1) or (fact.attempt > attempt and fact.state != REPLICA.initial):
            raise InvariantBroken("attempts do not go up one by one", replica=fact.replica, last=last, fact=fact)
        if fact.state == REPLICA.initial:
            if (fact.replica, fact.attempt) in self._queued:
                raise InvariantBroken("an attempt was queued twice", replica=fact.replica, attempt=fact.attempt)
            self._queued.add((fact.replica, fact.attempt))
        self._replicas[fact.replica] = fact
        self.reached[f"replica {fact.state}"] += 1
        self.reached[f"replica transition {fact.transition}"] += 1

    def _job(self, fact: JobStateChanged) -> None:
        state = self.job_states.get(fact.job, JOB.initial)
        if fact.previous != state and not self.has_lost_jobs:
            raise InvariantBroken("a job leaves a state that it is not in", job=fact.job, is_in=state, fact=fact)
        if state in JOB.terminal:
            raise InvariantBroken("an ended job goes on", job=fact.job, fact=fact)
        self.job_states[fact.job] = fact.state
        self.reached[f"job {fact.state}"] += 1
        self.reached[f"job transition {fact.transition}"] += 1

    def _placement_request(self, attempt: Attempt, what: str) -> None:
        if self.has_lost_jobs:
            return
        if attempt in self._outlived:
            # The ones below were used before, and their ends were lost: it is no next attempt of a replica that failed.
            self._outlived.discard(attempt)
            self._queued.add(attempt)
            if (last := self._replicas.get(attempt[0])) is not None:
                self._replicas[attempt[0]] = structs.replace(last, attempt=attempt[1])
        if attempt[1] > 1 and attempt not in self._queued:
            raise InvariantBroken("an attempt is wanted that was never queued", attempt=attempt)
        if self._wanted.setdefault(attempt, what) != what:
            raise InvariantBroken("an attempt is wanted in two ways", attempt=attempt, first=self._wanted[attempt])

    # ------------------------------------------------------------ evictions

    def _evict(self, fact: EvictionRequested) -> None:
        if fact.replica in self._online and fact.reason is not Reason.NODE_DRAINED:
            raise InvariantBroken("online work is evicted for its own sake", fact=fact)
        in_flight = self._evicting.get(fact.node)
        if in_flight is not None:
            raise InvariantBroken("a node has two victims in flight", node=fact.node, first=in_flight, then=fact)
        self._evicting[fact.node] = fact
        self.counts[f"evicted {fact.reason.value}"] += 1
        if fact.reason in _LEAVING:
            # By an operator's will: the cool-downs are between evictions by pressure.
            return
        last = self._last_eviction.get(fact.node)
        if last is not None and self.has_set_clocks and last.boot_id != fact.boot_id:
            last = None
        if last is not None and fact.at_ms < last.at_ms + self._cool_ms(last.reason):
            raise InvariantBroken("a node was not given its cool-down", node=fact.node, last=last, then=fact)
        self._last_eviction[fact.node] = fact

    def _evicted(self, fact: EvictionFinished) -> None:
        in_flight = self._evicting.pop(fact.node, None)
        if in_flight is None or in_flight.eviction != fact.eviction:
            raise InvariantBroken("an eviction ends that is not in flight", fact=fact, in_flight=in_flight)

    def _cool_ms(self, reason: Reason) -> int:
        return {
            Reason.MEMORY_WATERMARK: self._policy.memory_cool_ms,
            Reason.CPU_WATERMARK: self._policy.cpu_cool_ms,
            Reason.CPU_SATISFACTION: self._policy.satisfaction_cool_ms,
            Reason.ONLINE_STALLED: self._policy.stall_cool_ms,
            Reason.ONLINE_SLO_BROKEN: self._policy.slo_cool_ms,
        }[reason]

    # ------------------------------------------------------------ promises

    def _allocatable(self, fact: AllocatableChanged) -> None:
        sums = (sum(zone.batch_cpu_mcpu for zone in fact.zones), sum(zone.batch_memory_bytes for zone in fact.zones))
        if sums != (fact.batch_cpu_mcpu, fact.batch_memory_bytes):
            raise InvariantBroken("zones do not sum to the node", fact=fact)
        for zone in fact.zones:
            if zone.batch_cpu_mcpu < 0 or zone.batch_memory_bytes < 0:
                raise InvariantBroken("a negative promise", fact=fact)

    def promised(self, fact: AllocatableChanged, held: Mapping[int, ZoneShare]) -> None:
        """Check a promise before it is published: no zone is promised less than is known to be held, or than it has."""
        self.counts["promises"] += 1
        zones = {zone.zone: zone for zone in fact.zones}
        there = {zone.zone: zone for zone in self._nodes[fact.node].machine.spec.topology().zones}
        for zone, share in held.items():
            promise = zones[zone]
            cpu_mcpu = min(share.cpu_mcpu, there[zone].cpu_capacity_mcpu)
            if promise.batch_cpu_mcpu < cpu_mcpu or promise.batch_memory_bytes < min(
                share.memory_bytes, there[zone].memory_bytes
            ):
                raise InvariantBroken("less is promised than is held", node=fact.node, zone=promise, held=share)

    def committed(self, core: SchedulerCore, answers: Sequence[NodeAnswer]) -> None:
        """Check a commit: in each zone with a new hold, all holds fit the allocatable that the scheduler knows."""
        for answer in answers:
            # A call repeated after a lost answer writes nothing.
            accepted = set(answer.accepted) - self._committed
            if not accepted:
                continue
            self._committed |= accepted
            self.counts["commits"] += 1
            known = core.cluster.node(answer.node)
            if known.allocatable is None or known.freshness is not Freshness.FRESH:
                raise InvariantBroken("something was placed on a node that is not fresh", node=answer.node)
            (row,) = [row for row in self._ledger.all_rows() if row.node == answer.node]
            if known.topology is not None:
                placements = [reservation.placement for reservation in row.holds]
                self.counts["online_held"] += check_online(answer.node, known.topology, placements)
            # Online work takes of the machine itself, not of what other work is promised.
            self._check_promised(
                answer.node,
                {zone.zone: (zone.batch_cpu_mcpu, zone.batch_memory_bytes) for zone in known.allocatable.zones},
                [r for r in row.holds if r.placement.band in (PriorityBand.BATCH, PriorityBand.FREE)],
                accepted,
            )
            self._check_promised(
                answer.node,
                {zone.zone: (zone.cpu_mcpu, zone.memory_bytes) for zone in known.allocatable.mid},
                [r for r in row.holds if r.placement.band is PriorityBand.MID],
                accepted,
            )

    def _check_promised(
        self, node: str, promised: Mapping[int, tuple[int, int]], holds: Sequence[Hold], accepted: Collection[Attempt]
    ) -> None:
        """Where something was added, a tier holds no more than it is promised: mcpu and bytes of each zone."""
        if self.has_lost_releases:
            holds = [r for r in holds if r.attempt not in self._over]
        new = {share.zone for r in holds if r.attempt in accepted for share in r.placement.zones}
        for zone in sorted(new):
            shares = [s for r in holds for s in r.placement.zones if s.zone == zone]
            held = (sum(share.cpu_mcpu for share in shares), sum(share.memory_bytes for share in shares))
            if any(more > most for more, most in zip(held, promised.get(zone, (0, 0)), strict=True)):
                raise InvariantBroken(
                    "more is held than may be promised",
                    node=node,
                    zone=zone,
                    promised=promised.get(zone),
                    cpu_mcpu=held[0],
                    memory_bytes=held[1],
                )

    # ------------------------------------------------------------ machines

    def launched(self, node: SimNode, replica: str, attempt: int) -> None:
        """Check a launch: an attempt runs once, and another attempt of the replica runs only if the older one is over."""
        if self.has_two_lives:
            return
        self.counts["launches"] += 1
        self.counts["online_launches"] += replica in self._online
        if self.placed.get((replica, attempt)) != node.name:
            raise InvariantBroken("something runs where it was not placed", node=node.name, replica=replica)
        for name, other in sorted(self._nodes.items()):
            if other is node:
                continue
            for found in other.machine.counters().replicas:
                if found.replica != replica:
                    continue
                if found.attempt == attempt:
                    raise InvariantBroken("an attempt lives twice", replica=replica, attempt=attempt, on=name)
                older = min(found.attempt, attempt)
                if (replica, older) not in self._over:
                    raise InvariantBroken("a replica runs twice though its node was not lost", replica=replica, on=name)
                # An order from before the loss may be carried out after it, until the executor receives the order to stop.
                self.counts["late_launches" if attempt == older else "overlaps"] += 1

    def ticked(self, node: SimNode, role: ExecutorRole) -> None:
        """Check that a node without a lease renewal has its batch quota at the floor in time, and that suspended work stops."""
        self._stands_still(node, role)
        reflex, lease = role.reflex, role.policy.lease
        quota_mcpu = node.machine.batch_quota_mcpu
        if reflex is None or quota_mcpu is None:
            return
        capacity_mcpu = node.machine.spec.cpu_capacity_mcpu
        steps = -(-100 // lease.step_pct) + _TICKS_LATE
        end_ms = role.renewed_at_ms + role.lease_ms + lease.hold_ms + steps * lease.step_interval_ms
        floor_mcpu, cap_mcpu = bounds_mcpu(role.policy.suppress, capacity_mcpu)
        if role.clock.now_ms() > end_ms:
            self.counts["lease_ended"] += 1
            if quota_mcpu > floor_mcpu:
                raise InvariantBroken("batch is above the floor without a lease", node=node.name, quota=quota_mcpu)
        elif quota_mcpu > cap_mcpu:
            raise InvariantBroken("batch is above the cap", node=node.name, quota=quota_mcpu)

    def _stands_still(self, node: SimNode, role: ExecutorRole) -> None:
        now_ms = role.clock.now_ms()
        if role.core.suspension.restrictions.suspension_of(node.name) is None:
            self._suspended.pop(node.name, None)
            return
        revision = role.core.suspension.restrictions.revision
        known = self._suspended.get(node.name)
        # Between two looks a table may have let the work run, and the next one have suspended it again.
        if known is None or known[0] is not role or known[1] != revision:
            known = self._suspended[node.name] = (role, revision, now_ms, {})
        _, _, since_ms, used_ns = known
        if now_ms - since_ms < _SUSPENDED_WITHIN_MS:
            return
        self.counts["suspended"] += 1
        for one in node.machine.counters().replicas:
            # What must leave runs on, so that it hears the signal.
            if one.is_stopping or one.replica in self._online:
                continue
            before_ns = used_ns.setdefault((one.replica, one.attempt), one.usage_ns)
            if one.usage_ns > before_ns:
                raise InvariantBroken("suspended batch work runs", node=node.name, replica=one.replica)
