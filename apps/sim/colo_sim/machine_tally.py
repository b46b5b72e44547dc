"""The running sums of a simulated machine: the present rates, and their sums over time.

A stall share in permille times a duration in ms is a stall in us, so all sums are exact integers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from colo_sim.machine_account import Account
from colo_sim.machine_delay import SharedZone
from colo_sim.machine_reading import ExitCause, MachineLedger
from colo_sim.machine_share import Claim, Shares
from colo_sim.machine_spec import Interference

__all__ = ["Counterfactual", "Tally"]

_PERMILLE = 1_000
_NEEDED_FOR_MS = 60_000


class Counterfactual(NamedTuple):
    """The CPU that batch work would use in each zone at this moment, run in other ways.

    `unreflexed`: the same replicas at their full request, without a quota. `plain`: as much as CPU requests admit, which nothing
    takes back; empty where that is nothing.
    """

    unreflexed: Sequence[int]
    plain: Sequence[int]


class _Felt(NamedTuple):
    """`weighted` is the sum over zones of online use (mcpu) times delay (permille), all without LSE work."""

    weighted: int
    unmet_mcpu: int
    batch_mcpu: int
    is_memory_over: bool = False


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
        self._with_batch = Account()
        self._alone = Account()
        self._unreflexed = Account()
        self._plain = Account()
        self._has_plain = False  # without, it is what online work alone feels
        self._added = Account()
        self._evictions = 0
        self._needless_evictions = 0
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

    def set_online(
        self,
        demand_mcpu: int,
        online_mcpu: list[int],
        batch_mcpu: list[int],
        zones: Sequence[SharedZone],
        limits: Interference,
        other: Counterfactual,
        is_memory_over: bool,
        is_online_memory_over: bool,
    ) -> None:
        """Set the online demand and the batch use of each zone; online gets the rest of every zone.

        Demand without room in its zone moves to a zone with room: services are not bound to zones. Memory that runs over is harm,
        and none that batch work adds where online work alone is too much for the machine (`is_online_memory_over`).
        """
        self._demand_mcpu = demand_mcpu
        self._online_zone_mcpu, self._batch_zone_mcpu = online_mcpu, batch_mcpu
        lse_mcpu = [zone.lse_mcpu for zone in zones]
        if any(lse_mcpu):
            demand_mcpu -= sum(lse_mcpu)
            online_mcpu = [online - lse for online, lse in zip(online_mcpu, lse_mcpu, strict=True)]
        is_over = False
        alone_unmet_mcpu = unmet_mcpu = demand_mcpu - sum(online_mcpu)
        waits = felt = felt_alone = bounds = 0
        busiest_permille = 0
        for online, batch, (capacity_mcpu, _, model) in zip(online_mcpu, batch_mcpu, zones, strict=True):
            if not capacity_mcpu:
                continue
            by_use, by_online_use, busy, bound_permille = model
            used = online + batch
            if used > capacity_mcpu:
                used = capacity_mcpu
                is_over = True
            used_permille = used * _PERMILLE // capacity_mcpu
            online_permille = online * _PERMILLE // capacity_mcpu
            waits += online * busy[used_permille]
            queue_permille = by_online_use[online_permille]
            felt += online * (by_use[used_permille] + queue_permille)
            felt_alone += online * (by_use[online_permille] + queue_permille)
            bounds += online * bound_permille
            busiest_permille = max(busiest_permille, busy[used_permille])
        if is_over:
            got_mcpu, displaced_mcpu = _displaced(online_mcpu, batch_mcpu, zones)
            self._online_zone_mcpu = [got + lse for got, lse in zip(got_mcpu, lse_mcpu, strict=True)]
            unmet_mcpu += displaced_mcpu
        some_permille = 0
        if demand_mcpu:
            some_permille = waits * limits.wakeup_wait_permille // (demand_mcpu * _PERMILLE)
            some_permille = min(_PERMILLE, some_permille + unmet_mcpu * _PERMILLE // demand_mcpu)
        self._online_some_permille = some_permille
        self._cpu_some_permille = max(busiest_permille, self._batch_some_permille)
        bound_permille = bounds // max(1, sum(online_mcpu))
        now_ms = self._node_ms
        felt_now = _Felt(felt, unmet_mcpu, sum(batch_mcpu), is_memory_over)
        is_hurt = _feel(self._with_batch, now_ms, felt_now, demand_mcpu, bound_permille)
        felt_alone_now = _Felt(felt_alone, alone_unmet_mcpu, 0, is_online_memory_over)
        is_hurt_alone = _feel(self._alone, now_ms, felt_alone_now, demand_mcpu, bound_permille)
        self._added.feel(now_ms, 0, is_hurt and not is_hurt_alone, 0)
        if other.unreflexed is not batch_mcpu:
            weight = limits.batch_weight_permille
            kept = [
                min(wanted, max(zone.capacity_mcpu - online, zone.capacity_mcpu * weight // _PERMILLE))
                for wanted, online, zone in zip(other.unreflexed, online_mcpu, zones, strict=True)
            ]
            felt_now = _felt_with(demand_mcpu, online_mcpu, kept, zones, is_memory_over)
        _feel(self._unreflexed, now_ms, felt_now, demand_mcpu, bound_permille)
        if other.plain:
            self._has_plain = True
            plain = [min(batch, zone.capacity_mcpu) for batch, zone in zip(other.plain, zones, strict=True)]
            felt_now = _felt_with(demand_mcpu, online_mcpu, plain, zones, is_online_memory_over)
            _feel(self._plain, now_ms, felt_now, demand_mcpu, bound_permille)

    def set_batch(self, shares: Shares, claims: Collection[Claim], quota_mcpu: int | None) -> None:
        """Set the demand and shares of batch, before `set_online`; it waits for the rest, throttled if the quota is the limit."""
        wanted_mcpu = sum(claim.cpu_mcpu for claim in claims)
        got_mcpu = sum(shares.granted_mcpu)
        self._batch_some_permille = (wanted_mcpu - got_mcpu) * _PERMILLE // wanted_mcpu if wanted_mcpu else 0
        # Sharing rounds down once per claim and zone, so the quota holds when no more than that is left of it.
        is_held = quota_mcpu is not None and quota_mcpu < wanted_mcpu and got_mcpu + len(claims) >= quota_mcpu
        self._throttled_permille = self._batch_some_permille if is_held else 0

    def set_memory(self, some_permille: int, full_permille: int) -> None:
        """Set the memory stall shares."""
        self._memory_some_permille = some_permille
        self._memory_full_permille = full_permille

    def evicted(self) -> None:
        """Count an eviction that is ordered now. It is needless when even without the reflex, every batch replica at its full
        request, online work would not have been hurt in the last 60 s, and memory does not run over.
        """
        self._evictions += 1
        last_ms = self._unreflexed.last_harm_ms
        was_hurt = last_ms is not None and self._node_ms - last_ms <= _NEEDED_FOR_MS
        if not (was_hurt or self._unreflexed.is_harm or self._memory_some_permille):
            self._needless_evictions += 1

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
        now_ms = self._node_ms
        added = self._added.read(now_ms)
        return MachineLedger(
            node_ms=self._node_ms,
            cpu_capacity_mcpu=cpu_capacity_mcpu,
            with_batch=self._with_batch.read(now_ms),
            alone=self._alone.read(now_ms),
            unreflexed=self._unreflexed.read(now_ms),
            plain=(self._plain if self._has_plain else self._alone).read(now_ms),
            added_harm_ms=added.harm_ms,
            longest_added_harm_ms=added.longest_harm_ms,
            evictions=self._evictions,
            needless_evictions=self._needless_evictions,
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


def _felt_with(
    demand_mcpu: int,
    online_mcpu: list[int],
    batch_mcpu: Sequence[int],
    zones: Sequence[SharedZone],
    is_memory_over: bool,
) -> _Felt:
    """What online work would feel beside batch work that keeps all of `batch_mcpu`."""
    felt = 0
    is_over = False
    for online, batch, (capacity_mcpu, _, model) in zip(online_mcpu, batch_mcpu, zones, strict=True):
        if not capacity_mcpu:
            continue
        by_use, by_online_use = model.by_use, model.by_online_use
        used = online + batch
        if used > capacity_mcpu:
            used = capacity_mcpu
            is_over = True
        felt += online * (
            by_use[used * _PERMILLE // capacity_mcpu] + by_online_use[online * _PERMILLE // capacity_mcpu]
        )
    unmet_mcpu = demand_mcpu - sum(online_mcpu)
    if is_over:
        unmet_mcpu += _displaced(online_mcpu, batch_mcpu, zones)[1]
    return _Felt(felt, unmet_mcpu, sum(batch_mcpu), is_memory_over)


def _feel(account: Account, now_ms: int, felt: _Felt, demand_mcpu: int, bound_permille: int) -> bool:
    """Set delay and harm from now on; returns whether online work is hurt.

    Demand that gets nothing waits: its share of what is served is added to the delay.
    """
    delay_permille = 0
    is_hurt = felt.is_memory_over
    if demand_mcpu:
        served_mcpu = max(1, demand_mcpu - felt.unmet_mcpu)
        delay_permille = -(-felt.weighted // demand_mcpu) + -(-felt.unmet_mcpu * _PERMILLE // served_mcpu)
        is_hurt = is_hurt or felt.unmet_mcpu > 0 or delay_permille > bound_permille
    account.feel(now_ms, delay_permille, is_hurt, felt.batch_mcpu)
    return is_hurt


def _displaced(online_mcpu: list[int], batch_mcpu: Sequence[int], zones: Sequence[SharedZone]) -> tuple[list[int], int]:
    """Return the CPU of online work by zone while batch keeps its weight, and the demand without room in any zone."""
    room_mcpu = [zone.capacity_mcpu - batch for batch, zone in zip(batch_mcpu, zones, strict=True)]
    got_mcpu = [min(online, room) for online, room in zip(online_mcpu, room_mcpu, strict=True)]
    displaced_mcpu = sum(online_mcpu) - sum(got_mcpu)
    for zone, room in enumerate(room_mcpu):
        more = min(displaced_mcpu, room - got_mcpu[zone])
        got_mcpu[zone] += more
        displaced_mcpu -= more
    return got_mcpu, displaced_mcpu
