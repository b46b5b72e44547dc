"""The evictor core: takes samples and placements, and orders at most one eviction at a time on each node."""

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from typing import assert_never

import msgspec

from colo_common.events.effects import BusReachable, Conflict, Effect, Publish, Record, StoreLost, Wake, Write
from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.eviction import (
    EvictionFinished,
    EvictionRequested,
    EvictReplica,
    NodeDrained,
    VictimRank,
)
from colo_common.events.node import FreshnessChanged, NodeTopologyReported, NodeUsageSampled
from colo_common.events.placement import PlacementsDecided, PlacementsReleased
from colo_common.events.policy import PolicyChanged
from colo_common.events.requests import HoldEntry, HoldsListed
from colo_common.events.restriction import RestrictionsChanged
from colo_common.events.undecoded import Undecoded
from colo_common.model.audit import Audit
from colo_common.model.colocation import admits_batch
from colo_common.model.colocation_rules import ruled
from colo_common.model.freshness import FORGET_NODE_MS, Freshness
from colo_common.model.holds_gate import HoldsGate
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.partition import Partitions, PartitionsHeld, partition_of
from colo_common.model.placement import attempt_key
from colo_common.model.reasons import EndCause
from colo_common.model.received_fences import ReceivedFences
from colo_common.model.restriction import Restrictions
from colo_evictor.budget import WINDOW_MS, Budget
from colo_evictor.drains import Drain, drain_of, rank_leaving
from colo_evictor.followed_thresholds import FollowedThresholds
from colo_evictor.policy import EvictorPolicy
from colo_evictor.shared_budget import SharedBudget
from colo_evictor.signals import Level, Signal, levels
from colo_evictor.stored import (
    ROW_KIND,
    BudgetLoaded,
    BudgetRecorded,
    EvictorRowReloaded,
    EvictorRowsLoaded,
    LoadEvictorRows,
    ReloadBudget,
    ReloadEvictorRow,
    StoredNode,
)
from colo_evictor.stored_times import by_this_clock
from colo_evictor.victims import rank_victims
from colo_evictor.watched import BATCH_BANDS, EvictorRow, TerminatingReplica, WatchedNode

__all__ = ["Event", "EvictorCore"]

_NODES_MAX = 50_000
_DRAIN_RETRY_MS = 1_000
_RANKING_MAX = 20
# About 2 ms.
_CHECKED_AT_ONCE = 20_000
_PIECE = 1_000
# What waited on the bus while it was away is heard in this time.
_RECEIVED_MS = 5_000
# The scheduler may have answered from a view that does not contain younger holds yet.
_YOUNG_MS = 60_000


def eviction_id(*parts: str | int) -> str:
    """The id of an eviction: "ev-" and ten hex digits, the same for the same node, cause (a sample or a drain) and attempt."""
    text = ":".join(map(str, parts))
    return f"ev-{blake2b(text.encode(), digest_size=5).hexdigest()}"


Event = (
    NodeTopologyReported
    | NodeUsageSampled
    | Undecoded
    | FreshnessChanged
    | PlacementsDecided
    | PlacementsReleased
    | ReplicaEnded
    | RestrictionsChanged
    | PolicyChanged
    | HoldsListed
    | EvictorRowsLoaded
    | EvictorRowReloaded
    | EvictionRequested
    | PartitionsHeld
    | BudgetLoaded
    | BudgetRecorded
    | Conflict
    | StoreLost
    | BusReachable
    | Wake
)


