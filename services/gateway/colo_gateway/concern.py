"""Which node, job and kind a fact is about: the filters of the event stream and of the history."""

from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import replace

from colo_common.events.fact import Fact
from colo_common.events.placement import NodeRelease
from colo_common.events.registry import EVENTS
from colo_common.events.restriction import RestrictionChange
from colo_common.model.restriction import Restriction, RestrictionScope

__all__ = ["KINDS", "TYPES", "concerning", "kind_of"]

#: The fields that list what a fact tells of several replicas or nodes.
_LISTS: Final = ("placements", "placement_requests", "changes", "attempts", "nodes", "running", "audit")
_KIND_OF: Final = {row.body.__name__: row.subject.domain for row in EVENTS}
#: The kinds of facts: the domains of their subjects.
KINDS: Final = tuple(dict.fromkeys(_KIND_OF[row.body.__name__] for row in EVENTS if row.subject.kind == "evt"))
#: The names of all types of messages.
TYPES: Final = tuple(row.body.__name__ for row in EVENTS)


def kind_of(type_: str) -> str:
    """The kind of a fact type: "placement" for PlacementsDecided."""
    return _KIND_OF[type_]


def concerning(fact: Fact, *, node: str = "", job: str = "") -> Fact | None:
    """The fact with only those members of its list that are about the node and the job; None when nothing of it is.

    An empty filter accepts everything. A fact without a list is about the node and the job that it names.
    """
    if not node and not job:
        return fact
    for name in _LISTS:
        members = getattr(fact, name, None)
        if isinstance(members, tuple):
            kept = tuple(_kept(members, fact, node, job))
            return (fact if len(kept) == len(members) else replace(fact, **{name: kept})) if kept else None
    return fact if _fits(fact, node, job, fact) else None


def _kept(members: Iterable[Any], fact: Fact, node: str, job: str) -> Iterable[Any]:
    for member in members:
        if isinstance(member, NodeRelease):
            attempts = tuple(pair for pair in member.attempts if not job or _job_of(pair) == job)
            if attempts and node in ("", member.node):
                yield member if len(attempts) == len(member.attempts) else replace(member, attempts=attempts)
        elif isinstance(member, RestrictionChange):
            if _restricts(member.restriction, node, job):
                yield member
        elif _fits(member, node, job, fact):
            yield member


def _restricts(restriction: Restriction, node: str, job: str) -> bool:
    """Whether a restriction is about the node or the job; one of the whole fleet is about every node."""
    match restriction.scope:
        case RestrictionScope.NODE:
            return bool(node) and restriction.target == node
        case RestrictionScope.JOB:
            return bool(job) and restriction.target == job
        case RestrictionScope.FLEET:
            return bool(node)
        case _:
            return False


def _fits(member: Any, node: str, job: str, fact: Fact) -> bool:
    at = getattr(member, "node", "") or getattr(fact, "node", "")
    return (not node or at == node) and (not job or job in (_job_of(member), getattr(fact, "job", "")))


def _job_of(member: Any) -> str:
    replica = member[0] if isinstance(member, tuple) else getattr(member, "replica", "")
    return getattr(member, "job", "") or str(replica).split("/", 1)[0]
