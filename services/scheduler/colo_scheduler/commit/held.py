"""Attempts that hold a place, attempts that are over, and what is published of them, once and again: facts, orders for the nodes,
and message ids that a restart repeats.

A reservation's attempt is no replica: it holds a place, and nothing is published of it here.

A scheduler may end between commit and publication, and an order may be lost with its stream. So the jobs service is asked about
each attempt still held ten seconds after its decision (`Redelivery`); short work has ended by then. It is asked again about an
attempt that is not started, each time when the attempt is about twice as old. After the second answer "not started" the placement
is published again: a jobs service that was only behind has caught up by then. Placements are published again a few at a time,
because a receiver that is behind gets all of them twice.
"""

import hashlib
import heapq
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Final

from msgspec import Struct

from colo_common.events.effects import Publish
from colo_common.events.job import PlacementRequest
from colo_common.events.placement import ApplyPlacements, NodeRelease, PlacementsDecided, PlacementsReleased
from colo_common.model.paging import parts_of
from colo_common.model.partition import Partitions
from colo_common.model.placement import Attempt, Placement, attempt_key
from colo_scheduler.cluster.pool import Importance
from colo_scheduler.commit.jobs_asked import AskStarted
from colo_scheduler.ledger.port import RESERVATION_PREFIX, Released, name_of

__all__ = ["PUBLISHED_WITHIN_MS", "HeldAttempt", "Over", "Redelivery", "order", "publish", "released"]


class HeldAttempt(Struct, eq=False, gc=False):
    """One attempt that holds a place. `placement_request` is set while the place is assumed: decided here and not yet committed.

    `inside`: attempts whose places are part of this place, as committed. `is_evicted`: its eviction was counted.
    `importance`: the importance that the place is held with; None: it is never preempted.
    """

    placement: Placement
    generation: int
    placement_request: PlacementRequest | None = None
    is_confirmed: bool = False
    inside: tuple[Attempt, ...] = ()
    is_evicted: bool = False
    importance: Importance | None = None

    @property
    def attempt(self) -> Attempt:
        """The attempt that holds the place."""
        return (self.placement.replica, self.placement.attempt)

    @property
    def is_assumed(self) -> bool:
        """Whether the ledger has not answered yet."""
        return self.placement_request is not None


