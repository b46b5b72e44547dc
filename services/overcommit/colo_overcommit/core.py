"""The overcommit core: takes topologies and samples, publishes allocatable with its explanation, leases and freshness."""

from collections.abc import Iterator, Mapping
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from colo_common.events.effects import BusReachable, Effect, Publish, Reply, RequestReceived, StreamLost, Wake
from colo_common.events.eviction import EvictionFinished, EvictionRequested
from colo_common.events.external import (
    ClearExternalCapacity,
    ExternalCapacityChanged,
    NodeExternal,
    SetExternalCapacity,
)
from colo_common.events.fleet import GetNode
from colo_common.events.node import (
    AllocatableChanged,
    FreshnessChanged,
    LeaseRenewed,
    NodeTopologyReported,
    NodeUsageSampled,
)
from colo_common.events.placement import PlacementsDecided, PlacementsReleased
from colo_common.events.policy import PolicyChanged
from colo_common.events.registry import Stream
from colo_common.events.requests import ExplainAllocatable, HoldEntry, HoldsListed, HoldsReply
from colo_common.events.reservation import ReservationChanged
from colo_common.events.restriction import RestrictionsChanged
from colo_common.events.undecoded import Undecoded
from colo_common.model.audit import Audit
from colo_common.model.colocation import admits_batch
from colo_common.model.freshness import FORGET_NODE_MS, Freshness, freshness_of
from colo_common.model.invalid import InvalidInput
from colo_common.model.partition import Partitions, PartitionsHeld, partition_of
from colo_common.model.placement import Placement, attempt_key
from colo_common.model.received_fences import ReceivedFences
from colo_common.model.restriction import Restrictions, restriction_text
from colo_overcommit.allocatable import Limit, ZoneInputs, allocatable_of_zone
from colo_overcommit.check_published import check_published
from colo_overcommit.dropped import Dropped
from colo_overcommit.events import Event
from colo_overcommit.explain import explain
from colo_overcommit.external import bounds_with, external_again, unexpired, with_external
from colo_overcommit.fleet_guard import NO_GUARD, FleetGuard, GuardPolicy
from colo_overcommit.followed_policy import FollowedPolicy
from colo_overcommit.freshness_facts import freshness_fact, late_again
from colo_overcommit.held_by_batch import HeldByBatch, with_bands
from colo_overcommit.histories import HistoriesLoaded, LoadHistories
from colo_overcommit.hysteresis import has_load_moved, moves_between, should_publish
from colo_overcommit.known_node import KnownNode
from colo_overcommit.late_promise import Shrink, late_mid, late_terms, promised_by
from colo_overcommit.mid import has_mid_moved, mid_of_zones
from colo_overcommit.mid_of_node import mid_of_node
from colo_overcommit.node_terms import node_terms
from colo_overcommit.online_parts import parts_by_zone
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.promises import promises_of
from colo_overcommit.queries import answer, unknown_node
from colo_overcommit.reserved import reserved_by_zone
from colo_overcommit.stored_histories import StoredHistories
from colo_overcommit.take_back import TakeBack
from colo_overcommit.term_ages import ages_of
from colo_overcommit.unreported_nodes import UnreportedNodes
from colo_overcommit.watch import Watch

__all__ = ["Event", "OvercommitCore"]

_NODES_MAX = 50_000
# About 3 ms; a node of many zones counts as several.
_CHECKED_AT_ONCE = 300
# A node of another instance is computed for so long after somebody asked for it by name.
_LOOKED_AT_MS = 60_000
# The scheduler may have answered from a view that does not contain younger holds yet.
_YOUNG_MS = 60_000