class EvictorCore:
    """Keeps for each node its placements, the holds of its signals, its terminating victims and its cool-down.

    Where several instances share the work, each knows what is placed on all nodes, and evicts on those of the partitions that it
    holds; victims and cool-downs of a node come with its row when it changes hands. Of the samples of other nodes the newest is
    kept undecoded: the holds of a node's signals begin with it when the node comes here.
    """

    def __init__(
        self,
        policy: EvictorPolicy,
        forget_node_ms: int = FORGET_NODE_MS,
        *,
        needs_holds: bool = False,
        partitions: int = 0,
    ) -> None:
        """A node that has been lost for `forget_node_ms` and has no placement and no victim is forgotten (0: never).

        `needs_holds`: nothing is evicted before the scheduler has listed what is held. `partitions` 0: the work is not shared.
        """
        self.partitions = Partitions(partitions)
        # Partitions that are held and whose rows are still to be read.
        self._unread: set[int] = set()
        policy.validate()
        self.policy = policy
        self._thresholds = FollowedThresholds(policy)
        self.nodes: dict[str, WatchedNode] = {}
        self.budget = Budget(policy.cluster_per_minute)
        self._shared = SharedBudget(self.budget) if partitions else None
        self._holds = HoldsGate(is_open=not needs_holds)
        self.conflicts = 0
        self.too_many_nodes = 0
        self._forget_ms = forget_node_ms
        # The time since which a node is lost, or is known only from placements; the longest first.
        self._lost_since: OrderedDict[str, int] = OrderedDict()
        self._fences = ReceivedFences()
        self.restrictions = Restrictions()
        self._drain_at_ms: int | None = None
        # Since when nothing that happens on a node can be heard; None: it can.
        self._deaf_since_ms: int | None = None
        self._now_ms = 0
        self._audit = Audit(self._pieces, _CHECKED_AT_ONCE)

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event and return its effects. Raises InvalidInput for a topology that breaks a rule."""
        self._now_ms = now_ms
        match event:
            case NodeUsageSampled() | Undecoded():
                return self._sample_came(event, now_ms)
            case PlacementsDecided():
                for placement in event.placements:
                    self._node(placement.node).placed.take(HoldEntry.of(placement), now_ms)
                return []
            case PlacementsReleased():
                for release in event.nodes:
                    for replica, attempt in release.attempts:
                        self._node(release.node).placed.drop(attempt_key(replica, attempt))
                return [effect for release in event.nodes for effect in self._drain(release.node, now_ms)]
            case RestrictionsChanged():
                if not self.restrictions.take(event.revision, event.restrictions, now_ms):
                    return []
                return self._drain_all(now_ms)
            case PolicyChanged():
                self._thresholds.follow(event, self.nodes.values())
                return []
            case ReplicaEnded():
                return self._ended(event, now_ms)
            case NodeTopologyReported():
                event.topology.validate()
                node = self._node(event.node)
                node.topology = event.topology
                self._thresholds.give(node, event.labels)
                is_open = admits_batch(event.labels, event.rules)
                node.withdrawn_by = "a rule of colocation" if is_open else "the node's label"
                if is_open and ruled(event.rules, event.labels, self.policy.colocation).is_colocated:
                    node.withdrawn_ms = None
                elif node.withdrawn_ms is None:
                    node.withdrawn_ms = now_ms
                return self._drain(event.node, now_ms)
            case FreshnessChanged():
                if self._fences.admits(event.node, event.fence, now_ms):
                    self._freshness(event, now_ms)
                return []
            case HoldsListed():
                return self._listed(event, now_ms)
            case EvictorRowsLoaded():
                return self._load(event, now_ms)
            case StoreLost():
                return self._put_back()
            case EvictorRowReloaded():
                self._take_row(event.node, event.stored, now_ms)
                return self._already_ended(event.node, now_ms)
            case EvictionRequested():
                # Of another instance: the holds of its signals end there as well.
                if not self._owns(event.node):
                    self._node(event.node).signals.clear()
                return []
            case PartitionsHeld():
                return self._held_now(event)
            case BudgetLoaded() | BudgetRecorded():
                return self._budget_known(event, now_ms)
            case Conflict():
                return self._refused(event)
            case BusReachable():
                return self._hears(event.is_reachable, now_ms)
            case Wake():
                is_retry = self._drain_at_ms is not None and self._drain_at_ms <= now_ms
                drained = self._drain_all(now_ms) if self.restrictions.expire(now_ms) or is_retry else []
                return [*self._overdue(now_ms), *drained, *self._forget(now_ms)]
            case _:
                assert_never(event)

    def deadline_ms(self) -> int | None:
        """When the first victim is overdue, a lost node is to be forgotten, a drain goes on, or a restriction is over.

        While the bus is away no victim is overdue.
        """
        due = [
            victim.due_ms
            for name, node in self.nodes.items()
            if node.terminating and self._deaf_since_ms is None and self._owns(name)
            for victim in node.terminating.values()
        ]
        if self._lost_since and self._forget_ms:
            due.append(next(iter(self._lost_since.values())) + self._forget_ms)
        due.extend(at for at in (self._drain_at_ms, self.restrictions.deadline_ms()) if at is not None)
        return min(due, default=None)

    def check(self) -> None:
        """Raise InvariantBroken when a node has more than one terminating victim.

        With more than 20,000 nodes one call checks a part of them, all in turn, because it delays the next event.
        """
        self._audit.check(len(self.nodes))

    def _pieces(self) -> Iterator[int]:
        names = list(self.nodes)
        for start in range(0, len(names), _PIECE):
            for name in names[start : start + _PIECE]:
                node = self.nodes.get(name)
                if node is not None and len(node.terminating) > 1:
                    raise InvariantBroken("a node has more than one victim on its way out", node=name)
            yield _PIECE

    def _freshness(self, event: FreshnessChanged, now_ms: int) -> None:
        node = self._node(event.node)
        if event.freshness is not Freshness.FRESH:
            node.signals.clear()
        if event.freshness is not Freshness.LOST:
            self._lost_since.pop(event.node, None)
        elif event.node in self.nodes and event.node not in self._lost_since:
            self._lost_since[event.node] = now_ms

    def _sample_came(self, event: NodeUsageSampled | Undecoded, now_ms: int) -> list[Effect]:
        """Decode and take a sample of an own node. Of another one the newest is kept as it came."""
        node = self.nodes.get(event.node)
        if node is None or node.topology is None:
            return []
        if self._owns(event.node):
            sample = event.decoded() if isinstance(event, Undecoded) else event
            return self._sampled(sample, node, now_ms) if isinstance(sample, NodeUsageSampled) else []
        node.unread, node.unread_ms = event, now_ms
        self._lost_since.pop(event.node, None)
        return []

    def _sampled(self, sample: NodeUsageSampled, node: WatchedNode, now_ms: int) -> list[Effect]:
        if sample.boot_id == node.boot_id and sample.sample_seq <= node.sample_seq:
            return []
        self._lost_since.pop(sample.node, None)
        node.unread = None
        held, credited = self._feed(node, sample, now_ms)
        if not held:
            return self._drain(sample.node, now_ms)
        if node.terminating or now_ms < node.cool_until_ms or not self._holds.is_open:
            return []
        level, held_ms = held[0]
        return self._evict(node, sample, level, held_ms, credited, now_ms)

    def _feed(
        self, node: WatchedNode, sample: NodeUsageSampled, now_ms: int
    ) -> tuple[list[tuple[Level, int]], tuple[int, int]]:
        """Let the signals see a sample that arrived at `now_ms`: those that were high for long enough, and what is credited."""
        if node.topology is None:
            return [], (0, 0)
        node.boot_id, node.sample_seq = sample.boot_id, sample.sample_seq
        node.seen = {attempt_key(w.replica, w.attempt): w for w in sample.workloads if w.replica}
        credited = (
            sum(victim.cpu_mcpu for victim in node.terminating.values()),
            sum(victim.memory_bytes for victim in node.terminating.values()),
        )
        readings = levels(
            node.topology, sample, credited, node.batch_cpu(sample, self.restrictions), node.policy or self.policy
        )
        held = [
            (level, held_ms)
            for level in readings
            if (held_ms := node.signals.setdefault(level.reason, Signal()).feed(level, now_ms, self.policy.gap_ms))
            is not None
            and level.high
            and held_ms >= level.hold_ms
        ]
        return held, credited

    def _read(self, node: WatchedNode) -> None:
        """Look into the newest sample that came while another instance acted for the node. It orders nothing by itself."""
        unread, node.unread = node.unread, None
        # What was seen when the node was here last says nothing of how long a signal is high.
        node.signals.clear()
        if unread is None:
            return
        try:
            sample = unread.decoded() if isinstance(unread, Undecoded) else unread
        except InvalidInput:
            return
        if isinstance(sample, NodeUsageSampled):
            self._feed(node, sample, node.unread_ms)

    def _evict(
        self,
        node: WatchedNode,
        sample: NodeUsageSampled,
        level: Level,
        held_ms: int,
        credited: tuple[int, int],
        now_ms: int,
    ) -> list[Effect]:
        ranking = rank_victims(sample.workloads, node.placed.holds, node.terminating, level.reason, now_ms)
        if not ranking or not self._may_spend(now_ms):
            return []
        victim = ranking[0]
        key = attempt_key(victim.replica, victim.attempt)
        usage = next(w for w in sample.workloads if w.replica == victim.replica and w.attempt == victim.attempt)
        placement = node.placed.get(key)
        eviction = eviction_id(sample.node, sample.boot_id, sample.sample_seq, key)
        grace_ms = min(placement.grace_ms, self.policy.grace_ms) if placement else self.policy.grace_ms
        node.cool_until_ms = now_ms + level.cool_ms
        node.signals.clear()
        requested = EvictionRequested(
            at_ms=now_ms,
            eviction=eviction,
            node=sample.node,
            replica=victim.replica,
            job=victim.replica.split("/", 1)[0],
            attempt=victim.attempt,
            reason=level.reason,
            value_pct=level.value_pct,
            threshold_pct=level.threshold_pct,
            held_ms=held_ms,
            sample_seq=sample.sample_seq,
            ranking=ranking[:_RANKING_MAX],
            hold_ms=level.hold_ms,
            cool_ms=level.cool_ms,
            grace_ms=grace_ms,
            credited_mcpu=credited[0],
            credited_bytes=credited[1],
            candidates=len(ranking),
            online_replicas=sum(1 for w in sample.workloads if w.replica and w.band not in BATCH_BANDS),
            evictions_in_window=len(self.budget),
            evictions_allowed=self.budget.per_minute,
            asked_by="evictor",
            stall_group=level.stall_group,
            stall_pct=level.value_pct if level.stall_group else 0,
            slo_workload=level.slo_workload,
            violation_pct=level.value_pct if level.slo_workload else 0,
        )
        return self._order(requested, node, usage.cpu_used_mcpu, usage.memory_used_bytes)

    def _order(self, requested: EvictionRequested, node: WatchedNode, cpu_mcpu: int, memory_bytes: int) -> list[Effect]:
        """Order the replica to leave, and credit what it uses until it has. The record, the fact and the order say the same."""
        key = attempt_key(requested.replica, requested.attempt)
        placement = node.placed.get(key)
        node.terminating[key] = TerminatingReplica(
            eviction=requested.eviction,
            replica=requested.replica,
            attempt=requested.attempt,
            cpu_mcpu=cpu_mcpu,
            memory_bytes=memory_bytes,
            requested_at_ms=requested.at_ms,
            due_ms=requested.at_ms + requested.grace_ms + self.policy.overdue_ms,
        )
        recent = [at_ms for at_ms in node.evicted_ms if requested.at_ms - at_ms < WINDOW_MS]
        node.evicted_ms = (*recent, requested.at_ms)
        order = EvictReplica(
            at_ms=requested.at_ms,
            node=requested.node,
            eviction=requested.eviction,
            replica=requested.replica,
            attempt=requested.attempt,
            grace_ms=requested.grace_ms,
            reason=requested.reason,
        )
        traceparent = placement.traceparent if placement else ""
        record = self._record(requested.node, node)
        confirm: list[Effect] = []
        if self._shared is not None:
            write, confirmed = self._shared.spent(requested.node, requested.at_ms)
            record, confirm = Record(writes=(*record.writes, write)), [confirmed]
        return [
            record,
            *confirm,
            Publish(fact=requested, id=f"evictor:requested:{requested.eviction}"),
            Publish(fact=order, id=f"evictor:order:{requested.eviction}", traceparent=traceparent),
        ]

    def _ended(self, event: ReplicaEnded, now_ms: int) -> list[Effect]:
        is_own = self._owns(event.node)
        # What has ended is read before anything else may be known of the node, whose victims may come here.
        node = self.nodes.get(event.node) if is_own else self._node(event.node)
        if node is None:
            return []
        key = attempt_key(event.replica, event.attempt)
        node.placed.drop(key)
        node.seen.pop(key, None)
        if not is_own:
            node.note_end(key, event.cause)
            return []
        victim = node.terminating.pop(key, None)
        finished = [] if victim is None else self._finish(event.node, node, victim, event.cause, now_ms)
        return [*finished, *self._drain(event.node, now_ms)]

    # ---- drains

    def _drain_all(self, now_ms: int) -> list[Effect]:
        self._drain_at_ms = None
        return [effect for name in sorted(self.nodes) for effect in self._drain(name, now_ms)]

    def _drain(self, name: str, now_ms: int) -> list[Effect]:
        """Order the next replica of a draining node to leave, when no other one of the node is on its way.

        The budget of the cluster and a cool-down of the node hold for drains as well; they go on when those allow it.
        """
        node = self.nodes.get(name)
        drain = None if node is None else drain_of(name, node, self.restrictions)
        if node is None or drain is None or not self._holds.is_open or not self._owns(name):
            return []
        ranking = rank_leaving(node, drain, now_ms)
        if not ranking:
            return self._drained(name, node, drain, now_ms)
        if node.terminating:
            return []
        if now_ms < node.cool_until_ms or not self._may_spend(now_ms):
            at_ms = max(node.cool_until_ms, now_ms + _DRAIN_RETRY_MS)
            self._drain_at_ms = at_ms if self._drain_at_ms is None else min(self._drain_at_ms, at_ms)
            return []
        return self._order_to_leave(name, node, drain, ranking, now_ms)

    def _order_to_leave(
        self, name: str, node: WatchedNode, drain: Drain, ranking: tuple[VictimRank, ...], now_ms: int
    ) -> list[Effect]:
        victim = ranking[0]
        key = attempt_key(victim.replica, victim.attempt)
        placement, seen = node.placed.get(key), node.seen.get(key)
        own_ms = placement.grace_ms if placement is not None else self.policy.grace_ms
        grace_ms = own_ms if drain.grace_ms is None else drain.grace_ms
        eviction = eviction_id(name, "drain", now_ms, key)
        requested = EvictionRequested(
            at_ms=now_ms,
            eviction=eviction,
            node=name,
            replica=victim.replica,
            job=victim.replica.split("/", 1)[0],
            attempt=victim.attempt,
            reason=drain.reason,
            value_pct=0,
            threshold_pct=0,
            held_ms=max(now_ms - drain.since_ms, 0),
            sample_seq=node.sample_seq,
            ranking=ranking[:_RANKING_MAX],
            grace_ms=grace_ms,
            candidates=len(ranking),
            evictions_in_window=len(self.budget),
            evictions_allowed=self.budget.per_minute,
            asked_by=drain.by,
        )
        return self._order(requested, node, victim.used, seen.memory_used_bytes if seen is not None else 0)

    def _drained(self, name: str, node: WatchedNode, drain: Drain, now_ms: int) -> list[Effect]:
        """Publish once that nothing is left to leave. Before a sample of the node nobody knows what runs there."""
        if node.terminating or not node.sample_seq or node.drained_ms == drain.since_ms:
            return []
        node.drained_ms = drain.since_ms
        fact = NodeDrained(
            at_ms=now_ms,
            node=name,
            reason=drain.reason,
            asked_by=drain.by,
            batch_only=drain.batch_only,
            took_ms=max(now_ms - drain.since_ms, 0),
        )
        return [Publish(fact=fact, id=f"evictor:drained:{name}:{drain.since_ms}")]

    def _finish(
        self, name: str, node: WatchedNode, victim: TerminatingReplica, cause: EndCause, now_ms: int
    ) -> list[Effect]:
        finished = EvictionFinished(
            at_ms=now_ms,
            eviction=victim.eviction,
            node=name,
            replica=victim.replica,
            attempt=victim.attempt,
            cause=cause,
            took_ms=max(now_ms - victim.requested_at_ms, 0),
        )
        return [self._record(name, node), Publish(fact=finished, id=f"evictor:finished:{victim.eviction}")]

    def _hears(self, is_reachable: bool, now_ms: int) -> list[Effect]:
        """Take that messages flow, or do not. Meanwhile nobody can say that a victim has ended.

        So the time until it counts as lost stands still, and what is left of it begins when the bus is back.
        """
        since_ms, self._deaf_since_ms = self._deaf_since_ms, None
        if not is_reachable:
            self._deaf_since_ms = now_ms if since_ms is None else since_ms
        elif since_ms is not None:
            for node in self.nodes.values():
                for key, victim in node.terminating.items():
                    due_ms = max(victim.due_ms + now_ms - since_ms, now_ms + _RECEIVED_MS)
                    node.terminating[key] = msgspec.structs.replace(victim, due_ms=due_ms)
        return []

    def _overdue(self, now_ms: int) -> list[Effect]:
        """Finish the overdue victims as lost: they are no longer credited, and the node may lose another replica."""
        effects: list[Effect] = []
        if self._deaf_since_ms is not None:
            return effects
        for name in sorted(self.nodes):
            node = self.nodes[name]
            if not node.terminating or not self._owns(name):
                continue
            for key in sorted(key for key, victim in node.terminating.items() if victim.due_ms <= now_ms):
                victim = node.terminating.pop(key)
                effects.extend(self._finish(name, node, victim, EndCause.LOST, now_ms))
        return effects

    def _forget(self, now_ms: int) -> list[Effect]:
        """Forget the nodes that have been lost long enough, with their rows. A node with placements or victims is kept for now."""
        effects: list[Effect] = []
        while (
            self._forget_ms and self._lost_since and now_ms - next(iter(self._lost_since.values())) >= self._forget_ms
        ):
            name, _ = self._lost_since.popitem(last=False)
            node = self.nodes[name]
            if len(node.placed) or node.terminating:
                self._lost_since[name] = now_ms
                continue
            del self.nodes[name]
            if node.version and self._owns(name):
                effects.append(Record(writes=(Write(kind=ROW_KIND, id=name, value=None, expect=node.version),)))
        return effects

    def problem(self) -> str:
        """Which gate is closed, so that nothing is evicted, or nothing of some nodes; "" when evictions are decided."""
        if not self._holds.is_open:
            return "nothing is evicted before the scheduler has listed what is held"
        if self._unread:
            return "nothing is evicted on nodes that came here before their victims and cool-downs are read"
        has_share = any(self.partitions.holds(partition) for partition in range(self.partitions.count))
        if has_share and self._shared is not None and not self._shared.is_known:
            return "nothing is evicted before the budget of the cluster is read"
        return ""

    def _listed(self, event: HoldsListed, now_ms: int) -> list[Effect]:
        """Reconcile with the ledger: take what is missing here, and drop what the ledger does not list."""
        listed: dict[str, set[str]] = {}
        for hold in event.holds:
            if not hold.is_reservation:
                self._node(hold.node).placed.take(hold, now_ms)
                listed.setdefault(hold.node, set()).add(attempt_key(hold.replica, hold.attempt))
        for name, node in self.nodes.items():
            node.placed.keep(listed.get(name, ()), event.asked_at_ms - _YOUNG_MS)
        return self._drain_all(now_ms) if self._holds.listed(is_complete=event.asked_at_ms > 0) else []

    def _load(self, event: EvictorRowsLoaded, now_ms: int) -> list[Effect]:
        """Take what is stored of the nodes: all of it at the start, or of the partitions that came here."""
        if not self.partitions.count:
            for stored in event.rows:
                self._take_row(stored.node, stored, now_ms)
            return []
        asked = self._unread.intersection(event.partitions)
        self._unread -= asked
        rows = {stored.node: stored for stored in event.rows}
        effects: list[Effect] = []
        for name in sorted({*rows, *self.nodes}):
            if self._partition(name) in asked:
                self._take_row(name, rows.get(name), now_ms)
                self._read(self._node(name))
                effects.extend(self._already_ended(name, now_ms))
        return effects

    # ---- several instances

    def _partition(self, node: str) -> int:
        return partition_of(node, self.partitions.count)

    def _owns(self, node: str) -> bool:
        """Whether this instance acts for the node: it holds its partition, and has read its row."""
        return self.partitions.owns(node) and not (self._unread and self._partition(node) in self._unread)

    def own_nodes(self) -> Iterator[tuple[str, WatchedNode]]:
        """The nodes for which this instance acts."""
        return ((name, node) for name, node in self.nodes.items() if self._owns(name))

    def _held_now(self, event: PartitionsHeld) -> list[Effect]:
        """Act for the nodes of these partitions from now on, as soon as their rows are read."""
        new, lost = self.partitions.take(event)
        self._unread = (self._unread | new) - lost
        return [LoadEvictorRows(partitions=tuple(sorted(new))), ReloadBudget()] if new else []

    def _already_ended(self, name: str, now_ms: int) -> list[Effect]:
        """Finish the victims whose end was reported while no instance acted for the node."""
        node = self.nodes.get(name)
        if node is None or not self._owns(name):
            return []
        effects: list[Effect] = []
        for key in sorted(node.ends.keys() & node.terminating.keys()):
            effects.extend(self._finish(name, node, node.terminating.pop(key), node.ends[key], now_ms))
        node.ends.clear()
        return effects

    def _budget_known(self, event: BudgetLoaded | BudgetRecorded, now_ms: int) -> list[Effect]:
        if self._shared is not None and isinstance(event, BudgetLoaded):
            self._shared.loaded(event, now_ms)
        elif self._shared is not None:
            self._shared.recorded()
        return []

    def _may_spend(self, now_ms: int) -> bool:
        """Count an eviction in the budget, unless that is used up or another instance may be using it at this moment."""
        return (self._shared is None or self._shared.is_open) and self.budget.take(now_ms)

    def _refused(self, event: Conflict) -> list[Effect]:
        """Read again what another writer changed: this evictor must not act on it with an old view."""
        self.conflicts += 1
        nodes = [event.id] if event.kind == ROW_KIND else []
        if self._shared is None:
            return [ReloadEvictorRow(node=node) for node in nodes]
        # One record has the row of a node and the budget: both are as they were.
        node, effects = self._shared.refused()
        if node and node not in nodes:
            nodes.append(node)
        return [*(ReloadEvictorRow(node=node) for node in nodes), *effects]

    def _take_row(self, name: str, stored: StoredNode | None, now_ms: int) -> None:
        """Make the stored part of a node's state what the store holds: version and victims, and the times by this clock."""
        row = EvictorRow() if stored is None else by_this_clock(stored.row, now_ms, self.policy.overdue_ms)
        node = self._node(name)
        if self._shared is None:
            self.budget.taken([at_ms for at_ms in row.evicted_ms if at_ms not in node.evicted_ms])
        node.version = 0 if stored is None else stored.version
        node.cool_until_ms = row.cool_until_ms
        node.evicted_ms = row.evicted_ms
        node.terminating = {attempt_key(item.replica, item.attempt): item for item in row.terminating}

    def _put_back(self) -> list[Effect]:
        """Write the rows that are known here into a store that lost rows."""
        return [
            Record(
                writes=(
                    Write(
                        kind=ROW_KIND,
                        id=name,
                        value=msgspec.json.encode(node.row()),
                        expect=node.version,
                        puts_back=True,
                    ),
                )
            )
            for name, node in self.nodes.items()
            if node.version and self._owns(name)
        ]

    def _record(self, name: str, node: WatchedNode) -> Record:
        write = Write(kind=ROW_KIND, id=name, value=msgspec.json.encode(node.row()), expect=node.version)
        node.version += 1
        return Record(writes=(write,))

    def _node(self, name: str) -> WatchedNode:
        """The state of the node, made when it is new. Above the limit of nodes the new state is counted and not kept."""
        known = self.nodes.get(name)
        if known is None:
            known = WatchedNode()
            if len(self.nodes) >= _NODES_MAX:
                self.too_many_nodes += 1
            else:
                self.nodes[name] = known
                self._lost_since[name] = self._now_ms
        return known
