"""Readings of a simulated machine: counters as a kernel shows them, ended replicas, and the ledger of what really happened."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from colo_common.model.qos import QosClass
from colo_sim.machine_account import OnlineAccount

__all__ = [
    "ExitCause",
    "MachineCounters",
    "MachineLedger",
    "MachineReport",
    "MachineUsage",
    "ReplicaCounters",
    "ReplicaExit",
    "ZoneCounters",
]

ExitCause = Literal["completed", "stopped", "killed", "oom", "crashed"]


class ReplicaExit(Struct, frozen=True, kw_only=True):
    """A replica ended. Code 0: all its work is done; 143: it obeyed SIGTERM; 137: killed; others: it crashed.

    `used_mcpu_ms` is the CPU time this attempt got.
    """

    replica: str
    attempt: int
    code: int
    cause: ExitCause
    at_ms: int
    used_mcpu_ms: int


class ZoneCounters(Struct, frozen=True, kw_only=True):
    """CPU time since boot of one zone (ns, all its CPUs together) and memory in use now."""

    zone: int
    usage_ns: int
    batch_usage_ns: int
    memory_bytes: int


class ReplicaCounters(Struct, frozen=True, kw_only=True):
    """CPU time of one running replica since its start (ns) and its working set. LSE, LSR and LS are not in the batch tier."""

    replica: str
    attempt: int
    zones: tuple[int, ...]
    usage_ns: int
    memory_bytes: int
    is_stopping: bool
    qos: QosClass = QosClass.BE


class MachineUsage(Struct, frozen=True, kw_only=True):
    """CPU time since boot (ns) of online and of batch work at moment `at_ms`, and of both by zone."""

    at_ms: int
    boot: int
    online_usage_ns: int
    batch_usage_ns: int
    zone_online_ns: tuple[int, ...] = ()
    zone_batch_ns: tuple[int, ...] = ()


class MachineCounters(Struct, frozen=True, kw_only=True):
    """One coherent reading: every number is of moment `at_ms`. Times only grow until a reboot, which raises `boot`.

    `cpu_*` and `memory_*` are the machine's stall totals (PSI; cpu full of a machine is 0, as in the kernel),
    `online_*` and `batch_*` those of the two tiers. A throttled batch task counts as waiting, as in the kernel.
    """

    at_ms: int
    boot: int
    zones: tuple[ZoneCounters, ...]
    replicas: tuple[ReplicaCounters, ...]
    online_usage_ns: int
    batch_usage_ns: int
    online_memory_bytes: int
    batch_memory_bytes: int
    cpu_some_us: int
    cpu_full_us: int
    memory_some_us: int
    memory_full_us: int
    online_cpu_some_us: int
    batch_cpu_some_us: int
    batch_cpu_full_us: int
    batch_throttled_us: int


class MachineLedger(Struct, frozen=True, kw_only=True):
    """What really happened on the machine since it was built, reboots included; the verdict is made from these sums.

    What online work felt: `with_batch` as it was (harm also while memory ran over), `alone` without any batch work,
    `unreflexed` with the same replicas at their full request, `plain` with as much batch work as CPU requests admit.
    `added_harm_ms`: time with harm that online work alone would not have had. `needless_evictions` is a part of `evictions`.
    `batch_used_mcpu_ms` is exactly completed + wasted + running. `replica_online_mcpu_ms` is the part of online use that is
    placed replicas'.
    """

    node_ms: int
    cpu_capacity_mcpu: int
    online_demand_mcpu_ms: int
    online_used_mcpu_ms: int
    batch_used_mcpu_ms: int
    completed_mcpu_ms: int
    wasted_mcpu_ms: int
    running_mcpu_ms: int
    replicas_started: int
    replicas_completed: int
    replicas_stopped: int
    replicas_killed: int
    oom_kills: int
    replica_online_mcpu_ms: int = 0
    with_batch: OnlineAccount = OnlineAccount()
    alone: OnlineAccount = OnlineAccount()
    unreflexed: OnlineAccount = OnlineAccount()
    plain: OnlineAccount = OnlineAccount()
    added_harm_ms: int = 0
    longest_added_harm_ms: int = 0
    evictions: int = 0
    needless_evictions: int = 0


class MachineReport(Struct, frozen=True, kw_only=True):
    """The ledgers of all machines of a process by node. `claimed_ms`: time by the simulated clock since they began to live.

    `delay_bound_pct`: online work counts as hurt above it (down to 0.1).
    """

    claimed_ms: int = 0
    delay_bound_pct: float = 0.0
    ledgers: dict[str, MachineLedger] = {}
