"""A placement: the node and the shares of its zones that one attempt of a replica holds."""

import re
from typing import Final

from msgspec import Struct

from colo_common.model.constraints import CpuExclusive, CpuPolicy, DeviceExclusive
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.units import Ms, NodeName, Number, ReplicaName, ShareBytes, ShareMcpu, Signed
from colo_common.model.workload import RunSpec

__all__ = [
    "Attempt",
    "DeviceShare",
    "Placement",
    "UNKNOWN_CPUS",
    "ZoneHugePages",
    "ZoneShare",
    "attempt_key",
    "parse_replica_token",
    "replica_token",
]

_LABEL: Final = r"(?=[^.@]{1,63}[.@])[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_TOKEN: Final = re.compile(rf"({_LABEL})\.({_LABEL})\.(0|[1-9][0-9]{{0,8}})@([1-9][0-9]{{0,8}})", re.ASCII)

UNKNOWN_CPUS: Final = "?"
"""The `cpus` of a placement that was rebuilt without its node: which CPUs, devices or huge pages it has is not known."""

Attempt = tuple[str, int]
"""A replica and the number of one of its attempts."""


class ZoneShare(Struct, frozen=True, kw_only=True, gc=False):
    """What a replica holds of one zone."""

    zone: Number
    cpu_mcpu: ShareMcpu
    memory_bytes: ShareBytes


class ZoneHugePages(Struct, frozen=True, kw_only=True):
    """Huge pages that a replica holds in one zone."""

    zone: Number
    page_bytes: Number
    total_bytes: ShareBytes


class DeviceShare(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a replica holds of one device: all of it when `core_pct` is 100; `device` is its number among the devices of its kind.

    `exclusive` names the devices of the kind that no other replica may use.
    """

    kind: str
    device: Number
    zone: Number
    core_pct: Number = 100
    memory_bytes: ShareBytes = 0
    exclusive: DeviceExclusive = DeviceExclusive.NONE


class Placement(Struct, frozen=True, kw_only=True, gc=False):
    """One replica on one node. The shares of `zones` sum to the request.

    `attempt` fences: a node keeps the highest attempt of a replica and drops older ones. `sample_seq` is the usage sample behind
    the allocatable that the decision used. `traceparent` (W3C) names the span of the placement's own trace.
    `cpus` is a kernel CPU list of the replica's own CPUs (LSE: shared with nobody; LSR: with BE only), empty for the shared pool,
    "?" (UNKNOWN_CPUS) where nobody but the node knows them. `decided_at_ms` is 0 where that is not known any more.
    `cpu_exclusive` is the replica's preference about the cores or zones of these CPUs.
    `reservation` names the reservation that the place was taken from. `queue` is the job's; "": an older scheduler placed it.
    `tenant` is the job's, by which a node chooses the user that it runs as; empty in messages of earlier versions.
    `cpu_policy` is the request's: with none LS work runs in the shared pool of the whole node, else in that of its zones.
    """

    replica: ReplicaName
    job: str
    attempt: Number
    node: NodeName
    zones: tuple[ZoneShare, ...]
    cpu_mcpu: ShareMcpu
    memory_bytes: ShareBytes
    qos: QosClass
    band: PriorityBand
    run: RunSpec
    priority: Signed = 0
    sample_seq: Number = 0
    decided_at_ms: Ms = 0
    traceparent: str = ""
    cpus: str = ""
    cpu_exclusive: CpuExclusive = CpuExclusive.NONE
    devices: tuple[DeviceShare, ...] = ()
    huge_pages: tuple[ZoneHugePages, ...] = ()
    reservation: str = ""
    queue: str = ""
    tenant: str = ""
    cpu_policy: CpuPolicy = CpuPolicy.DEFAULT


def attempt_key(replica: str, attempt: int) -> str:
    """The name of one attempt of one replica in ledgers, journals and message ids: "job/task/index#attempt"."""
    return f"{replica}#{attempt}"


def replica_token(replica: str, attempt: int) -> str:
    """The attempt as one safe path segment ("/" becomes "." and "#" becomes "@"): a cgroup's or a file's name."""
    return attempt_key(replica, attempt).replace("/", ".").replace("#", "@")


def parse_replica_token(token: str) -> tuple[str, int] | None:
    """The replica ("job/task/index") and the attempt of a token from `replica_token`; None for any other text.

    Job and task are DNS-1123 labels, so the token has one reading; numbers have no leading zeros, attempts begin at 1.
    """
    match = _TOKEN.fullmatch(token)
    return None if match is None else (f"{match[1]}/{match[2]}/{match[3]}", int(match[4]))
