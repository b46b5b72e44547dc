"""A table of restrictions in the words of a conversation."""

from __future__ import annotations

from colo_common.events.restriction import RestrictionsChanged
from colo_common.model.restriction import Restriction, RestrictionKind, RestrictionScope
from tests.support.scripts import Args

__all__ = ["restrictions_changed"]


def restrictions_changed(args: Args, now_ms: int) -> RestrictionsChanged:
    """The whole table: restrict REVISION KIND:SCOPE:TARGET...

    With by=ana why=upgrade until=5000 batch-only=1 grace=500 evicts=1 suspends=1, which then hold for every row.
    """
    args.only("by", "why", "until", "batch-only", "grace", "evicts", "suspends")
    until, grace = args.number("until", 0), args.number("grace", -1)
    parts = [word.split(":") for word in args.words[1:]]
    table = tuple(
        Restriction(
            kind=RestrictionKind(kind),
            scope=RestrictionScope(scope),
            target=target,
            by=args.text("by", "ana"),
            reason=args.text("why", ""),
            since_ms=now_ms,
            until_ms=until or None,
            batch_only=args.number("batch-only", 0) == 1,
            grace_ms=None if grace < 0 else grace,
            evicts=args.number("evicts", 0) == 1,
            suspends=args.number("suspends", 0) == 1,
        )
        for kind, scope, target in parts
    )
    return RestrictionsChanged(at_ms=now_ms, revision=int(args.word(0)), restrictions=table)
