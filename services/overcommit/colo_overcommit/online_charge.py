"""What placed online work is charged beyond its measured use: by the calculate policy, and while it is not measured yet.

Source: the three calculate policies of koordinator-sh/koordinator (pkg/slo-controller/noderesource/plugins/batchresource). Unlike
there, work without a measurement is charged its request under maxUsageRequest as well: it is about to run.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from colo_common.events.node import WorkloadUsage
from colo_common.model.placement import attempt_key
from colo_common.model.quantity import ceil_div
from colo_common.model.topology import NodeTopology
from colo_overcommit.held_by_batch import HeldByBatch

__all__ = ["CalculatePolicy", "OnlineCharge", "added", "charges_by_zone"]


class CalculatePolicy(StrEnum):
    """How online work counts. usage: what it uses. request: what it asked for, used or not. maxUsageRequest: the larger of both,
    replica by replica. Online work whose request nobody knows (colo did not place it) counts with its use under each.
    """

    USAGE = "usage"
    REQUEST = "request"
    MAX_USAGE_REQUEST = "maxUsageRequest"


class OnlineCharge(Struct, frozen=True, kw_only=True):
    """What is added to the measured use of online work in one zone; negative where a request counts that is below the use."""

    cpu_mcpu: int = 0
    memory_bytes: int = 0


def added(policy: str, requested: int, used: int | None, since_ms: int, ramp_ms: int) -> int:
    """What one replica adds to the measured use, in the unit of its request, rounded up. `used` None: it is not measured yet.

    Under `usage` a replica that was placed `since_ms` ago is charged its request until it is measured; from then on the part of the
    request that it does not use falls evenly to nothing, `ramp_ms` after it was placed. Later, and with `ramp_ms` 0, it is charged
    nothing: the machine's use has what it uses, measured by itself or not.
    """
    if policy != CalculatePolicy.USAGE:
        if used is None:
            return requested
        return requested - used if policy == CalculatePolicy.REQUEST else max(requested - used, 0)
    left_ms = ramp_ms - max(since_ms, 0)
    if left_ms <= 0:
        return 0
    return requested if used is None else ceil_div(max(requested - used, 0) * left_ms, ramp_ms)


def charges_by_zone(
    held: HeldByBatch,
    topology: NodeTopology,
    workloads: Iterable[WorkloadUsage],
    *,
    cpu_policy: str,
    memory_policy: str,
    ramp_ms: int,
    now_ms: int,
) -> Mapping[int, OnlineCharge]:
    """Zone -> what placed online work and the mid tier add there; {} without any.

    A replica's use is divided evenly over the zones in which it holds something, rounded down, so that the charge is rather too
    large. The CPU of LSE work is charged by its request already.
    """
    if not held.has_charged:
        return {}
    is_by_usage = cpu_policy == memory_policy == CalculatePolicy.USAGE
    online = list(held.charged(None if not is_by_usage else now_ms - ramp_ms))
    if not online:
        return {}
    used = {attempt_key(work.replica, work.attempt): work for work in workloads if work.replica}
    cpu = dict.fromkeys([zone.zone for zone in topology.zones], 0)
    memory = dict.fromkeys(cpu, 0)
    for each in online:
        now = used.get(each.key)
        shares = [share for share in each.shares if share.zone in cpu]
        since_ms, ramp = now_ms - each.taken_ms, ramp_ms if each.is_new else 0
        for share in shares:
            cpu_used = None if now is None else now.cpu_used_mcpu // len(shares)
            memory_used = None if now is None else now.memory_used_bytes // len(shares)
            if not each.is_exclusive:
                cpu[share.zone] += added(cpu_policy, share.cpu_mcpu, cpu_used, since_ms, ramp)
            memory[share.zone] += added(memory_policy, share.memory_bytes, memory_used, since_ms, ramp)
    return {
        zone: OnlineCharge(cpu_mcpu=cpu[zone], memory_bytes=memory[zone]) for zone in cpu if cpu[zone] or memory[zone]
    }
