"""Facts and requests about restrictions: what operators forbid. The gateway owns the table, executors report what they did."""

from typing import Literal

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.model.restriction import Restriction, RestrictionKind, RestrictionScope
from colo_common.model.units import Ms, NodeName, Number

__all__ = [
    "LiftRestrictions",
    "ListRestrictions",
    "QuiesceProgress",
    "RestrictionChange",
    "RestrictionList",
    "RestrictionsApplied",
    "RestrictionsChanged",
    "SetRestriction",
]


class RestrictionChange(Struct, frozen=True, kw_only=True):
    """One line of the audit: what was done to a restriction, when, by whom and why. `expired`: its time was over.

    `revision` is that of the table with this change.
    """

    at_ms: Ms
    action: Literal["set", "changed", "lifted", "expired"]
    restriction: Restriction
    by: str = ""
    reason: str = ""
    revision: Number = 0


class RestrictionsChanged(Fact, frozen=True, kw_only=True):
    """The whole table of restrictions in force. The highest `revision` counts; the bus keeps the last message.

    `audit` are the changes that led from the revision before to this one.
    """

    revision: Number
    restrictions: tuple[Restriction, ...] = ()
    audit: tuple[RestrictionChange, ...] = ()


class RestrictionsApplied(Fact, frozen=True, kw_only=True):
    """The node has done what the restrictions of `revision` ask of it. `suspended` counts its suspended batch replicas now.

    `failed` has one sentence for each replica that could not be suspended or resumed, at most ten. Published for every revision
    that changes something for the node, and when a replica is suspended or resumed.
    """

    node: NodeName
    revision: Number
    suspended: Number = 0
    failed: tuple[str, ...] = ()


class SetRestriction(Struct, frozen=True, kw_only=True):
    """Put this restriction in force; `since_ms` is set by the gateway, `until_ms` counts as `for_ms` from now when that is set.

    The same restriction again changes nothing; other words, time or options replace those of the one in force. The reply is
    RestrictionList. Refused (400) for what makes no sense, (404) for an unknown node, (429) above the limit.
    """

    restriction: Restriction
    for_ms: int | None = None


class LiftRestrictions(Struct, frozen=True, kw_only=True):
    """Lift the restrictions of these kinds from a target. The reply is RestrictionList.

    Lifting what is not in force changes nothing.
    """

    kinds: tuple[RestrictionKind, ...]
    scope: RestrictionScope
    target: str = ""
    by: str = ""
    reason: str = ""


class ListRestrictions(Struct, frozen=True, kw_only=True):
    """All restrictions in force. The reply is RestrictionList."""


class QuiesceProgress(Struct, frozen=True, kw_only=True):
    """How far the nodes have followed the last quiesce or its end. `missing` are at most 100 nodes that did not confirm yet.

    `nodes` counts the nodes that are not lost; `slowest_ms` is the time from the message to the last confirmation, by the wall
    clocks of the gateway and the node.
    """

    revision: int
    nodes: int = 0
    confirmed: int = 0
    suspended: int = 0
    slowest_ms: int = 0
    missing: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class RestrictionList(Struct, frozen=True, kw_only=True):
    """The restrictions in force by kind, scope and target, the table's `revision`, and the newest audit lines, newest first.

    `changes`: what this request changed, nothing for a repeated one. `quiesce` is None until the fleet was quiesced once. `now_ms`
    is the time of the reply by the clock of the other moments.
    """

    revision: int
    now_ms: int
    restrictions: tuple[Restriction, ...] = ()
    changes: tuple[RestrictionChange, ...] = ()
    audit: tuple[RestrictionChange, ...] = ()
    quiesce: QuiesceProgress | None = None
