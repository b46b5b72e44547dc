"""Which processes a run has: the control services with their instances, and the processes that simulate nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

__all__ = ["LEASED", "NODES", "SCALE", "Instance", "shape_of"]

#: Times of settings, and pauses, are this share of what they are in production: a node is lost after 12 s and not after 60.
SCALE: Final = 0.2

_SETTINGS: Final[Mapping[str, str]] = {
    "COLO_OVERCOMMIT_STALE_AFTER_MS": "4000",
    "COLO_OVERCOMMIT_LOST_AFTER_MS": "12000",
    "COLO_OVERCOMMIT_LEASE_MS": "4000",
    "COLO_OVERCOMMIT_GROW_HOLD_MS": "2000",
    "COLO_OVERCOMMIT_LOAD_HOLD_MS": "2000",
    "COLO_SCHEDULER_POLICY_RECHECK_MS": "60000",
    "COLO_JOBS_RETRY_LOST_AFTER_MS": "12000",
    "COLO_JOBS_RETRY_AVOID_MS": "5000",
    "COLO_JOBS_RETRY_BACKOFF_MAX_MS": "5000",
    # A recording is judged whole: no job is forgotten before its end.
    "COLO_JOBS_RETENTION_MAX_ENDED_JOBS": "100000",
}
NODES: Final = "nodes"
#: The services whose instances hold leases.
LEASED: Final = ("overcommit", "jobs", "scheduler", "evictor")
_GROUPS: Final = (0.2, 0.4, 0.4)
"""Processes of nodes, as shares of the fleet. The first one's silence is less than a third of the fleet, the others' is more."""


class Instance(Struct, frozen=True, kw_only=True):
    """One process: its name, the service that it is, the module that runs it, and settings of its own."""

    name: str
    service: str
    module: str
    environment: dict[str, str] = {}

    @property
    def is_control(self) -> bool:
        """Whether it is a service of the cluster and not of nodes."""
        return self.service != NODES


def shape_of(nodes: int, counts: Mapping[str, int], seed: int, partitions: int = 1) -> list[Instance]:
    """Every process. Each control service has so many instances: "jobs", "jobs-2" and so on.

    Those of jobs, overcommit and evictor share so many `partitions`, each service's own.
    """
    found = []
    settings = {**_SETTINGS, **({"COLO_PARTITIONS": str(partitions)} if partitions > 1 else {})}
    for service, count in counts.items():
        for number in range(1, count + 1):
            name = service if number == 1 else f"{service}-{number}"
            found.append(Instance(name=name, service=service, module=f"colo_{service}", environment=dict(settings)))
    first = 1
    for number, share in enumerate(_GROUPS, start=1):
        last = nodes if number == len(_GROUPS) else min(nodes, first + max(1, round(nodes * share)) - 1)
        if last < first:
            continue
        environment = {
            "COLO_SIM_NODES": str(last - first + 1),
            "COLO_SIM_FIRST_NODE": str(first),
            "COLO_SIM_SEED": str(seed),
            "COLO_SIM_SAMPLE_MS": "1000",
            "COLO_SIM_REFLEX_LEASE_DEFAULT_MS": "4000",
        }
        found.append(Instance(name=f"{NODES}-{number}", service=NODES, module="colo_sim", environment=environment))
        first = last + 1
    return found
