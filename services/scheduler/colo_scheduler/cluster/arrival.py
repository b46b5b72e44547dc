"""When a fact of another service was published: before its arrival, by the scheduler's own clock, as long as the bus kept it."""

from typing import Final, TypeVar

from msgspec import structs

from colo_common.events.fact import Fact, FencedFact, is_older

__all__ = ["arrived", "is_overtaken"]

F = TypeVar("F", bound=Fact)

_SURELY_OLD_MS: Final = 3 * 3_600_000


def arrived(fact: F, now_ms: int) -> F:
    """The fact with the moment of its arrival as its time, so that its age does not depend on the clock of another machine.

    What the bus replays comes as Replayed, with its age. Where a bus tells no age, a replayed fact may be old all the same: clocks
    that are wrong by an hour or two do not look like more than three hours, so a fact that is older than this keeps its time.
    """
    return fact if now_ms - fact.at_ms > _SURELY_OLD_MS else structs.replace(fact, at_ms=now_ms)


def is_overtaken(fact: FencedFact, than: FencedFact) -> bool:
    """Whether `fact` was published before `than`, where both have the moments of `arrived` or of a replay as their times.

    Of one start of a service its numbers say so. Facts of different starts and of different subjects arrive in any order, because
    each subject is replayed by itself: then the moments do, and of two equal ones the later arrival is the newer. Before all that
    their fences do, where both have one and these differ.
    """
    if 0 < fact.fence != than.fence > 0:
        return fact.fence < than.fence
    return is_older(fact, than) if fact.boot_id == than.boot_id else fact.at_ms < than.at_ms
