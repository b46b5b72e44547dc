"""The running sums of a simulated machine: the present rates, and their sums over time.

A stall share in permille times a duration in ms is a stall in us, so all sums are exact integers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from colo_sim.machine_reading import ExitCause, MachineLedger
from colo_sim.machine_share import Claim, Shares
from colo_sim.machine_spec import Interference

__all__ = ["Tally", "busy_permille"]

_PERMILLE = 1_000


def busy_permille(cpus: int) -> tuple[int, ...]:
    """Return, for a use of 0 to 1000 permille, the chance in permille that none of `cpus` CPUs is idle.

    Use to the power of the CPU count: CPUs taken as independent. Rounded to the nearest.
    """
    return tuple(round((used / _PERMILLE) ** cpus * _PERMILLE) for used in range(_PERMILLE + 1))


class Tally:
    """Sums since boot (counters) and since the machine was built (ledger). `accrue` is called often and only adds."""

    def __init__(self, zones: int) -> None:
        self._zones = range(zones)
        self.zone_online_mcpu_ms = [0] * zones
        self.zone_batch_mcpu_ms = [0] * zones
        self.cpu_some_us = 0
        self.memory_some_us = 0
        self.memory_full_us = 0
        self.online_some_us = 0
        self.batch_some_us = 0
        self.batch_throttled_us = 0
        self._earlier_online_mcpu_ms = 0
        self._earlier_batch_mcpu_ms = 0
        self._node_ms = 0
        self._violation_ms = 0
        self._violation_alone_ms = 0
        self._online_demand_mcpu_ms = 0
        self._completed_mcpu_ms = 0
        self._wasted_mcpu_ms = 0
        self._replica_online_mcpu_ms = 0
        self.replicas_started = 0
        self._ended = {"completed": 0, "stopped": 0, "killed": 0, "oom": 0, "crashed": 0}
        # Rates that hold until the next change.
        self._online_zone_mcpu: Sequence[int] = [0] * zones
        self._batch_zone_mcpu: Sequence[int] = [0] * zones
        self._demand_mcpu = 0
        self._cpu_some_permille = 0
        self._online_some_permille = 0
        self._batch_some_permille = 0
        self._throttled_permille = 0
        self._memory_some_permille = 0
        self._memory_full_permille = 0
        self._is_cpu_violation = False
        self._is_alone_violation = False
        self._is_memory_over = False

    def accrue(self, length_ms: int) -> None:
        """Add `length_ms` of everything at the rates that hold."""
        online, batch = self.zone_online_mcpu_ms, self.zone_batch_mcpu_ms
        for zone in self._zones:
            online[zone] += self._online_zone_mcpu[zone] * length_ms
            batch[zone] += self._batch_zone_mcpu[zone] * length_ms
        self._node_ms += length_ms
        self._online_demand_mcpu_ms += self._demand_mcpu * length_ms
        self.cpu_some_us += self._cpu_some_permille * length_ms
        self.online_some_us += self._online_some_permille * length_ms
        self.batch_some_us += self._batch_some_permille * length_ms
        self.batch_throttled_us += self._throttled_permille * length_ms
        if self._memory_some_permille:
            self.memory_some_us += self._memory_some_permille * length_ms
            self.memory_full_us += self._memory_full_permille * length_ms
        if self._is_cpu_violation or self._is_memory_over:
            self._violation_ms += length_ms
            if self._is_alone_violation:
                self._violation_alone_ms += length_ms

    def set_online(
        self,
        demand_mcpu: int,
        online_mcpu: list[int],
        batch_mcpu: list[int],
        capacity_mcpu: int,
        busy: tuple[int, ...],
        limits: Interference,
    ) -> None:
        """Set the online demand and the batch use of each zone; online gets the rest of every zone.

        Demand without room in its zone moves to a zone with room: services are not bound to zones.
        """
        got_mcpu = online_mcpu
        is_over = False
        unmet_mcpu = demand_mcpu - sum(online_mcpu)
        waits = 0
        fullest_permille = 0
        for online, batch in zip(online_mcpu, batch_mcpu, strict=True):
            used = online + batch
            if used > capacity_mcpu:
                used = capacity_mcpu
                is_over = True
            used_permille = used * _PERMILLE // capacity_mcpu
            waits += online * busy[used_permille]
            fullest_permille = max(fullest_permille, used_permille)
        if is_over:
            got_mcpu, displaced_mcpu = _displaced(online_mcpu, batch_mcpu, capacity_mcpu)
            unmet_mcpu += displaced_mcpu
        some_permille = 0
        if demand_mcpu:
            some_permille = waits * limits.wakeup_wait_permille // (demand_mcpu * _PERMILLE)
            some_permille = min(_PERMILLE, some_permille + unmet_mcpu * _PERMILLE // demand_mcpu)
        self._demand_mcpu = demand_mcpu
        self._online_zone_mcpu = got_mcpu
        self._batch_zone_mcpu = batch_mcpu
        self._online_some_permille = some_permille
        self._cpu_some_permille = max(busy[fullest_permille], self._batch_some_permille)
        self._is_cpu_violation = unmet_mcpu > 0 or some_permille > limits.violation_some_permille
        self._is_alone_violation = False
        if self._is_cpu_violation:
            alone_waits = sum(online * busy[online * _PERMILLE // capacity_mcpu] for online in online_mcpu)
            alone_permille = alone_waits * limits.wakeup_wait_permille // (max(1, demand_mcpu) * _PERMILLE)
            is_above_capacity = demand_mcpu > capacity_mcpu * len(online_mcpu)
            self._is_alone_violation = is_above_capacity or alone_permille > limits.violation_some_permille

    def set_batch(self, shares: Shares, claims: Collection[Claim], quota_mcpu: int | None) -> None:
        """Set the demand and shares of batch, before `set_online`; it waits for the rest, throttled if the quota is the limit."""
        wanted_mcpu = sum(claim.cpu_mcpu for claim in claims)
        got_mcpu = sum(shares.granted_mcpu)
        self._batch_some_permille = (wanted_mcpu - got_mcpu) * _PERMILLE // wanted_mcpu if wanted_mcpu else 0
        # Sharing rounds down once per claim and zone, so the quota holds when no more than that is left of it.
        is_held = quota_mcpu is not None and quota_mcpu < wanted_mcpu and got_mcpu + len(claims) >= quota_mcpu
        self._throttled_permille = self._batch_some_permille if is_held else 0

    def set_memory(self, some_permille: int, full_permille: int, is_over: bool) -> None:
        """Set the memory stall shares, and whether memory demand exceeds the machine."""
        self._memory_some_permille = some_permille
        self._memory_full_permille = full_permille
        self._is_memory_over = is_over

    def ended(self, used_mcpu_ms: int, cause: ExitCause) -> None:
        """Count an ended replica: its CPU time was useful when it completed, else wasted."""
        self._ended[cause] += 1
        if cause == "completed":
            self._completed_mcpu_ms += used_mcpu_ms
        else:
            self._wasted_mcpu_ms += used_mcpu_ms

    def online_ended(self, used_mcpu_ms: int, cause: ExitCause) -> None:
        """Count an ended online replica: its CPU time is online use, which is neither useful nor wasted batch work."""
        self._ended[cause] += 1
        self._replica_online_mcpu_ms += used_mcpu_ms

    def forget_counters(self) -> None:
        """Reset the kernel counters; the ledger continues."""
        self._earlier_online_mcpu_ms += sum(self.zone_online_mcpu_ms)
        self._earlier_batch_mcpu_ms += sum(self.zone_batch_mcpu_ms)
        self.zone_online_mcpu_ms = [0] * len(self._zones)
        self.zone_batch_mcpu_ms = [0] * len(self._zones)
        self.cpu_some_us = self.memory_some_us = self.memory_full_us = 0
        self.online_some_us = self.batch_some_us = self.batch_throttled_us = 0

    def ledger(self, cpu_capacity_mcpu: int, running_mcpu_ms: int, online_running_mcpu_ms: int = 0) -> MachineLedger:
        """Return the sums since the machine was built."""
        return MachineLedger(
            node_ms=self._node_ms,
            cpu_capacity_mcpu=cpu_capacity_mcpu,
            violation_ms=self._violation_ms,
            violation_alone_ms=self._violation_alone_ms,
            online_demand_mcpu_ms=self._online_demand_mcpu_ms,
            online_used_mcpu_ms=self._earlier_online_mcpu_ms + sum(self.zone_online_mcpu_ms),
            batch_used_mcpu_ms=self._earlier_batch_mcpu_ms + sum(self.zone_batch_mcpu_ms),
            completed_mcpu_ms=self._completed_mcpu_ms,
            wasted_mcpu_ms=self._wasted_mcpu_ms,
            running_mcpu_ms=running_mcpu_ms,
            replicas_started=self.replicas_started,
            replicas_completed=self._ended["completed"],
            replicas_stopped=self._ended["stopped"],
            replicas_killed=self._ended["killed"] + self._ended["crashed"] + self._ended["oom"],
            oom_kills=self._ended["oom"],
            replica_online_mcpu_ms=self._replica_online_mcpu_ms + online_running_mcpu_ms,
        )


def _displaced(online_mcpu: list[int], batch_mcpu: list[int], capacity_mcpu: int) -> tuple[list[int], int]:
    """Return the CPU of online work by zone while batch keeps its weight, and the demand without room in any zone."""
    room_mcpu = [capacity_mcpu - batch for batch in batch_mcpu]
    got_mcpu = [min(online, room) for online, room in zip(online_mcpu, room_mcpu, strict=True)]
    displaced_mcpu = sum(online_mcpu) - sum(got_mcpu)
    for zone, room in enumerate(room_mcpu):
        more = min(displaced_mcpu, room - got_mcpu[zone])
        got_mcpu[zone] += more
        displaced_mcpu -= more
    return got_mcpu, displaced_mcpu
