"""Checks a restriction that somebody asks for. InvalidInput names the field and the rule."""

from typing import Final

from msgspec import structs

from colo_common.events.restriction import SetRestriction
from colo_common.events.subjects import encode_node
from colo_common.model.invalid import InvalidInput
from colo_common.model.restriction import (
    BY_MOST,
    REASON_MOST,
    Restriction,
    RestrictionKind,
    RestrictionScope,
)

__all__ = ["FOR_MOST_MS", "GRACE_MOST_MS", "check_text", "restriction_asked"]

FOR_MOST_MS: Final = 365 * 86_400_000
GRACE_MOST_MS: Final = 600_000
_TARGET_MOST: Final = 253
_SCOPES: Final = {
    RestrictionKind.CORDON: (RestrictionScope.NODE,),
    RestrictionKind.DRAIN: (RestrictionScope.NODE,),
    RestrictionKind.PAUSE: (RestrictionScope.NODE, RestrictionScope.JOB, RestrictionScope.QUEUE),
    RestrictionKind.QUIESCE: (RestrictionScope.FLEET,),
}


def restriction_asked(asked: SetRestriction, now_ms: int) -> Restriction:
    """The restriction to put in force at `now_ms`. Raises InvalidInput for one that makes no sense."""
    given = asked.restriction
    check_target(given.kind, given.scope, given.target)
    check_text(given.by, given.reason)
    if given.batch_only and given.kind is not RestrictionKind.DRAIN:
        raise InvalidInput("batch_only", "goes with a drain only", given.kind.value)
    if given.evicts and given.kind is not RestrictionKind.QUIESCE:
        raise InvalidInput("evicts", "goes with a quiesce only", given.kind.value)
    if given.suspends and given.scope is not RestrictionScope.QUEUE:
        rule = "goes with a pause of a queue only: a pause of a node or a job suspends what runs anyway"
        raise InvalidInput("running", rule, given.scope.value)
    leaves = given.kind is RestrictionKind.DRAIN or given.evicts
    if given.grace_ms is not None and not leaves:
        raise InvalidInput("grace_ms", "goes with a drain, or with a quiesce that evicts", given.kind.value)
    if given.grace_ms is not None and not 0 <= given.grace_ms <= GRACE_MOST_MS:
        raise InvalidInput("grace_ms", f"must be from 0 to {GRACE_MOST_MS}", given.grace_ms)
    if asked.for_ms is None:
        return structs.replace(given, since_ms=now_ms, until_ms=None)
    if not 1 <= asked.for_ms <= FOR_MOST_MS:
        raise InvalidInput("for_ms", f"must be from 1 to {FOR_MOST_MS}", asked.for_ms)
    return structs.replace(given, since_ms=now_ms, until_ms=now_ms + asked.for_ms)


def check_target(kind: RestrictionKind, scope: RestrictionScope, target: str) -> None:
    """Raise InvalidInput unless a restriction of this kind may have this target."""
    if scope not in _SCOPES[kind]:
        rule = f"must be {' or '.join(each.value for each in _SCOPES[kind])} for a {kind.value}"
        raise InvalidInput("scope", rule, scope.value)
    if scope is RestrictionScope.FLEET:
        if target:
            raise InvalidInput("target", "must be empty for the whole fleet", target)
    elif scope is RestrictionScope.NODE:
        encode_node(target)
    elif not 0 < len(target) <= _TARGET_MOST:
        raise InvalidInput("target", f"must have 1 to {_TARGET_MOST} characters", target)


def check_text(by: str, reason: str) -> None:
    """Raise InvalidInput unless who and why are short lines of printable characters."""
    for field, text, most in (("by", by, BY_MOST), ("reason", reason, REASON_MOST)):
        if len(text) > most or not text.isprintable():
            raise InvalidInput(field, f"must be one line of at most {most} printable characters", text)
