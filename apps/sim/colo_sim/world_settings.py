"""The size and length of a simulated world, and its faults."""

from __future__ import annotations

from msgspec import Struct

from colo_sim.faults import FaultPlan
from colo_sim.machine_spec import GIB, MachineSpec

__all__ = ["WorldSettings"]


class WorldSettings(Struct, frozen=True, kw_only=True):
    """Size and length of a world. `skew_most_ms`: node clocks differ from the services' clock by at most this, either way.

    `schedulers` share the work by `shards`; with 0 shards there must be one scheduler. `spikes`: how many times the online work
    of a node needs nearly the whole machine. `online_jobs` are placed in addition to the batch `jobs`. `restrictions`: how many
    times operators forbid something for a while: on a node (also by its label), for a job, for a queue or everywhere.

    `sharers` instances of overcommit and as many of the evictor share the nodes by `partitions`; with 0 there must be one of each.
    So do `job_sharers` instances of jobs by `job_partitions`.

    `other_versions`: so many processes begin as another version of colo, and are replaced while there are faults.

    After the faults end, the services' views must agree within `settle_most_ms`, and after that no work may be pending after
    `quiescence_most_ms`.
    """

    seed: int
    nodes: int = 4
    jobs: int = 16
    online_jobs: int = 0
    schedulers: int = 1
    shards: int = 0
    jobs_within_ms: int = 360_000
    sample_ms: int = 1_000
    reflex_ms: int = 500
    skew_most_ms: int = 5_000
    spikes: int = 4
    restrictions: int = 0
    settle_most_ms: int = 600_000
    quiescence_most_ms: int = 3_600_000
    sharers: int = 1
    partitions: int = 0
    job_sharers: int = 1
    job_partitions: int = 0
    other_versions: int = 0
    spec: MachineSpec = MachineSpec(
        sockets=1, zones_per_socket=2, cpus_per_zone=4, memory_bytes_per_zone=8 * GIB, sub_step_ms=1_000
    )
    faults: FaultPlan = FaultPlan()