class OvercommitCore:
    """Keeps for each node its topology, its newest sample, the holds of batch work and the last published allocatable.

    Where several instances share the work, each knows all nodes, and publishes for those of the partitions that it holds. What the
    others publish it takes over as published, so that a node goes on from its number when it changes hands. Of the samples of their
    nodes it notes the arrival, and keeps the newest undecoded: it is computed when the node comes here, or when somebody asks.
    """

    def __init__(
        self,
        policy: OvercommitPolicy,
        forget_node_ms: int = FORGET_NODE_MS,
        guard: GuardPolicy = NO_GUARD,
        partitions: int = 0,
    ) -> None:
        """A node that has been lost for `forget_node_ms` and holds nothing is forgotten (0: never). `partitions` 0: not shared."""
        self.partitions = Partitions(partitions)
        self.guard = FleetGuard(guard)
        policy.validate()
        self.policy = policy
        self.followed = FollowedPolicy(policy)
        self.nodes: dict[str, KnownNode] = {}
        self.dropped = Dropped()
        # Of each subject its own: the last fact about freshness may be much older than the last number, and still be true.
        self._fences = {kind: ReceivedFences() for kind in (AllocatableChanged, FreshnessChanged)}
        self.restrictions = Restrictions()
        self._histories = StoredHistories(self.dropped)
        self._take_back = TakeBack()
        self._unreported = UnreportedNodes()
        self._watch = Watch(policy.freshness, forget_node_ms)
        self._shrink = Shrink(freshness=policy.freshness, window_ms=policy.stale_shrink_ms)
        self._begun_ms = -1
        self._now_ms = 0
        self._audit = Audit(self._pieces, _CHECKED_AT_ONCE)

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event and return its effects. Raises InvalidInput, before any change, for a fact that contradicts itself."""
        self._now_ms = now_ms
        self._begun_ms = now_ms if self._begun_ms < 0 else self._begun_ms
        self.guard.passes(now_ms)
        match event:
            case NodeUsageSampled() | Undecoded():
                return self._sample_came(event, now_ms)
            case PlacementsDecided():
                for placement in event.placements:
                    self._take(placement, now_ms, is_new=True)
            case PlacementsReleased():
                for release in event.nodes:
                    held = self._held(release.node, now_ms)
                    for replica, attempt in release.attempts:
                        held.drop(replica, attempt)
            case ReservationChanged():
                if event.node:
                    held = self._held(event.node, now_ms)
                    held.put(event.replica, event.attempt, event.zones, now_ms, qos=event.qos, band=event.band)
            case HoldsReply():
                for hold in event.holds:
                    self._take(hold, now_ms)
            case HoldsListed():
                self._listed(event, now_ms)
            case NodeTopologyReported():
                return self._topology(event, now_ms)
            case RestrictionsChanged():
                if self.restrictions.take(event.revision, event.restrictions, now_ms):
                    for name, known in self.nodes.items():
                        self._restrict(name, known)
            case PolicyChanged():
                if self.followed.take(event):
                    for name, known in self.nodes.items():
                        self._follow(name, known)
            case EvictionRequested() | EvictionFinished():
                self._take_back.hear(event)
            case AllocatableChanged():
                self._restore(event, now_ms)
                self._take_published(event, now_ms)
            case FreshnessChanged():
                self._take_freshness(event, now_ms)
            case PartitionsHeld():
                return self._held_now(event, now_ms)
            case HistoriesLoaded():
                self._load_histories(event, now_ms)
            case ExternalCapacityChanged():
                self._external_changed(event)
            case RequestReceived(body=SetExternalCapacity() | ClearExternalCapacity() as asked):
                return self._bound(event, asked, now_ms)
            case RequestReceived():
                return [Reply(request=event.request, body=self._answer(event, now_ms))]
            case StreamLost():
                return self._say_again(event, now_ms)
            case BusReachable():
                self.guard.hears(event.is_reachable)
            case Wake():
                return self._late(now_ms)
            case _:
                assert_never(event)
        return []

    def deadline_ms(self) -> int | None:
        """The time at which the next node turns stale or lost, or is to be forgotten; None without one."""
        return self.guard.deadline_ms(self._watch.deadline_ms())

    def check(self) -> None:
        """Raise InvariantBroken when a published number is not explained by its terms or its zones do not sum to the node.

        With more than 300 nodes one call checks a part of them, all in turn, because it delays the next event.
        """
        self._audit.check(len(self.nodes))

    def _pieces(self) -> Iterator[int]:
        for name in list(self.nodes):
            known = self.nodes.get(name)
            last = known.published if known is not None else None
            if last is not None:
                check_published(last)
            yield 1 if last is None else max(1, len(last.zones) // 2)

    def _topology(self, event: NodeTopologyReported, now_ms: int) -> list[Effect]:
        event.topology.validate()
        self._unreported.reported(event.node)
        reserved = reserved_by_zone(event.topology, event.rules)
        is_colocated = admits_batch(event.labels, event.rules)
        known = self._known(event.node)
        if known is not None:
            new = (event.topology, reserved, is_colocated, event.rules.cpu_normalization_pct)
            if new != (known.topology, known.reserved, known.is_colocated, known.normalization_pct):
                known.is_changed = True
            known.topology, known.topology_ms = event.topology, min(event.at_ms or now_ms, now_ms)
            known.reserved = reserved
            known.is_colocated = is_colocated
            known.normalization_pct = event.rules.cpu_normalization_pct
            known.only_observes = event.rules.only_observes
            known.simulated = event.simulated
            known.labels, known.taints, known.capabilities = event.labels, event.taints, event.capabilities
            self._follow(event.node, known)
            if known.sampled_at_ms is None and known.expected_since_ms is None:
                # A node that died before this service started sends no sample. It must turn lost: its replicas wait.
                known.expected_since_ms = known.watched_ms = self.guard.watched_ms(now_ms)
                self._watch.sampled(event.node, known.watched_ms)
        return []

    def _sample_came(self, event: NodeUsageSampled | Undecoded, now_ms: int) -> list[Effect]:
        """Decode and take a sample of an own node. Of another one the newest is kept as it came."""
        known, owns = self.nodes.get(event.node), self.partitions.owns(event.node)
        is_known = known is not None and known.topology is not None
        is_first = known is None or known.sampled_at_ms is None
        asks: list[Effect] = []
        if owns:
            asks += self._unreported.sampled(event.node, now_ms, is_known=is_known, is_first=is_first)
        if known is None or not is_known:
            self.dropped.no_topology += 1
            return asks
        if owns:
            sample = event.decoded() if isinstance(event, Undecoded) else event
            return asks + (self._sampled(sample, known, now_ms) if isinstance(sample, NodeUsageSampled) else [])
        known.unread, known.sampled_at_ms = event, now_ms
        self._received(event.node, known, now_ms)
        if now_ms < known.asked_until_ms:
            self._read(known, now_ms)
        return []

    def _sampled(self, sample: NodeUsageSampled, known: KnownNode, now_ms: int) -> list[Effect]:
        if known.is_old(sample):
            self.dropped.old_sample += 1
            return []
        known.unread = None
        self.restrictions.expire(now_ms)
        inputs = self._compute(known, sample, now_ms)
        self._received(sample.node, known, now_ms)
        effects: list[Effect] = self._refresh(sample.node, known, now_ms)
        # Who hears both facts takes a node for fresh by the number that says so.
        known.is_changed = known.is_changed or bool(effects)
        if known.freshness is Freshness.FRESH:
            effects.extend(self._publish(sample.node, known, inputs, now_ms))
            self._promise(known, now_ms)
        effects.append(
            Publish(
                fact=LeaseRenewed(
                    at_ms=now_ms,
                    node=sample.node,
                    sample_seq=sample.sample_seq,
                    batch_cpu_mcpu=known.published.batch_cpu_mcpu if known.published else 0,
                    lease_ms=self.policy.lease_ms,
                )
            )
        )
        return effects

    def _received(self, node: str, known: KnownNode, now_ms: int) -> None:
        """A sample of the node arrived: nobody's silence is counted from before."""
        known.watched_ms = self.guard.watched_ms(now_ms)
        self._watch.sampled(node, known.watched_ms)
        self.guard.received(node)

    def _compute(self, known: KnownNode, sample: NodeUsageSampled, now_ms: int) -> tuple[ZoneInputs, ...]:
        """Learn from the sample, which arrived at `now_ms`, and return the terms that follow from it."""
        topology = known.topology
        if topology is None:
            return ()
        sample = with_bands(sample, known.held)
        self._restrict(sample.node, known)
        policy = known.policy or self.policy
        inputs = node_terms(known, topology, sample, policy, now_ms)
        if known.promises is not None:
            if known.sample is not None and known.sample.boot_id != sample.boot_id:
                # Samples of two sequences are never joined.
                known.promises.forget()
            inputs = known.promises.judged(inputs, now_ms, self.take_back_ms, self.policy.risk)
        if known.expected is not None:
            parts = parts_by_zone(inputs, sample.workloads, known.held) if known.expected.by_workload else {}
            inputs = known.expected.learn(inputs, sample.at_ms, parts, now_ms=now_ms)
            known.learned_ms = sample.at_ms
        external = unexpired(known.external, now_ms) if known.external else ()
        if external != known.external:
            # The bound fell away: the number rises to what was computed at once.
            known.external, known.is_changed = external, True
        if external:
            inputs = with_external(inputs, external)
        known.mid_inputs = mid_of_node(known, sample, inputs, policy)
        known.accept(sample, inputs, now_ms)
        return inputs

    def _promise(self, known: KnownNode, now_ms: int) -> None:
        """Note what is promised from now on, to be judged by later samples."""
        if known.promises is not None and known.published is not None:
            known.promises.promise(known.published.zones, known.held.by_zone(), now_ms, self.take_back_ms)

    # ---- external capacity

    def _bound(
        self, request: RequestReceived, asked: SetExternalCapacity | ClearExternalCapacity, now_ms: int
    ) -> list[Effect]:
        """Take or lift the bound of a system outside, and publish all bounds of the node.

        The request reaches every instance, and whoever holds the node answers: two that answered at the same moment would each
        publish the bounds without the other's.
        """
        if not self.partitions.owns(asked.node):
            return [Reply(request=request.request, body=None)]
        known = self.nodes.get(asked.node)
        if known is None or known.topology is None:
            return [Reply(request=request.request, body=unknown_node(asked.node, self.nodes))]
        answer = bounds_with(asked, known.external, now_ms)
        reply = Reply(request=request.request, body=answer)
        if not isinstance(answer, NodeExternal) or not answer.changed:
            return [reply]
        # Never before what counts now, which another instance may have published by a clock that is ahead.
        at_ms = max(now_ms, known.external_at_ms)
        fact = ExternalCapacityChanged(at_ms=at_ms, node=asked.node, entries=answer.entries)
        self._external_changed(fact)
        return [Publish(fact=fact), reply]

    def _external_changed(self, event: ExternalCapacityChanged) -> None:
        """Follow what an instance published; an older message than the one that counts changes nothing."""
        known = self._known(event.node)
        if known is None or event.at_ms < known.external_at_ms:
            return
        known.is_changed = known.is_changed or known.external != event.entries
        known.external, known.external_at_ms = event.entries, event.at_ms

    # ---- histories

    def due_histories(self, now_ms: int, every_ms: int, most: int) -> dict[str, bytes | None]:
        """Node -> the row to store now, None to delete it; `stored` is told which were. One that is too large is counted."""
        return self._histories.due(self.nodes, self.partitions.owns, now_ms, every_ms, most)

    def stored(self, node: str, now_ms: int) -> None:
        """The row of the node was stored, as `due_histories` gave it last."""
        self._histories.stored(node, self.nodes.get(node), now_ms)

    def _load_histories(self, event: HistoriesLoaded, now_ms: int) -> None:
        asked, count = frozenset(event.partitions), self.partitions.count
        self._histories.take(event, self.nodes, lambda node: not asked or partition_of(node, count) in asked, now_ms)

    def _say_again(self, lost: StreamLost, now_ms: int) -> list[Effect]:
        """Say again what the stream kept, with the next sample of each node, and have the nodes tell again what they are."""
        if lost.stream == Stream.NODE.value:
            self._unreported.lost(self.nodes)
            for known in self.nodes.values():
                known.is_changed = True
        if lost.stream == Stream.EVT.value:
            return [*late_again(self.own_nodes(), self._age_ms, now_ms)]
        return [*external_again(self.own_nodes(), now_ms)] if lost.stream == Stream.POLICY.value else []

    # ---- several instances

    def own_nodes(self) -> Mapping[str, KnownNode]:
        """The nodes for which this instance publishes."""
        if not self.partitions.count:
            return self.nodes
        return {name: known for name, known in self.nodes.items() if self.partitions.owns(name)}

    def _held_now(self, event: PartitionsHeld, now_ms: int) -> list[Effect]:
        """Act for the nodes of these partitions from now on; those that are late are published as late at once."""
        new, _ = self.partitions.take(event)
        effects: list[Effect] = []
        if new and self.followed.learns:
            effects.append(LoadHistories(partitions=tuple(sorted(new))))
        for node, known in self.nodes.items():
            if partition_of(node, self.partitions.count) not in new:
                continue
            self._read(known, now_ms)
            known.promises = promises_of(self.policy)
            if known.promises is not None and known.published is not None and known.published.risk is not None:
                known.promises.restore(known.published.risk, now_ms)
            if known.sample is None:
                continue
            refreshed = self._refresh(node, known, now_ms)
            if not refreshed and known.freshness is Freshness.STALE:
                # The instance that held the node before had already shrunk its promise.
                refreshed = self._publish_late(node, known, now_ms)
            effects.extend(refreshed)
        return effects

    def _read(self, known: KnownNode, now_ms: int) -> None:
        """Compute the newest sample of a node of another instance, if that was left; it counts as of its arrival."""
        unread, known.unread = known.unread, None
        if unread is None:
            return
        try:
            sample = unread.decoded() if isinstance(unread, Undecoded) else unread
        except InvalidInput:
            self.dropped.malformed_sample += 1
            return
        if not isinstance(sample, NodeUsageSampled) or known.is_old(sample):
            self.dropped.old_sample += 1
            return
        self.restrictions.expire(now_ms)
        samples = known.samples
        self._compute(known, sample, known.sampled_at_ms or now_ms)
        if known.freshness is Freshness.FRESH:
            # It warmed up already, also when its collector began again meanwhile: whoever held it said so.
            known.samples = max(known.samples, samples)

    def _take_published(self, event: AllocatableChanged, now_ms: int) -> None:
        """Take over the number of a node that another instance, or an earlier start, published."""
        known = self._published_of(event, now_ms)
        if known is None or (self.partitions.owns(event.node) and known.published is not None):
            return
        last = known.published
        if last is not None and event.batch_cpu_mcpu < last.batch_cpu_mcpu:
            known.last_fall_at_ms = now_ms
        # Published again in time also when the clock of the other instance was ahead.
        known.published = event if event.at_ms <= now_ms else replace(event, at_ms=now_ms)
        known.is_changed = False

    def _published_of(self, event: AllocatableChanged | FreshnessChanged, now_ms: int) -> KnownNode | None:
        """The node of which another instance, or this one, said that; None where it counts no more, or nobody shares the work."""
        known = self._known(event.node) if self.partitions.count else None
        if known is None or self._fences[type(event)].admits(event.node, event.fence, now_ms):
            return known
        # The last number of the node that the bus keeps may be of an instance that was replaced here: the next sample publishes.
        known.is_changed = known.is_changed or event.fence < self.partitions.fence_of(event.node)
        return None

    def _take_freshness(self, event: FreshnessChanged, now_ms: int) -> None:
        """Take over the state of a node that another instance, or an earlier start, published; of an own node that it was lost."""
        is_lost = event.freshness is Freshness.LOST
        known = self._known(event.node) if is_lost and not self.partitions.count else self._published_of(event, now_ms)
        if known is None or (self.partitions.owns(event.node) and known.sample is not None):
            return
        if is_lost and known.freshness not in (Freshness.UNKNOWN, Freshness.LOST):
            self.guard.lost_elsewhere(event.node, now_ms)
        known.freshness = event.freshness
        if event.freshness is Freshness.FRESH:
            # It warmed up already, whoever received its samples then.
            known.samples = max(known.samples, self.policy.freshness.warm_samples)
        elif is_lost:
            known.samples = 0
            self._watch.departed(event.node, self.guard.watched_ms(now_ms))
        if event.freshness in (Freshness.STALE, Freshness.LOST) and known.promises is not None:
            known.promises.forget()

    @property
    def take_back_ms(self) -> int:
        """How long a promise has to hold: the policy's time, or the measured one."""
        return self.policy.risk.take_back_ms or self._take_back.ms

    def _restore(self, event: AllocatableChanged, now_ms: int) -> None:
        """Go on from the margins that another instance published before this one promised anything for the node."""
        known = self._known(event.node)
        if known is not None and known.promises is not None and known.published is None and event.risk is not None:
            known.promises.restore(event.risk, now_ms)

    def _follow(self, node: str, known: KnownNode) -> None:
        """Give the node the policy of its labels; the next sample publishes the allocatable that follows from it."""
        policy = self.followed.of(known.labels)
        known.is_changed = known.is_changed or policy != (known.policy or self.policy)
        known.policy, known.given = policy, self.followed.given_of(known.labels)
        self._histories.follow(node, known, policy)

    def _restrict(self, node: str, known: KnownNode) -> None:
        """Note what operators forbid on the node; the next sample publishes the allocatable that follows from it."""
        if not len(self.restrictions) and not known.only_observes and not known.forbidden and not known.closed:
            return
        no_batch, cordon = self.restrictions.no_batch_on(node), self.restrictions.cordon_of(node)
        own = str(Limit.OBSERVES) if known.only_observes else ""
        forbidden = own if no_batch is None else restriction_text(no_batch)
        known.is_changed = known.is_changed or forbidden != known.forbidden
        known.forbidden = forbidden
        known.forbidden_ms = None if no_batch is None else no_batch.since_ms
        known.closed = "" if cordon is None else restriction_text(cordon)

    def _publish(self, node: str, known: KnownNode, inputs: tuple[ZoneInputs, ...], now_ms: int) -> list[Effect]:
        """Compute the allocatable from the terms, and publish it if it differs enough from the last published one."""
        if known.topology is None or known.sample is None or not self.guard.holds.is_open:
            return []
        zones = tuple([allocatable_of_zone(zone) for zone in inputs])
        possible_mcpu = known.possible_mcpu = sum([zone.batch_cpu_mcpu for zone in zones])
        last = known.published
        moves = moves_between(last.zones if last else (), zones, inputs)
        left_pct = 100
        mid_terms = known.mid_inputs
        if known.freshness is not Freshness.FRESH:
            left_pct = self._left_pct(known, now_ms)
            promised = promised_by(last, left_pct) if last is not None else {}
            mid_terms = late_mid(known.mid_inputs, inputs, known.held.mid_by_zone(), promised, left_pct)
        mid = mid_of_zones(mid_terms)
        was_fresh = last is not None and last.freshness is known.freshness
        if was_fresh and last is not None and known.freshness is not Freshness.FRESH:
            # A late promise shrinks in fifths: each fifth is published, however small, and in between nothing is.
            if (zones, mid) == (last.zones, last.mid):
                return []
            known.is_changed = True
        fall_at_ms, sample, topology = known.last_fall_at_ms, known.sample, known.topology
        if (
            was_fresh
            and last is not None
            and not known.is_changed
            and not (
                should_publish(last, fall_at_ms, moves, self.policy, now_ms)
                or has_mid_moved(last.mid, mid, mid_terms, self.policy.shrink_pct)
                or known.unmanaged.has_risen(last.unmanaged or (), inputs, self.policy.shrink_pct)
                or has_load_moved(last, fall_at_ms, sample, topology, self.policy, now_ms)
            )
        ):
            return []
        if last is not None and moves.fell_centipct > 0:
            known.last_fall_at_ms = now_ms
        known.is_changed = False
        known.published = AllocatableChanged(
            at_ms=now_ms,
            node=node,
            sample_seq=known.sample.sample_seq,
            sampled_at_ms=known.sample.at_ms,
            freshness=known.freshness,
            batch_cpu_mcpu=possible_mcpu,
            batch_memory_bytes=sum(zone.batch_memory_bytes for zone in zones),
            headroom_cpu_mcpu=sum(zone.headroom_cpu_mcpu for zone in zones),
            headroom_memory_bytes=sum(zone.headroom_memory_bytes for zone in zones),
            zones=zones,
            explanation=explain(inputs, known.sample, mid_terms, ages_of(known, self.followed, self._begun_ms, now_ms)),
            load=known.load.summary(sample),
            unmanaged=known.unmanaged.usage(inputs),
            risk=known.promises.risk(now_ms, self.take_back_ms, self.policy.risk) if known.promises else None,
            mid=mid,
        )
        identity = f"overcommit:allocatable:{node}:{sample.boot_id}:{sample.sample_seq}:{known.freshness.value}"
        if left_pct not in (0, 100):
            identity = f"{identity}:{left_pct}"
        return [Publish(fact=known.published, id=identity)]

    def _refresh(self, node: str, known: KnownNode, now_ms: int) -> list[Effect]:
        """Publish a change of freshness. What a node is promised that is no longer fresh shrinks to what it holds."""
        age_ms = None if known.watched_ms is None else max(self.guard.watched_ms(now_ms) - known.watched_ms, 0)
        state = freshness_of(age_ms, known.samples, self.policy.freshness)
        if known.sampled_at_ms is None and state is not Freshness.LOST:
            state = Freshness.UNKNOWN
        previous = known.freshness
        if state is previous or state is Freshness.UNKNOWN:
            return []
        known.freshness = state
        changed = freshness_fact(node, known, previous, age_ms or 0, now_ms)
        boot, seq = known.sample.boot_id if known.sample else f"no-sample-{known.expected_since_ms}", changed.sample_seq
        effects: list[Effect] = [Publish(fact=changed, id=f"overcommit:freshness:{node}:{boot}:{seq}:{state.value}")]
        if state in (Freshness.STALE, Freshness.LOST) and known.promises is not None:
            known.promises.forget()
        if state in (Freshness.STALE, Freshness.LOST) and known.published is not None:
            effects.extend(self._publish_late(node, known, now_ms))
        return effects

    def _publish_late(self, node: str, known: KnownNode, now_ms: int) -> list[Effect]:
        """Publish what a late sample still promises, and ask for the time at which that is less."""
        if known.published is None:
            return []
        pct = self._left_pct(known, now_ms)
        next_ms = self._shrink.next_fall_ms(self._age_ms(known, now_ms))
        self._watch.falls_at(node, next_ms + (known.watched_ms or 0) if pct and next_ms is not None else None)
        says = self._shrink.says(pct)
        terms = late_terms(known.inputs, known.held.by_zone(), promised_by(known.published, pct), pct, says)
        return self._publish(node, known, terms, now_ms)

    def _age_ms(self, known: KnownNode, now_ms: int) -> int:
        return max(self.guard.watched_ms(now_ms) - (known.watched_ms or 0), 0)

    def _left_pct(self, known: KnownNode, now_ms: int) -> int:
        """How much of its promise a node has left whose newest sample is late; nothing once it is lost."""
        return 0 if known.freshness is Freshness.LOST else self._shrink.left_pct(self._age_ms(known, now_ms))

    def _late(self, now_ms: int) -> list[Effect]:
        if self.guard.is_deaf:
            return []
        effects: list[Effect] = []
        for node in self._watch.falling(self.guard.watched_ms(now_ms)):
            if self.partitions.owns(node) and self.nodes[node].freshness is Freshness.STALE:
                effects.extend(self._publish_late(node, self.nodes[node], now_ms))
        for node in self._due(now_ms):
            known = self.nodes[node]
            if not self.partitions.owns(node):
                if known.freshness is not Freshness.LOST:
                    # Whoever holds it publishes that; it is looked at again, because it may come here.
                    self._watch.withhold(node, self.guard.watched_ms(now_ms))
                continue
            effects.extend(self._refresh(node, known, now_ms))
            if known.freshness is Freshness.LOST:
                known.samples = 0
                self._watch.departed(node, self.guard.watched_ms(now_ms))
            elif known.freshness is Freshness.STALE and known.watched_ms is not None:
                # Another instance held the node when its sample became late, and withheld the promise.
                self._watch.late(node, known.watched_ms)
        for node in self._watch.forgotten(self.guard.watched_ms(now_ms)):
            if len(self.nodes[node].held):
                self._watch.departed(node, self.guard.watched_ms(now_ms))
            elif self.nodes.pop(node).stored_step:
                self._histories.forget(node)
        return effects

    def _due(self, now_ms: int) -> list[str]:
        """The nodes whose freshness changes now, without those that would be lost when these are too many at once.

        A node whose loss is withheld is stale, and is looked at again after a while. So is one of many that fell silent together,
        until it was silent for twice the time of a lost node.
        """
        watched_ms = self.guard.watched_ms(now_ms)
        due = self._watch.due(watched_ms)
        losing = [
            node
            for node in due
            if watched_ms - (self.nodes[node].watched_ms or 0) >= self.policy.freshness.lost_after_ms
            and self.partitions.owns(node)
            and self.nodes[node].freshness is not Freshness.LOST
        ]
        if not losing:
            return due
        last_ms = {
            node: known.watched_ms
            for node, known in self.nodes.items()
            if known.watched_ms is not None and known.freshness is not Freshness.LOST
        }
        waiting = self.guard.given_more_time(losing, last_ms, self.policy.freshness, watched_ms)
        losing = [node for node in losing if node not in waiting]
        if losing and not self.guard.may_lose(losing, last_ms, self.policy.freshness.stale_after_ms, now_ms):
            waiting.update(losing)
        for node in waiting:
            self._watch.withhold(node, watched_ms)
        return [node for node in due if node not in waiting]

    def _listed(self, event: HoldsListed, now_ms: int) -> None:
        """Reconcile with the ledger: take the holds that are missing here, and drop those that the ledger does not list."""
        listed: dict[str, list[HoldEntry]] = {}
        for hold in event.holds:
            listed.setdefault(hold.node, []).append(hold)
        for hold in event.holds:
            self._take(hold, now_ms)
        if self.guard.holds.listed(is_complete=event.asked_at_ms > 0):
            for known in self.nodes.values():
                known.is_changed = True
        self._histories.settled(self.nodes.values())
        for node, known in self.nodes.items():
            known.holds_ms = max(known.holds_ms or 0, min(event.asked_at_ms or now_ms, now_ms))
            keys = {attempt_key(hold.replica, hold.attempt) for hold in listed.get(node, ())}
            self.dropped.unlisted_holds += known.held.keep(keys, event.asked_at_ms - _YOUNG_MS)

    def _answer(self, request: RequestReceived, now_ms: int) -> Struct:
        match request.body:
            case GetNode(node=node) | ExplainAllocatable(node=node):
                asked_for = [node] if node in self.nodes else []
                for one in asked_for:
                    # Each sample has the details of some workloads: whoever looks on sees all of them.
                    self.nodes[one].asked_until_ms = now_ms + _LOOKED_AT_MS
            case _:
                asked_for = list(self.nodes)
        for node in asked_for:
            self._read(self.nodes[node], now_ms)
        return answer(request.body, self.nodes, self.followed, now_ms, self._begun_ms)

    def _known(self, node: str) -> KnownNode | None:
        known = self.nodes.get(node)
        if known is None:
            if len(self.nodes) >= _NODES_MAX:
                self.dropped.too_many_nodes += 1
                return None
            known = self.nodes[node] = KnownNode(promises=promises_of(self.policy))
            self._histories.begin(node, known)
            self._watch.departed(node, self.guard.watched_ms(self._now_ms))
        return known

    def _take(self, hold: Placement | HoldEntry, now_ms: int, *, is_new: bool = False) -> None:
        self._held(hold.node, now_ms).take(
            hold.replica,
            hold.attempt,
            hold.zones,
            now_ms,
            qos=hold.qos,
            band=hold.band,
            is_new=is_new,
            is_reservation=isinstance(hold, HoldEntry) and hold.is_reservation,
        )

    def _held(self, node: str, now_ms: int) -> HeldByBatch:
        """The holds of the node, for a caller that changes them now."""
        known = self._known(node)
        if known is None:
            return HeldByBatch()
        known.holds_ms = now_ms
        return known.held
