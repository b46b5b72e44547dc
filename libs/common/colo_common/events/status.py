"""How one running service is: the question that every instance of a service answers, from its shell."""

from msgspec import Struct

__all__ = ["GetServiceStatus", "ServiceStatus"]


class GetServiceStatus(Struct, frozen=True, kw_only=True):
    """How the instances of this service are. Every instance answers, also one whose inbox is full or whose store is away."""

    service: str


class ServiceStatus(Struct, frozen=True, kw_only=True):
    """One instance. `problems` has one sentence for each part that is not ready, by part; it is empty when the instance is ready.

    `host`, `pid` and `boot_id` tell instances of a service apart. `started_at_ms` and `now_ms` are by the instance's clock.
    `inbox_items` wait for its core, `outgoing_messages` for the bus; counts are since its start. Of the `partitions` into which the
    instances divide the work (0: it is not shared) it holds the numbers in `held`, and these since `held_for_ms` of real time;
    `fence` is the highest number under which it holds one. `facts_missed` counts how often a stream had discarded messages before
    the instance received them, `store_losses` how often its store was emptied or began again. `unrestored_items` were accepted
    before a loss, and nobody can rebuild them: of jobs, those that have to be submitted again.
    """

    service: str
    boot_id: str
    host: str
    pid: int
    version: str
    started_at_ms: int
    now_ms: int
    problems: dict[str, str]
    inbox_items: int
    outgoing_messages: int
    handled: int
    dead_letters: int
    refusals: int
    held: tuple[int, ...] = ()
    partitions: int = 0
    held_for_ms: int = 0
    fence: int = 0
    facts_missed: int = 0
    store_losses: int = 0
    unrestored_items: int = 0
