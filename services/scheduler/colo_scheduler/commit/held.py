"""Attempts that hold a place, attempts that are over, and what is published of them: facts, orders for the nodes, and message ids
that a restart repeats.

A reservation's attempt is no replica: it holds a place, and nothing is published of it here.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Final

from msgspec import Struct

from colo_common.events.effects import Publish
from colo_common.events.job import PlacementRequest
from colo_common.events.placement import ApplyPlacements, NodeRelease, PlacementsDecided, PlacementsReleased
from colo_common.model.placement import Attempt, Placement, attempt_key
from colo_scheduler.cluster.preemptible_index import Importance
from colo_scheduler.ledger.port import RESERVATION_PREFIX, Released, name_of

__all__ = ["HeldAttempt", "Over", "order", "publish", "released"]


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

    Requests, withdrawals and ends come over separate streams, so an end may be received before its placement request.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._highest: OrderedDict[str, int] = OrderedDict()

    def add(self, attempt: Attempt) -> None:
        """This attempt, and every older one, is over."""
        replica, number = attempt
        highest = self._highest
        before = highest.get(replica)
        if before is None:
            highest[replica] = max(number, 0)
        else:
            highest.move_to_end(replica)
            if number > before:
                highest[replica] = number
        if len(highest) > self._limit:
            highest.popitem(last=False)

    def newest(self, replica: str) -> int:
        """The newest attempt of the replica that is known to be over; 0 when none is."""
        return self._highest.get(replica, 0)

    def __contains__(self, attempt: Attempt) -> bool:
        return self._highest.get(attempt[0], 0) >= attempt[1]


_DECIDED_MAX = 50
_ORDERED_MAX = 50
_DECIDED_ORDER: Final = attrgetter("decided_at_ms", "node", "replica", "attempt")
_COMMAND_ORDER: Final = itemgetter(0)
_REPLICA_ORDER: Final = attrgetter("replica", "attempt")


def publish(held: Iterable[HeldAttempt], now_ms: int) -> list[Publish]:
    """The facts (at most 50 placements each) and then one order for each node and generation.

    The id of an order names node and generation, which the ledger keeps. The ids of facts and orders end in a digest of their
    placements: after a restart, one part of a commit must not be taken for another part of it.
    """
    replicas = _replicas(held)
    return _facts(replicas, now_ms) + _orders(replicas, now_ms, "")


def order(held: Sequence[HeldAttempt], now_ms: int, again: str = "") -> list[Publish]:
    """One order for each node and generation, a node's in ascending generation; at most 50 placements in one order.

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
    for start in range(0, len(decided), _DECIDED_MAX):
        placements = tuple(decided[start : start + _DECIDED_MAX])
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
        if len(members) > 1:
            members.sort(key=_REPLICA_ORDER)
        for start in range(0, len(members), _ORDERED_MAX):
            placements = tuple(members[start : start + _ORDERED_MAX])
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
