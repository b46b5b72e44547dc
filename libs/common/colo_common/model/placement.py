"""What is promised to a replica: a node, shares of its zones, and the attempt the promise is for."""

from msgspec import Struct

from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.workload import RunSpec

__all__ = ["Placement", "ZoneShare", "attempt_key", "replica_token"]


class ZoneShare(Struct, frozen=True, kw_only=True):
    """What a replica holds of one zone."""

    zone: int
    cpu_mcpu: int
    memory_bytes: int


class Placement(Struct, frozen=True, kw_only=True):
    """One replica on one node. The shares of `zones` sum to the request.

    `attempt` fences: a node keeps the highest attempt of a replica and drops older ones. `sample_seq` is the sample from which
    the allocatable it was decided on was computed. `traceparent` (W3C) names the span of the placement's own trace.
    """

    replica: str
    job: str
    attempt: int
    node: str
    zones: tuple[ZoneShare, ...]
    cpu_mcpu: int
    memory_bytes: int
    qos: QosClass
    band: PriorityBand
    run: RunSpec
    priority: int = 0
    sample_seq: int = 0
    decided_at_ms: int = 0
    traceparent: str = ""


def attempt_key(replica: str, attempt: int) -> str:
    """Names one attempt of one replica in ledgers, journals and effect ids."""
    return f"{replica}#{attempt}"


def replica_token(replica: str, attempt: int) -> str:
    """The attempt as one safe path segment ("/" becomes "." and "#" becomes "@"): a cgroup's or a file's name."""
    return attempt_key(replica, attempt).replace("/", ".").replace("#", "@")