class Over:
    """The highest finished attempt of each replica, at most `limit` replicas; the replica longest untouched is forgotten.

    Requests, withdrawals and ends come over separate streams, so an end may be received before its placement request. With the
    number the node is kept on which the attempt ended, where it is known: the ledger may hold that number on another node.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._highest: OrderedDict[str, int] = OrderedDict()
        # Where the highest one ended, if only there.
        self._nodes: dict[str, str] = {}

    def add(self, attempt: Attempt, node: str = "") -> None:
        """This attempt is over, on this node or ("") wherever it was, and every older one."""
        replica, number = attempt
        highest = self._highest
        before = highest.get(replica)
        if before is None:
            highest[replica] = max(number, 0)
        else:
            highest.move_to_end(replica)
            if number > before:
                highest[replica] = number
        is_newer = before is None or number > before
        if node and (is_newer or (number == before and replica in self._nodes)):
            self._nodes[replica] = node
        elif is_newer or (number == before and not node):
            self._nodes.pop(replica, None)
        if len(highest) > self._limit:
            forgotten, _ = highest.popitem(last=False)
            self._nodes.pop(forgotten, None)

    def newest(self, replica: str) -> int:
        """The newest attempt of the replica that is known to be over; 0 when none is."""
        return self._highest.get(replica, 0)

    def judge_held(self, attempt: Attempt, node: str) -> bool:
        """Whether an attempt is over that the ledger holds on this node.

        What ended under its number on another node was not it, and counts no more.
        """
        replica, number = attempt
        if attempt not in self:
            return False
        if self._nodes.get(replica, node) == node or self._highest[replica] > number:
            return True
        del self._nodes[replica]
        self._highest[replica] = number - 1
        return False

    def __contains__(self, attempt: Attempt) -> bool:
        return self._highest.get(attempt[0], 0) >= attempt[1]


_DECIDED_MAX = 50
_ORDERED_MAX = 50
_DECIDED_ORDER: Final = attrgetter("decided_at_ms", "node", "replica", "attempt")
_COMMAND_ORDER: Final = itemgetter(0)
_REPLICA_ORDER: Final = attrgetter("replica", "attempt")


def publish(held: Iterable[HeldAttempt], now_ms: int) -> list[Publish]:
    """The facts and then one order for each node and generation; more of them where one would not fit into a message.

    A message has at most 50 placements, and fewer where their commands and environments are long. The id of an order names node
    and generation, which the ledger keeps. The ids of facts and orders end in a digest of their placements: after a restart, one
    part of a commit must not be taken for another part of it.
    """
    replicas = _replicas(held)
    return _facts(replicas, now_ms) + _orders(replicas, now_ms, "")


def order(held: Sequence[HeldAttempt], now_ms: int, again: str = "") -> list[Publish]:
    """One order for each node and generation, a node's in ascending generation; cut as by `publish`.

    The facts of attempts that no node is known to have started come first: their scheduler may have ended before it published
    them, and no replica may run without its fact. `again` names the event behind a repeated order, so that the bus keeps it.
    """
    replicas = _replicas(held)
    return _facts([each for each in replicas if not each.is_confirmed], now_ms) + _orders(replicas, now_ms, again)


def _replicas(held: Iterable[HeldAttempt]) -> list[HeldAttempt]:
    return [each for each in held if not each.placement.replica.startswith(RESERVATION_PREFIX)]


def _facts(replicas: Sequence[HeldAttempt], now_ms: int) -> list[Publish]:
    decided = sorted([each.placement for each in replicas], key=_DECIDED_ORDER)
    effects = []
    for placements in parts_of(decided, _DECIDED_MAX):
        digest = _digest([attempt_key(p.replica, p.attempt) for p in placements])
        fact = PlacementsDecided(at_ms=now_ms, placements=placements)
        effects.append(Publish(fact=fact, id=f"scheduler:decided:{digest}", traceparent=placements[0].traceparent))
    return effects


def _orders(replicas: Sequence[HeldAttempt], now_ms: int, again: str) -> list[Publish]:
    effects = []
    suffix = f":{again}" if again else ""
    by_command: dict[tuple[str, int], list[Placement]] = {}
    for each in replicas:
        placement = each.placement
        command = (placement.node, each.generation)
        members = by_command.get(command)
        if members is None:
            by_command[command] = [placement]
        else:
            members.append(placement)
    for (node, generation), members in sorted(by_command.items(), key=_COMMAND_ORDER):
        parts: Iterable[tuple[Placement, ...]] = [tuple(members)]
        if len(members) > 1:
            members.sort(key=_REPLICA_ORDER)
            parts = parts_of(members, _ORDERED_MAX)
        for placements in parts:
            fact = ApplyPlacements(at_ms=now_ms, node=node, generation=generation, placements=placements)
            digest = _digest([attempt_key(p.replica, p.attempt) for p in placements])
            identity = f"scheduler:apply:{node}:{generation}:{digest}{suffix}"
            effects.append(Publish(fact=fact, id=identity, traceparent=placements[0].traceparent))
    return effects


def released(deleted: Sequence[Released], now_ms: int) -> list[Publish]:
    """The fact that these attempts hold nothing on their nodes any more."""
    members = [(one.node, tuple([each for each in one.attempts if not name_of(each[0])])) for one in deleted]
    nodes = tuple(NodeRelease(node=node, attempts=attempts) for node, attempts in members if attempts)
    if not nodes:
        return []
    digest = _digest([attempt_key(replica, attempt) for one in nodes for replica, attempt in one.attempts])
    return [Publish(fact=PlacementsReleased(at_ms=now_ms, nodes=nodes), id=f"scheduler:released:{digest}")]


def _digest(keys: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()[:24]


PUBLISHED_WITHIN_MS: Final = 2_000
"""A place that was decided longer ago was published, or its scheduler ended before it published the place."""
_FIRST_MS: Final = 10_000
_LEAST_WAIT_MS: Final = 5_000
_LONGEST_MS: Final = 3_600_000
_EVERY_MS: Final = 1_000
_SOON_MS: Final = 50
_MOST: Final = 5_000
"""The most attempts checked, and asked for, in one turn."""
_TELL_EVERY_MS: Final = 200
_TELL_MOST: Final = 200
"""The number of placements published again at once, plus the others that wait on the node of the last one."""
_ENOUGH: Final = 2
"""Answers "not started" after which a placement is published again; after a start or a take-over one answer is enough."""


class _Asked(Struct, gc=False):
    """An attempt that was asked for: the wait and moment (ms) of its next question, and the answers missing to publish again."""

    wait_ms: int
    at_ms: int
    missing: int


class Redelivery:
    """The committed attempts that are not known to run. Attempts of other schedulers' shards are not asked for."""

    def __init__(self, held: Mapping[Attempt, HeldAttempt], over: Over, shards: Partitions) -> None:
        self._held = held
        self._over = over
        self._shards = shards
        # Attempts never asked for, nearly in the order of their commits.
        self._new: dict[Attempt, None] = {}
        self._asked: dict[Attempt, _Asked] = {}
        # The moments of `_asked`, the next moment first; an entry that differs from its attempt's moment is outdated.
        self._moments: list[tuple[int, Attempt]] = []
        # The attempts that `ask_all` has yet to check, last first, and the least age at which they are asked for.
        self._sweep: list[Attempt] = []
        self._sweep_least_ms = 0
        # By node: attempts to publish again once the node's row was read (`_to_read`), and attempts whose row is being read.
        self._to_read: dict[str, dict[Attempt, None]] = {}
        self._reading: dict[str, dict[Attempt, None]] = {}
        self._new_at_ms = self._sweep_at_ms = self._tell_at_ms = 0

    def add(self, attempt: Attempt) -> None:
        """The ledger holds the attempt, and it is not known to run. Attempts of reservations are ignored: they never run."""
        if attempt not in self._asked and not name_of(attempt[0]):
            self._new[attempt] = None

    def remove(self, attempt: Attempt) -> None:
        """The attempt runs, or holds nothing any more. An attempt that was not added is no error."""
        if attempt in self._new:
            del self._new[attempt]
        else:
            self._asked.pop(attempt, None)

    def waits(self, attempt: Attempt) -> bool:
        """Whether the attempt is in a shard of this scheduler, committed, and neither known to run nor to be over."""
        held = self._held.get(attempt)
        if held is None or held.is_confirmed or held.is_assumed or attempt in self._over:
            return False
        return self._shards.owns(held.placement.job)

    def waits_long(self, attempt: Attempt, now_ms: int) -> bool:
        """Whether the attempt waits and was decided so long ago that its scheduler published it or never will."""
        return self.waits(attempt) and not self._is_younger(attempt, PUBLISHED_WITHIN_MS, now_ms)

    def _is_younger(self, attempt: Attempt, age_ms: int, now_ms: int) -> bool:
        # A decision later than now was made by another clock: its age is unknown, and it counts as old.
        return 0 <= now_ms - self._held[attempt].placement.decided_at_ms < age_ms

    # ---- asking

    def deadline_ms(self) -> int | None:
        """When `ask` or `read` may have something to do; None without attempts."""
        snapshots = []
        if self._new:
            snapshots.append(self._new_at_ms)
        if self._sweep:
            snapshots.append(self._sweep_at_ms)
        if self._moments:
            snapshots.append(self._moments[0][0])
        if self._to_read:
            snapshots.append(self._tell_at_ms)
        return min(snapshots, default=None)

    def ask_all(self, now_ms: int, *, least_ms: int = 0) -> None:
        """Ask soon, in parts, for each waiting attempt decided at least `least_ms` ago; one answer publishes it again."""
        self._sweep = list(self._held)[::-1]
        self._sweep_least_ms = least_ms
        self._sweep_at_ms = now_ms

    def ask(self, now_ms: int) -> list[AskStarted]:
        """Ask for due attempts: the rest of `ask_all`, attempts never asked for, and again attempts that were not started."""
        due: list[Attempt] = []
        if self._sweep and now_ms >= self._sweep_at_ms:
            due += self._due_of_all(now_ms)
        if self._new and now_ms >= self._new_at_ms:
            due += self._due_new(now_ms)
        due += self._due_again(now_ms)
        return [AskStarted(attempts=tuple(due))] if due else []

    def _due_of_all(self, now_ms: int) -> list[Attempt]:
        self._sweep_at_ms = now_ms + _SOON_MS
        part = self._sweep[-_MOST:]
        del self._sweep[-_MOST:]
        due: list[Attempt] = []
        for attempt in reversed(part):
            if not self.waits(attempt) or name_of(attempt[0]):
                continue
            if self._is_younger(attempt, self._sweep_least_ms, now_ms):
                self.add(attempt)
                continue
            due.append(attempt)
            self._note(attempt, 1, now_ms)
        return due

    def _due_new(self, now_ms: int) -> list[Attempt]:
        due: list[Attempt] = []
        looked: list[Attempt] = []
        self._new_at_ms = now_ms + _EVERY_MS
        for attempt in self._new:
            if attempt in self._held and self._is_younger(attempt, _FIRST_MS, now_ms):
                break
            if len(looked) >= _MOST:
                self._new_at_ms = now_ms + _SOON_MS
                break
            looked.append(attempt)
            if self.waits(attempt):
                due.append(attempt)
        # Attempts of other shards are not kept: a scheduler that takes over a shard checks all held attempts.
        for attempt in looked:
            del self._new[attempt]
        for attempt in due:
            self._note(attempt, _ENOUGH, now_ms)
        return due

    def _due_again(self, now_ms: int) -> list[Attempt]:
        due: list[Attempt] = []
        for _ in range(_MOST):
            if not self._moments or self._moments[0][0] > now_ms:
                break
            at_ms, attempt = heapq.heappop(self._moments)
            asked = self._asked.get(attempt)
            if asked is None or asked.at_ms != at_ms:
                continue
            if not self.waits(attempt):
                del self._asked[attempt]
                continue
            due.append(attempt)
            self._note(attempt, asked.missing, now_ms, min(2 * asked.wait_ms, _LONGEST_MS))
        return due

    def _note(self, attempt: Attempt, missing: int, now_ms: int, wait_ms: int = 0) -> None:
        """The attempt is asked for now, and again at twice its age, at a whole second, so that due attempts share a request."""
        self._new.pop(attempt, None)
        age_ms = now_ms - self._held[attempt].placement.decided_at_ms
        wait_ms = wait_ms or min(max(_LEAST_WAIT_MS, age_ms), _LONGEST_MS)
        at_ms = -(-(now_ms + wait_ms) // _EVERY_MS) * _EVERY_MS
        self._asked[attempt] = _Asked(wait_ms=wait_ms, at_ms=at_ms, missing=missing)
        heapq.heappush(self._moments, (at_ms, attempt))

    # ---- publishing again

    def not_started(self, attempts: Iterable[Attempt]) -> None:
        """The jobs service answered "not started" for these: waiting attempts with enough answers are to be published again."""
        for attempt in attempts:
            asked = self._asked.get(attempt)
            if asked is None:
                continue
            asked.missing = max(0, asked.missing - 1)
            if not asked.missing and self.waits(attempt):
                self._to_read.setdefault(self._held[attempt].placement.node, {})[attempt] = None

    def read(self, now_ms: int) -> list[str]:
        """The nodes whose rows are to be read now, in order of name; `take` then returns the attempts to publish."""
        if not self._to_read or now_ms < self._tell_at_ms:
            return []
        self._tell_at_ms = now_ms + _TELL_EVERY_MS
        nodes: list[str] = []
        count = 0
        for node, attempts in self._to_read.items():
            if count >= _TELL_MOST:
                break
            nodes.append(node)
            count += len(attempts)
        for node in nodes:
            self._reading.setdefault(node, {}).update(self._to_read.pop(node))
        return sorted(nodes)

    def take(self, node: str) -> list[HeldAttempt]:
        """The node's row was read: the attempts on it to publish again, each once."""
        return [self._held[attempt] for attempt in self._reading.pop(node, ()) if self.waits(attempt)]
