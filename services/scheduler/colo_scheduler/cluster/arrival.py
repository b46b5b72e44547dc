"""When a fact of another service counts as told: at its arrival, by the scheduler's own clock."""

from typing import Final, TypeVar

from msgspec import structs

from colo_common.events.fact import Fact

__all__ = ["arrived"]

F = TypeVar("F", bound=Fact)

_SURELY_OLD_MS: Final = 3 * 3_600_000


def arrived(fact: F, now_ms: int) -> F:
    """The fact with the moment of its arrival as its time, so that its age does not depend on the clock of another machine.

    What the bus replays comes as Replayed, with its age. Where a bus tells no age, a replayed fact may be old all the same: clocks
    that are wrong by an hour or two do not look like more than three hours, so a fact that is older than this keeps its time.
    """
    return fact if now_ms - fact.at_ms > _SURELY_OLD_MS else structs.replace(fact, at_ms=now_ms)
