"""The common fields of every event, command and telemetry message."""

from msgspec import Struct

from colo_common.model.units import Ms, NodeName, Number, Us

__all__ = ["Fact", "FencedFact", "is_older"]


class Fact(Struct, frozen=True, kw_only=True):
    """Base type of every event, command and telemetry message.

    The core sets `at_ms` (the service's clock, Unix milliseconds). The shell stamps the rest when it publishes: `producer` (service
    name), `boot_id` (new at each process start), `seq` (counts messages of that boot from 1), `sent_us` (wall clock, Unix
    microseconds, also where the service's clock is scaled).
    """

    at_ms: Ms = 0
    producer: str = ""
    boot_id: str = ""
    seq: Number = 0
    sent_us: Us = 0


class FencedFact(Fact, frozen=True, kw_only=True):
    """What the holder of a node says of it, `fence` being that of its partition; 0: it is alone by its settings.

    The shell stamps the fence as it does the envelope. Whoever hears such facts ignores one of a lower fence than the highest that
    was heard of the node (`ReceivedFences`).
    """

    node: NodeName
    fence: Number = 0


def is_older(fact: Fact, than: Fact) -> bool:
    """Whether `fact` was published before `than`, where that can be known: by the same start of the same service.

    Of different starts the one that arrives later counts as the newer. Times are not compared, because the clock of a machine
    may be set while a service starts again; only facts without a boot id are ordered by their times. Of two fences of one node the
    higher one is the newer, whatever else they say.
    """
    if isinstance(fact, FencedFact) and isinstance(than, FencedFact) and 0 < fact.fence != than.fence > 0:
        return fact.fence < than.fence
    if fact.boot_id != than.boot_id:
        return False
    return fact.seq < than.seq if fact.boot_id else fact.at_ms < than.at_ms
