"""From a decision to a held place: assume the place at once, commit it to the ledger, and apply the ledger's answer.

An assumed place subtracts from the node at once, so that the next decision sees it; a refusal gives the capacity back and the
request is decided again. A conflict means that another scheduler was first: the node is left out of decisions until its row is
read again.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from colo_common.events.effects import Effect
from colo_common.events.job import PlacementRequest
from colo_common.model.constraints import CpuExclusive
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvariantBroken
from colo_common.model.partition import Partitions
from colo_common.model.placement import Attempt, Placement
from colo_common.model.quantity import ceil_div
from colo_common.model.reasons import Reason
from colo_common.model.workload import RunSpec
from colo_scheduler.cluster.cluster import Cluster
from colo_scheduler.cluster.holding import holding_of, published_of
from colo_scheduler.cluster.node import Node
from colo_scheduler.cluster.pool import Importance, PoolName, importance_of, pool_of
from colo_scheduler.commit.held import HeldAttempt, Over, Redelivery, publish, released
from colo_scheduler.commit.rechecks import Rechecks
from colo_scheduler.commit.recoveries import Recoveries, Recovery
from colo_scheduler.ledger.port import (
    CALL_MAX,
    HOLDS_MAX,
    PUT_BACK_MAX,
    CommitLedger,
    Hold,
    HoldRefused,
    HoldsReleased,
    LedgerAnswered,
    LedgerRows,
    LoadLedgerRows,
    NodeAnswer,
    NodeCommit,
    NodeRow,
    PutBackRows,
    name_of,
)
from colo_scheduler.placement.choice import Choice
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.requests.queue import RequestQueue
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["CommitTurn", "Commits", "importance_of_work", "load_rows"]

_ROW_MOVED: Final = frozenset({Reason.LEDGER_CONFLICT, Reason.LEDGER_DISAGREES})


class NodeCall:
    """The holds that are written to one node's row together, at most HOLDS_MAX.

    `expect`: the revision of the row before the call. `is_chained`: `expect` counts on calls that the ledger has not answered.
    """

    __slots__ = ("expect", "holds", "is_chained", "node")

    def __init__(self, node: str, expect: int, *, is_chained: bool) -> None:
        self.node, self.expect, self.is_chained = node, expect, is_chained
        self.holds: list[Hold] = []


class CommitTurn:
    """The places that one class takes in one turn (`Commits.place`). `placements`: the placement of each request, in order.

    `importance`: the importance of the class's holds; None for a reservation, which is never preempted.
    """

    __slots__ = ("_by_row", "importance", "now_ms", "placements", "pool")

    def __init__(self, request: RequestClass, now_ms: int) -> None:
        self.now_ms = now_ms
        self.pool = pool_of(request.band)
        self.importance = None if request.reserves else importance_of(request.band, request.priority)
        self.placements: list[Placement] = []
        self._by_row: dict[int, list[NodeCall]] = {}

    def open_call(self, row: int) -> NodeCall | None:
        """The call of this node that has room for one more hold; None without one."""
        calls = self._by_row.get(row)
        return calls[-1] if calls and len(calls[-1].holds) < HOLDS_MAX else None

    def begin(self, row: int, call: NodeCall) -> NodeCall:
        """Add the next holds of this node to this call; returns the call."""
        self._by_row.setdefault(row, []).append(call)
        return call

    def commits(self) -> Iterator[NodeCommit]:
        """The commits of the turn: nodes in the order of their first place, the calls of a node one after the other."""
        for calls in self._by_row.values():
            for each in calls:
                yield NodeCommit(
                    node=each.node, expect=each.expect, holds=tuple(each.holds), is_chained=each.is_chained
                )


class Commits:
    """Every place that is held or assumed, and the only writer of holds in the cluster."""

    def __init__(
        self,
        policy: SchedulerPolicy,
        cluster: Cluster,
        queue: RequestQueue,
        over: Over,
        counts: Counter[str],
        shards: Partitions,
    ) -> None:
        self._policy = policy
        self._cluster = cluster
        self._queue = queue
        self._over = over
        self._counts = counts
        self._shards = shards
        self._rounds = 0
        self._turns: list[CommitTurn] = []
        self._lost_commits: dict[Attempt, int] = {}
        self._rechecks = Rechecks(policy.recheck_ms, policy.ledger_refresh_ms)
        self._outlived: list[Attempt] = []
        self._late: dict[Attempt, PlacementRequest] = {}
        self._recoveries = Recoveries(over)
        # The moment (ms) at which each assumed attempt was assumed; the oldest first.
        self._assumed: dict[Attempt, int] = {}
        self.held: dict[Attempt, HeldAttempt] = {}
        self.redelivery = Redelivery(self.held, over, shards)
        self.unreadable: dict[str, tuple[str, ...]] = {}
        self.unmet: dict[str, tuple[int, int]] = {}
        """Revision and changes of ledger rows without holds whose nodes have reported nothing, by node."""
        self.floor = 0
        """The ledger's floor as last read: the revision of nodes that have no row."""
        self.is_loaded = False
        self.compared = ""
        """The identity of the ledger that commits are for."""

    # ---- forward

    def turn(self, request: RequestClass, now_ms: int) -> CommitTurn:
        """Begin to place requests of one class; the next `calls` commits the places that `place` adds to the turn."""
        turn = CommitTurn(request, now_ms)
        self._turns.append(turn)
        return turn

    def place(
        self, turn: CommitTurn, placement_request: PlacementRequest, choice: Choice, subtracted: Choice | None = None
    ) -> None:
        """Hold a choice for a request at once, so that the next decision sees it, and commit it to the ledger with the turn.

        `subtracted` is held on the node instead of the choice, where running attempts already hold the rest of the choice.
        """
        attempt = (placement_request.replica, placement_request.attempt)
        if attempt in self.held:
            raise InvariantBroken("an attempt was decided twice", replica=attempt[0], attempt=attempt[1])
        row, shares, holding, _, _ = subtracted or choice
        node = self._cluster.nodes[row]
        importance = turn.importance
        self._cluster.hold(node, attempt, shares, turn.pool, holding, is_choice=True, importance=importance)
        call = turn.open_call(row) or turn.begin(row, self._begin_call(node))
        place = placement_of(placement_request, node, choice, turn.now_ms)
        generation, inside = call.expect + 1, choice.inside
        self.held[attempt] = HeldAttempt(
            place, generation, placement_request=placement_request, inside=inside, importance=importance
        )
        self._assumed[attempt] = turn.now_ms
        call.holds.append(Hold(placement=place, generation=generation, inside=inside))
        turn.placements.append(place)

    def _begin_call(self, node: Node) -> NodeCall:
        """Begin one more call that writes the row of this node; it counts as in flight."""
        if node.name in self.unmet:
            node.revision, node.changes = self.unmet.pop(node.name)
        if not node.changes and not node.in_flight:
            node.revision = max(node.revision, self.floor)
        # The calls in flight are accepted one after the other, or this call is refused with them.
        call = NodeCall(node.name, node.revision + node.in_flight, is_chained=node.in_flight > 0)
        node.in_flight += 1
        return call

    def calls(self) -> list[Effect]:
        """The ledger calls for all places since the last `calls`: as few as possible, at most HOLDS_MAX holds in each."""
        turns, self._turns = self._turns, []
        self._rounds += 1
        effects: list[Effect] = []
        call: list[NodeCommit] = []
        room = HOLDS_MAX
        for reserve in (reserve for turn in turns for reserve in turn.commits()):
            count = len(reserve.holds)
            if count > room:
                effects.append(self._call(call))
                call, room = [], HOLDS_MAX
            call.append(reserve)
            room -= count
        if call:
            effects.append(self._call(call))
        return effects

    def _call(self, reserves: Sequence[NodeCommit]) -> CommitLedger:
        jobs = {one.placement.job: None for reserve in reserves for one in reserve.holds}
        return CommitLedger(
            reserves=tuple(reserves), fences=self._shards.fences_of(jobs), round=self._rounds, compared=self.compared
        )

    # ---- answers

    def answered(self, event: LedgerAnswered, now_ms: int, *, is_late: bool = False) -> list[Effect]:
        """Publish accepted places, give refused places back, and read the changed rows again.

        `is_late`: the facts behind the decisions are old. The requests are decided again once newer facts were received.
        """
        accepted: list[HeldAttempt] = []
        reload: set[str] = set()
        for answer in event.answers:
            node = self._cluster.node(answer.node)
            node.in_flight = max(0, node.in_flight - 1)
            if self._is_known(node, answer):
                node.revision = answer.revision
            else:
                reload.add(node.name)
            _note_changes(node, answer)
            for attempt in answer.accepted:
                held = self.held.get(attempt)
                if held is not None:
                    held.placement_request = None
                    self._assumed.pop(attempt, None)
                    self._lost_commits.pop(attempt, None)
                    self.redelivery.add(attempt)
                    if not self._over.judge_held(attempt, node.name):
                        accepted.append(held)
            for refused in answer.refused:
                reload.update(self._give_back(node, refused, now_ms, is_late=is_late))
        self._counts["placements_committed"] += len(accepted)
        effects: list[Effect] = list(publish(accepted, now_ms))
        return effects + self.reload(sorted(reload))

    def take_outlived(self) -> list[Attempt]:
        """The requested attempts that the ledger knows to be over, since the last call."""
        taken, self._outlived = self._outlived, []
        return taken

    def _is_known(self, node: Node, answer: NodeAnswer) -> bool:
        """Whether every hold of the node at this revision is known here: no other scheduler wrote before this call or after it."""
        if not answer.accepted:
            return answer.revision == node.revision
        is_known = False
        for attempt in answer.accepted:
            held = self.held.get(attempt)
            if held is not None:
                if held.generation != answer.revision:
                    return False
                is_known = True
        return is_known

    def _give_back(self, node: Node, refused: HoldRefused, now_ms: int, *, is_late: bool) -> list[str]:
        """Undo one assumption; returns the nodes whose rows are out of date here."""
        attempt = (refused.replica, refused.attempt)
        held = self.held.get(attempt)
        if held is None or held.placement_request is None:
            return []
        placement_request = held.placement_request
        self.forget(attempt)
        self._counts["commits_late" if is_late else f"commits_refused_{refused.reason.value}"] += 1
        stale = {node.name} if refused.reason in _ROW_MOVED else {refused.held_on} - {""}
        if refused.reason is Reason.OLDER_ATTEMPT:
            self._over.add((refused.replica, max(refused.least - 1, refused.attempt)))
            self._outlived.append(attempt)
        if (
            refused.reason is Reason.OLDER_ATTEMPT
            or attempt in self._over
            or not self._shards.owns(placement_request.job)
        ):
            self._lost_commits.pop(attempt, None)
            return sorted(stale)
        lost = self._lost_commits.get(attempt, 0) + 1
        if is_late:
            self._late[attempt] = placement_request
            self._queue.delay(placement_request, now_ms + self._policy.conflict_wait_ms)
        elif lost <= self._policy.commit_tries:
            self._lost_commits[attempt] = lost
            self._queue.put_back([placement_request])
        else:
            self._lost_commits.pop(attempt, None)
            self._queue.delay(placement_request, now_ms + self._policy.conflict_wait_ms)
        return sorted(stale)

    def released(self, event: HoldsReleased, now_ms: int) -> list[Effect]:
        """Give the released capacity back and publish the releases."""
        count = 0
        for deleted in event.released:
            node = self._cluster.find(deleted.node)
            # The ledger repeats a release without a write: newer changes of that row may be another scheduler's.
            is_news = False
            for attempt in deleted.attempts:
                is_news = self.forget(attempt) or is_news
            if node is not None and is_news and deleted.changes == node.changes + 1:
                node.changes = deleted.changes
            count += len(deleted.attempts)
        self._counts["holds_released"] += count
        return list(released(event.released, now_ms))

    def tell_again(self, attempts: Sequence[Attempt], now_ms: int) -> list[Effect]:
        """Publish again those places that the jobs service does not know although they were committed at least 2 s ago.

        Their scheduler may have ended between the commit and the publication.
        """
        found = [self.held[attempt] for attempt in attempts if self.redelivery.waits_long(attempt, now_ms)]
        self._counts["placements_told_again"] += len(found)
        return list(publish(found, now_ms))

    def look_up(self, now_ms: int) -> list[Effect]:
        """Ask which orders were carried out, where that is due, and read the rows of places that are to be published again.

        Their scheduler may have ended between the fact and the order, or an order was lost.
        """
        return [*self.redelivery.ask(now_ms), *load_rows(self.redelivery.read(now_ms))]

    def started(self, attempt: Attempt) -> bool:
        """A node has started the attempt; returns whether that is new. True when another scheduler holds the attempt."""
        self.redelivery.remove(attempt)
        held = self.held.get(attempt)
        if held is None:
            return True
        is_news, held.is_confirmed = not held.is_confirmed, True
        return is_news

    def is_elsewhere(self, attempt: Attempt, node: str) -> bool:
        """Whether the ledger is known to hold the attempt on another node than this one."""
        held = self.held.get(attempt)
        return held is not None and not held.is_assumed and held.placement.node != node

    def gave_up(self, attempt: Attempt) -> None:
        """The attempt is not requested any more: forget its count of lost commits."""
        self._lost_commits.pop(attempt, None)

    def change(self, attempt: Attempt, placement: Placement) -> bool:
        """Replace the placement that a reservation's attempt holds, in memory only; returns whether that changed anything."""
        held = self.held.get(attempt)
        node = self._cluster.find(placement.node)
        if held is None or node is None or held.placement == placement:
            return False
        held.placement = placement
        pool, holding = pool_of(placement.band), holding_of(placement)
        importance, at_ms = importance_of_work(placement), placement.decided_at_ms
        self._cluster.hold(node, attempt, placement.zones, pool, holding, at_ms=at_ms, importance=importance)
        self._compare(node)
        return True

    def _compare(self, node: Node) -> None:
        """Compare the node with its committed holdings; assumed and new holdings are left out."""
        if node.holdings or node.problems:
            committed = {
                attempt for attempt in node.holdings if (held := self.held.get(attempt)) and not held.is_assumed
            }
            self._cluster.compare(node, [attempt for attempt in node.holdings if attempt not in committed])

    def forget(self, attempt: Attempt) -> bool:
        """Drop the place of the attempt, in memory only; returns whether it held a place."""
        held = self.held.pop(attempt, None)
        if held is None:
            return False
        self._assumed.pop(attempt, None)
        self.redelivery.remove(attempt)
        node = self._cluster.find(held.placement.node)
        if node is not None:
            self._cluster.drop(node, attempt, held.importance)
        return True

    def expire(self, now_ms: int) -> list[Effect]:
        """Drop assumptions that the ledger has not answered for `assume_ms`; the requests are decided again once the rows are read.

        When the commit was written after all, its row shows that and the request counts as placed there.
        """
        stale: set[str] = set()
        for attempt, since_ms in list(self._assumed.items()):
            if now_ms - since_ms < self._policy.assume_ms:
                break
            held = self.held[attempt]
            node = self._cluster.node(held.placement.node)
            node.in_flight = 0
            stale.add(node.name)
            self.forget(attempt)
            self._counts["assumptions_expired"] += 1
            if (
                held.placement_request is not None
                and attempt not in self._over
                and self._shards.owns(held.placement_request.job)
            ):
                self._queue.put_back([held.placement_request])
        return self.reload(sorted(stale))

    def expiry_ms(self) -> int | None:
        """When the oldest assumption expires; None without assumptions."""
        since_ms = next(iter(self._assumed.values()), None)
        return None if since_ms is None else since_ms + self._policy.assume_ms

    # ---- rows

    def reload(self, nodes: Sequence[str]) -> list[Effect]:
        """Read these rows again; no place is decided on these nodes until the rows are read."""
        for name in nodes:
            self._cluster.settle(self._cluster.node(name), is_reloading=True)
        return load_rows(nodes)

    def recover(self, node: str, recovery: Recovery) -> list[Effect]:
        """An executor came back: once its row is read, the held attempts that it does not run are ordered again."""
        self._recoveries.note(node, recovery)
        return self.reload([node])

    def order_all(self, name: str) -> list[Effect]:
        """Order every held attempt of this scheduler's shards once more: whoever runs it, or has ended it, says so again."""
        nodes = {
            held.placement.node
            for held in self.held.values()
            if not held.is_assumed and not name_of(held.placement.replica) and self._shards.owns(held.placement.job)
        }
        for node in sorted(nodes):
            self._recoveries.note(node, Recovery(running=frozenset(), name=name))
        return self.reload(sorted(nodes))

    def recheck(self, now_ms: int) -> list[Effect]:
        """Order those attempts of this scheduler's shards once more that have held a place for long: a turn of `Rechecks`."""
        nodes = []
        for name, attempts in self._rechecks.due(lambda: self._cluster.rows, self._settled_on):
            if name not in self._recoveries:
                held = self._cluster.node(name).holds
                self._recoveries.note(name, Recovery(running=frozenset(held) - attempts, name=f"recheck:{now_ms}"))
                nodes.append(name)
                self._counts["places_rechecked"] += len(attempts)
        return self.reload(nodes) if nodes else []

    def _settled_on(self, name: str) -> list[Attempt]:
        """The started attempts of this scheduler's shards on the node; `Redelivery` looks after those that were not started."""
        return [
            held.attempt
            for held in self._holds_of(self._cluster.node(name))
            if held.is_confirmed and not name_of(held.placement.replica) and self._shards.owns(held.placement.job)
        ]

    def rows(self, event: LedgerRows, now_ms: int) -> list[Effect]:
        """Take rows as the truth. A new place whose request waits here is published as if it had just been committed."""
        found: list[HeldAttempt] = []
        again: list[Effect] = []
        self._delay_late(now_ms)
        for row in event.rows:
            if self._is_unmet(row):
                # The row has no holds, so nothing is published again.
                self.redelivery.take(row.node)
                if row.changes:
                    self.unmet[row.node] = (row.revision, row.changes)
                continue
            self.unmet.pop(row.node, None)
            node = self._cluster.node(row.node)
            if _is_lost(node, row):
                self._counts["rows_put_back"] += 1
                again.append(PutBackRows(rows=(self._row_of(node),), floor=self.floor))
                continue
            waited_for = self._take_row(node, row)
            redelivery = [held for held in self.redelivery.take(row.node) if held not in waited_for]
            self._counts["placements_told_again"] += len(redelivery)
            found += [*waited_for, *redelivery]
            again.extend(self._recoveries.order_missing(row.node, self._holds_of(node), now_ms))
        return [*publish(found, now_ms), *again]

    def put_back(self) -> list[Effect]:
        """Put every row back into a ledger that may have lost some: what was committed is known here."""
        nodes = [node for node in self._cluster.nodes if node.revision > 0]
        return [
            PutBackRows(rows=tuple([self._row_of(node) for node in nodes[at : at + PUT_BACK_MAX]]), floor=self.floor)
            for at in range(0, len(nodes), PUT_BACK_MAX)
        ]

    def _row_of(self, node: Node) -> NodeRow:
        """The row of a node as it was when it was read or written last."""
        held = [held for held in self._holds_of(node) if not held.is_assumed and held.attempt not in self._over]
        return NodeRow(
            node=node.name,
            revision=node.revision,
            changes=node.changes,
            holds=tuple([Hold(placement=h.placement, generation=h.generation, inside=h.inside) for h in held]),
            confirmed=tuple([h.attempt for h in held if h.is_confirmed]),
        )

    def _delay_late(self, now_ms: int) -> None:
        """The ledger answers again: delay late requests by conflict_wait_ms, so that newer facts are received first."""
        late, self._late = self._late, {}
        for attempt, placement_request in late.items():
            if self._queue.remove(attempt) is not None:
                self._queue.delay(placement_request, now_ms + self._policy.conflict_wait_ms)

    def _is_unmet(self, row: NodeRow) -> bool:
        """Whether only the ledger knows the node and its row has no holds: a deleted node is not added to the cluster again."""
        is_known = self._cluster.find(row.node) is not None or row.node in self._recoveries
        return not is_known and not row.holds and not row.unreadable

    def _take_row(self, node: Node, row: NodeRow) -> list[HeldAttempt]:
        node.revision, node.changes = row.revision, row.changes
        in_row = {hold.attempt for hold in row.holds}
        for held in self._holds_of(node):
            if not held.is_assumed and held.attempt not in in_row:
                self.forget(held.attempt)
        confirmed = set(row.confirmed)
        waited_for = []
        for hold in row.holds:
            attempt = hold.attempt
            known = self.held.get(attempt)
            if known is not None and not known.is_assumed:
                known.is_confirmed = known.is_confirmed or attempt in confirmed
                continue
            # Another scheduler placed the assumed attempt first, or the answer to our commit is still to come: the row is right.
            self.forget(attempt)
            place = hold.placement
            is_confirmed = attempt in confirmed
            inside, importance = hold.inside, importance_of_work(place)
            held = HeldAttempt(place, hold.generation, is_confirmed=is_confirmed, inside=inside, importance=importance)
            self.held[attempt] = held
            if not is_confirmed:
                self.redelivery.add(attempt)
            pool, holding = pool_of(place.band), holding_of(place)
            at_ms = place.decided_at_ms
            self._cluster.hold(node, attempt, place.zones, pool, holding, at_ms=at_ms, importance=importance)
            if self._queue.remove(attempt) is not None or known is not None:
                self._lost_commits.pop(attempt, None)
                waited_for.append(held)
        self._compare(node)
        # An unreadable row may hide more holds: no place is decided on the node until its row is repaired.
        self._cluster.settle(node, is_reloading=bool(row.unreadable))
        if row.unreadable and node.name not in self.unreadable:
            self._counts["rows_unreadable"] += 1
        self.unreadable.pop(node.name, None)
        if row.unreadable:
            self.unreadable[node.name] = row.unreadable
        return waited_for

    def loaded(self, floor: int, now_ms: int) -> list[Effect]:
        """All rows were read: ask about unconfirmed attempts. With shards that happens after each shard is taken."""
        self.is_loaded = True
        self.floor = floor
        if not self._shards.count:
            self.redelivery.ask_all(now_ms)
        return []

    def changed_nodes(self, changes: Sequence[tuple[str, int]], floor: int) -> list[str]:
        """The nodes whose rows other schedulers changed or forgot."""
        self.floor = max(self.floor, floor)
        known = {name: count for name, (_, count) in self.unmet.items()}
        known |= {node.name: node.changes for node in self._cluster.nodes if node.name not in known}
        found = [name for name, count in changes if known.get(name, 0) != count]
        listed = {name for name, _ in changes}
        for name in sorted(self.unmet.keys() - listed):
            del self.unmet[name]
        return found + sorted(node.name for node in self._cluster.nodes if node.changes and node.name not in listed)

    def may_forget(self, node: Node) -> bool:
        """Whether no hold, call, read or recovery is known to depend on the node."""
        is_busy = node.in_flight or node.is_reloading or node.name in self._recoveries or node.name in self.unreadable
        return not node.holds and not is_busy

    def _holds_of(self, node: Node) -> list[HeldAttempt]:
        return [self.held[attempt] for attempt in sorted(node.holds)]


