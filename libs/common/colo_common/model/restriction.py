"""Restrictions: what an operator forbids for a while, on a node, for a job, for a queue or everywhere, with who and why."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from colo_common.model.units import Ms, NodeName

__all__ = [
    "BY_MOST",
    "REASON_MOST",
    "RESTRICTIONS_MOST",
    "Restriction",
    "RestrictionKey",
    "RestrictionKind",
    "RestrictionScope",
    "Restrictions",
    "restriction_text",
]

RESTRICTIONS_MOST: Final = 1_000
"""The most restrictions in force at a time: with short reasons all of them fit into one message."""
BY_MOST: Final = 63
REASON_MOST: Final = 200

RestrictionKey = tuple[str, str, str]
"""Kind, scope and target: at most one restriction of each is in force."""


class RestrictionKind(StrEnum):
    """cordon: no new work on the node, running work stays. drain: a cordon, and running work leaves in order with its grace.

    pause: of a node, no batch work starts there and its batch work is suspended; of a job, its waiting replicas get no place and
    its running ones are suspended; of a queue, its waiting replicas get no place, and its running ones are suspended if the
    pause says so. quiesce: all batch work everywhere is suspended
    and none is placed. Online work is touched by a cordon (none is placed) and by a drain that is not `batch_only`, by no other.
    """

    CORDON = "cordon"
    DRAIN = "drain"
    PAUSE = "pause"
    QUIESCE = "quiesce"


class RestrictionScope(StrEnum):
    """What the target of a restriction names. The fleet is every node; its target is empty."""

    NODE = "node"
    JOB = "job"
    QUEUE = "queue"
    FLEET = "fleet"


class Restriction(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One restriction in force since `since_ms`, by whom and why. `until_ms` None: until an operator lifts it.

    `batch_only`: a drain that leaves online work. `grace_ms` None: every replica leaves with its own grace. `evicts`: a
    quiesce after which suspended batch work leaves, as in a drain. `suspends`: a pause of a queue that also suspends its running
    batch work.
    """

    kind: RestrictionKind
    scope: RestrictionScope
    target: NodeName = ""
    by: Annotated[str, Meta(max_length=BY_MOST)] = ""
    reason: Annotated[str, Meta(max_length=REASON_MOST)] = ""
    since_ms: Ms = 0
    until_ms: Ms | None = None
    batch_only: bool = False
    grace_ms: Ms | None = None
    evicts: bool = False
    suspends: bool = False

    @property
    def key(self) -> RestrictionKey:
        """Kind, scope and target."""
        return (self.kind.value, self.scope.value, self.target)


_DONE: Final = {
    RestrictionKind.CORDON: "cordoned",
    RestrictionKind.DRAIN: "drained",
    RestrictionKind.PAUSE: "paused",
    RestrictionKind.QUIESCE: "quiesced",
}


def restriction_text(restriction: Restriction) -> str:
    """What is done, by whom and why: "cordoned by ana: kernel upgrade", "drained of batch work by ana"."""
    of_batch = " of batch work" if restriction.kind is RestrictionKind.DRAIN and restriction.batch_only else ""
    running = " with what runs" if restriction.suspends else ""
    by = f" by {restriction.by}" if restriction.by else ""
    return f"{_DONE[restriction.kind]}{of_batch}{running}{by}" + (
        f": {restriction.reason}" if restriction.reason else ""
    )


class Restrictions:
    """The table of restrictions as a core keeps it: the one of the highest revision, without those whose time is over."""

    def __init__(self) -> None:
        self.revision = 0
        self._by_key: dict[RestrictionKey, Restriction] = {}

    def __iter__(self) -> Iterator[Restriction]:
        """The restrictions in force, by kind, scope and target."""
        return iter(self._by_key.values())

    def __len__(self) -> int:
        """The number of restrictions in force."""
        return len(self._by_key)

    def take(self, revision: int, restrictions: Iterable[Restriction], now_ms: int) -> bool:
        """Take this table in place of the kept one; False, and nothing changes, unless its revision is higher."""
        if revision <= self.revision:
            return False
        self.revision = revision
        in_force = [each for each in restrictions if each.until_ms is None or each.until_ms > now_ms]
        self._by_key = {each.key: each for each in sorted(in_force, key=lambda each: each.key)}
        return True

    def expire(self, now_ms: int) -> tuple[Restriction, ...]:
        """Take out the restrictions whose time is over."""
        over = tuple([each for each in self._by_key.values() if each.until_ms is not None and each.until_ms <= now_ms])
        for each in over:
            del self._by_key[each.key]
        return over

    def deadline_ms(self) -> int | None:
        """When the next restriction is over by itself; None when none is."""
        return min([each.until_ms for each in self._by_key.values() if each.until_ms is not None], default=None)

    def get(self, kind: RestrictionKind, scope: RestrictionScope, target: str = "") -> Restriction | None:
        """The restriction of that kind on that target."""
        return self._by_key.get((kind.value, scope.value, target)) if self._by_key else None

    @property
    def quiesce(self) -> Restriction | None:
        """The quiesce of the fleet."""
        return self.get(RestrictionKind.QUIESCE, RestrictionScope.FLEET)

    def cordon_of(self, node: str) -> Restriction | None:
        """Why the node gets no new work of any kind: a cordon, or a drain of all work."""
        drain = self.get(RestrictionKind.DRAIN, RestrictionScope.NODE, node)
        if drain is not None and not drain.batch_only:
            return drain
        return self.get(RestrictionKind.CORDON, RestrictionScope.NODE, node)

    def suspension_of(self, node: str) -> Restriction | None:
        """Why all batch work of the node is suspended: a quiesce, or a pause of the node."""
        return self.quiesce or self.get(RestrictionKind.PAUSE, RestrictionScope.NODE, node)

    def drain_of(self, node: str) -> Restriction | None:
        """Why running work of the node leaves: a drain of the node, or a quiesce that evicts."""
        drain = self.get(RestrictionKind.DRAIN, RestrictionScope.NODE, node)
        quiesce = self.quiesce
        return drain if drain is not None or quiesce is None or not quiesce.evicts else quiesce

    def no_batch_on(self, node: str) -> Restriction | None:
        """Why the node is promised no more batch work: suspension or drain. A mere cordon changes no promise."""
        return self.suspension_of(node) or self.drain_of(node)

    def pause_of(self, job: str, queue: str) -> Restriction | None:
        """Why waiting replicas of the job get no place: a pause of the job or of its queue."""
        return self.get(RestrictionKind.PAUSE, RestrictionScope.JOB, job) or self.get(
            RestrictionKind.PAUSE, RestrictionScope.QUEUE, queue
        )

    def suspended_with(self, job: str, queue: str) -> Restriction | None:
        """Why running batch replicas of the job are suspended, on any node: a pause of the job, or such a one of its queue."""
        pause = self.pause_of(job, queue)
        return None if pause is None or (pause.scope is RestrictionScope.QUEUE and not pause.suspends) else pause

    def on_node(self, node: str) -> tuple[Restriction, ...]:
        """All restrictions of the node and of the fleet."""
        return tuple(
            [
                each
                for each in self._by_key.values()
                if each.scope is RestrictionScope.FLEET or (each.scope is RestrictionScope.NODE and each.target == node)
            ]
        )
