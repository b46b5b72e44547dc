"""The evictor core: samples and placements in; at most one victim a node and round out, credited until it is gone."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import assert_never

import msgspec
from msgspec import Struct

from colo_common.events.effects import Conflict, Effect, Publish, Record, Wake, Write
from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.eviction import EvictionFinished, EvictionRequested, EvictReplica
from colo_common.events.node import FreshnessChanged, NodeTopologyReported, NodeUsageSampled
from colo_common.events.placement import PlacementsDecided, PlacementsReleased
from colo_common.model.audit import Audit
from colo_common.model.freshness import FORGET_NODE_MS, Freshness
from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import attempt_key
from colo_common.model.reasons import EndCause
from colo_evictor.budget import Budget
from colo_evictor.policy import EvictorPolicy
from colo_evictor.signals import Level, Signal, levels
from colo_evictor.victims import rank_victims
from colo_evictor.watched import EvictorRow, TerminatingReplica, WatchedNode

__all__ = ["ROW_KIND", "Event", "EvictorCore", "EvictorRowsLoaded", "StoredNode"]

ROW_KIND = "evictor-node"
_NODES_MAX = 50_000
# About 2 ms.
_CHECKED_AT_ONCE = 20_000
_PIECE = 1_000


class StoredNode(Struct, frozen=True, kw_only=True):
    """One stored row with its version."""

    node: str
    version: int
    row: EvictorRow


class EvictorRowsLoaded(Struct, frozen=True, kw_only=True):
    """What the store held at the start."""

    rows: tuple[StoredNode, ...]


Event = (
    NodeTopologyReported
    | NodeUsageSampled
    | FreshnessChanged
    | PlacementsDecided
    | PlacementsReleased
    | ReplicaEnded
    | EvictorRowsLoaded
    | Conflict
    | Wake
)


class EvictorCore:
    """Keeps, for each node, its placements, the holds of its signals, its victims on their way out and its cool-down."""

    def __init__(self, policy: EvictorPolicy, forget_node_ms: int = FORGET_NODE_MS) -> None:
        """A node that is lost for `forget_node_ms`, and has nothing placed or leaving, is forgotten (0: never)."""
        policy.validate()
        self.policy = policy
        self.nodes: dict[str, WatchedNode] = {}
        self.budget = Budget(policy.cluster_per_minute)
        self.fenced = 0
        self.too_many_nodes = 0
        self._forget_ms = forget_node_ms
        # Since when nodes are lost, or were only spoken of; the longest first.
        self._gone: OrderedDict[str, int] = OrderedDict()
        self._now_ms = 0
        self._audit = Audit(self._pieces, _CHECKED_AT_ONCE)

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """The only way in."""
        self._now_ms = now_ms
        match event:
            case NodeUsageSampled():
                return self._sampled(event, now_ms)
            case PlacementsDecided():
                for placement in event.placements:
                    self._node(placement.node).placed[attempt_key(placement.replica, placement.attempt)] = placement
                return []
            case PlacementsReleased():
                for release in event.nodes:
                    for replica, attempt in release.attempts:
                        self._node(release.node).placed.pop(attempt_key(replica, attempt), None)
                return []
            case ReplicaEnded():
                return self._ended(event, now_ms)
            case NodeTopologyReported():
                event.topology.validate()
                self._node(event.node).topology = event.topology
                return []
            case FreshnessChanged():
                node = self._node(event.node)
                if event.freshness is not Freshness.FRESH:
                    node.signals.clear()
                if event.freshness is not Freshness.LOST:
                    self._gone.pop(event.node, None)
                elif event.node in self.nodes and event.node not in self._gone:
                    self._gone[event.node] = now_ms
                return []
            case EvictorRowsLoaded():
                self._load(event)
                return []
            case Conflict():
                # Another evictor owns the row now; this one must not act on the node with an old view.
                self.fenced += 1
                self._node(event.id).version = event.found
                return []
            case Wake():
                return [*self._overdue(now_ms), *self._forget(now_ms)]
            case _:
                assert_never(event)

    def deadline_ms(self) -> int | None:
        """When the first victim is overdue, or the first node is to be forgotten."""
        due = [leaving.due_ms for node in self.nodes.values() for leaving in node.leaving.values()]
        if self._gone and self._forget_ms:
            due.append(next(iter(self._gone.values())) + self._forget_ms)
        return min(due, default=None)

    def check(self) -> None:
        """Raise InvariantBroken when a node loses more than one victim at a time.

        Of more than 20,000 nodes each call checks some, all of them in turn: it is called while others wait.
        """
        self._audit.check(len(self.nodes))

    def _pieces(self) -> Iterator[int]:
        names = list(self.nodes)
        for start in range(0, len(names), _PIECE):
            for name in names[start : start + _PIECE]:
                node = self.nodes.get(name)
                if node is not None and len(node.leaving) > 1:
                    raise InvariantBroken("a node has more than one victim on its way out", node=name)
            yield _PIECE

    def _sampled(self, sample: NodeUsageSampled, now_ms: int) -> list[Effect]:
        node = self.nodes.get(sample.node)
        if node is None or node.topology is None:
            return []
        if sample.boot_id == node.boot_id and sample.sample_seq <= node.sample_seq:
            return []
        node.boot_id, node.sample_seq = sample.boot_id, sample.sample_seq
        self._gone.pop(sample.node, None)
        credited = (
            sum(leaving.cpu_mcpu for leaving in node.leaving.values()),
            sum(leaving.memory_bytes for leaving in node.leaving.values()),
        )
        readings = levels(node.topology, sample, credited, node.requested_mcpu, self.policy)
        held = [
            (level, held_ms)
            for level in readings
            if (held_ms := node.signals.setdefault(level.reason, Signal()).feed(level, now_ms, self.policy.gap_ms))
            is not None
            and level.high
            and held_ms >= level.hold_ms
        ]
        if not held or node.leaving or now_ms < node.cool_until_ms:
            return []
        level, held_ms = held[0]
        return self._evict(node, sample, level, held_ms, now_ms)

    def _evict(
        self, node: WatchedNode, sample: NodeUsageSampled, level: Level, held_ms: int, now_ms: int
    ) -> list[Effect]:
        ranking = rank_victims(sample.workloads, node.placed, node.leaving, level.reason)
        if not ranking or not self.budget.take(now_ms):
            return []
        victim = ranking[0]
        key = attempt_key(victim.replica, victim.attempt)
        usage = next(w for w in sample.workloads if w.replica == victim.replica and w.attempt == victim.attempt)
        placement = node.placed.get(key)
        eviction = f"{sample.node}:{sample.boot_id}:{sample.sample_seq}:{key}"
        grace_ms = min(placement.run.grace_ms, self.policy.grace_ms) if placement else self.policy.grace_ms
        node.leaving[key] = TerminatingReplica(
            eviction=eviction,
            replica=victim.replica,
            attempt=victim.attempt,
            cpu_mcpu=usage.cpu_used_mcpu,
            memory_bytes=usage.memory_used_bytes,
            requested_at_ms=now_ms,
            due_ms=now_ms + grace_ms + self.policy.overdue_ms,
        )
        node.cool_until_ms = now_ms + level.cool_ms
        node.signals.clear()
        order = EvictReplica(
            at_ms=now_ms,
            node=sample.node,
            generation=now_ms,
            eviction=eviction,
            replica=victim.replica,
            attempt=victim.attempt,
            grace_ms=grace_ms,
            reason=level.reason,
        )
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
            ranking=ranking,
        )
        return [
            self._record(sample.node, node),
            Publish(fact=requested, id=f"evictor:requested:{eviction}"),
            Publish(fact=order, id=f"evictor:order:{eviction}", traceparent=placement.traceparent if placement else ""),
        ]

    def _ended(self, event: ReplicaEnded, now_ms: int) -> list[Effect]:
        node = self.nodes.get(event.node)
        if node is None:
            return []
        key = attempt_key(event.replica, event.attempt)
        node.placed.pop(key, None)
        leaving = node.leaving.pop(key, None)
        if leaving is None:
            return []
        return self._finish(event.node, node, leaving, event.cause, now_ms)

    def _finish(
        self, name: str, node: WatchedNode, leaving: TerminatingReplica, cause: EndCause, now_ms: int
    ) -> list[Effect]:
        finished = EvictionFinished(
            at_ms=now_ms,
            eviction=leaving.eviction,
            node=name,
            replica=leaving.replica,
            attempt=leaving.attempt,
            cause=cause,
            took_ms=max(now_ms - leaving.requested_at_ms, 0),
        )
        return [self._record(name, node), Publish(fact=finished, id=f"evictor:finished:{leaving.eviction}")]

    def _overdue(self, now_ms: int) -> list[Effect]:
        """A victim that did not end in time is no longer credited; the node may be acted on again."""
        effects: list[Effect] = []
        for name in sorted(self.nodes):
            node = self.nodes[name]
            for key in sorted(key for key, leaving in node.leaving.items() if leaving.due_ms <= now_ms):
                leaving = node.leaving.pop(key)
                effects.extend(self._finish(name, node, leaving, EndCause.LOST, now_ms))
        return effects

    def _forget(self, now_ms: int) -> list[Effect]:
        """Forget the nodes that left for good, with their rows. One on which something is placed is looked at again later."""
        effects: list[Effect] = []
        while self._forget_ms and self._gone and now_ms - next(iter(self._gone.values())) >= self._forget_ms:
            name, _ = self._gone.popitem(last=False)
            node = self.nodes[name]
            if node.placed or node.leaving:
                self._gone[name] = now_ms
                continue
            del self.nodes[name]
            if node.version:
                effects.append(Record(writes=(Write(kind=ROW_KIND, id=name, value=None, expect=node.version),)))
        return effects

    def _load(self, event: EvictorRowsLoaded) -> None:
        for stored in event.rows:
            node = self._node(stored.node)
            node.version = stored.version
            node.cool_until_ms = stored.row.cool_until_ms
            node.leaving = {attempt_key(item.replica, item.attempt): item for item in stored.row.leaving}

    def _record(self, name: str, node: WatchedNode) -> Record:
        write = Write(kind=ROW_KIND, id=name, value=msgspec.json.encode(node.row()), expect=node.version)
        node.version += 1
        return Record(writes=(write,))

    def _node(self, name: str) -> WatchedNode:
        """What is known of the node; of more nodes than are kept, something that is forgotten at once, and counted."""
        known = self.nodes.get(name)
        if known is None:
            known = WatchedNode()
            if len(self.nodes) >= _NODES_MAX:
                self.too_many_nodes += 1
            else:
                self.nodes[name] = known
                self._gone[name] = self._now_ms
        return known