def placement_of(placement_request: PlacementRequest, node: Node, choice: Choice, now_ms: int) -> Placement:
    """The placement of the request on this node."""
    held = choice.holding
    return Placement(
        replica=placement_request.replica,
        job=placement_request.job,
        attempt=placement_request.attempt,
        node=node.name,
        zones=choice.shares,
        cpu_mcpu=placement_request.request.cpu_mcpu,
        memory_bytes=placement_request.request.memory_bytes,
        qos=placement_request.qos,
        band=placement_request.band,
        run=_run_on(placement_request, node),
        priority=placement_request.priority,
        sample_seq=node.sample_seq,
        decided_at_ms=now_ms,
        traceparent=placement_request.traceparent,
        cpus=CpuSet(held.cpus).format() if held else "",
        cpu_exclusive=published_of(held.exclusive) if held else CpuExclusive.NONE,
        devices=held.devices if held else (),
        huge_pages=held.huge_pages if held else (),
        reservation=choice.reservation,
        queue=placement_request.queue,
        tenant=placement_request.tenant,
        cpu_policy=placement_request.constraints.cpu_policy,
    )


def _run_on(request: PlacementRequest, node: Node) -> RunSpec:
    """What the request runs, with the limit of CPU in the node's own CPUs, which are what it enforces.

    Request and limit of batch work count in CPUs of the reference machine where the node has a rule `cpu_normalization_pct`: the
    limit is divided by it, rounded up (koordinator-sh/koordinator:pkg/koordlet/runtimehooks/hooks/batchresource). Prod work and the
    mid tier go by the node's own CPUs.
    """
    limits, reported = request.run.limits, node.reported
    if limits is None or not limits.cpu_mcpu or reported is None or reported.rules.cpu_normalization_pct == 100:
        return request.run
    if pool_of(request.band) is not PoolName.BATCH:
        return request.run
    mcpu = ceil_div(limits.cpu_mcpu * 100, reported.rules.cpu_normalization_pct)
    return replace(request.run, limits=replace(limits, cpu_mcpu=mcpu))


def load_rows(nodes: Sequence[str]) -> list[Effect]:
    """Effects that read these rows, at most CALL_MAX rows each."""
    return [LoadLedgerRows(nodes=tuple(nodes[start : start + CALL_MAX])) for start in range(0, len(nodes), CALL_MAX)]


def _is_lost(node: Node, row: NodeRow) -> bool:
    """Whether the ledger lost what it had written of a row. Its numbers only rise; a row that was forgotten begins at the floor."""
    return not row.unreadable and (row.revision < node.revision or 0 < row.changes < node.changes)


def _note_changes(node: Node, answer: NodeAnswer) -> None:
    # A call that wrote nothing proves nothing about other writers, and a larger step means that another scheduler wrote too: the
    # old number stays, and the next refresh reads the row. Both counters are equal after the first write since the floor.
    if not answer.accepted:
        return
    is_first = not node.changes and answer.changes == answer.revision
    if is_first or answer.changes == node.changes + 1:
        node.changes = answer.changes


def importance_of_work(work: PlacementRequest | Placement) -> Importance | None:
    """The importance of the work that holds a place; None for a reservation, which is never preempted."""
    return None if name_of(work.replica) else importance_of(work.band, work.priority)
