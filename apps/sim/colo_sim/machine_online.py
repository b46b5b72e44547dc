"""Online replicas of a simulated machine: placed work outside the batch tier, on CPUs of its own or on the shared ones.

ASSUMED, as everything about demand: an online replica uses all that it may as long as it has work, and the services of the trace
use what is left. LS replicas share the CPUs that no LSE or LSR replica holds; batch work never takes CPU from online replicas.
"""

from __future__ import annotations

from collections.abc import Sequence

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import QosClass
from colo_sim.machine_memory import grow_memory
from colo_sim.machine_replica import NEVER_MS, Replica
from colo_sim.machine_share import share_batch_cpu
from colo_sim.machine_spec import MachineSpec

__all__ = ["OnlineReplica", "OnlineReplicas", "spread_into_room"]

_MCPU = 1_000


class OnlineReplica(Replica):
    """A replica of class LSE, LSR or LS. `cpus` are its own; LS has none."""

    __slots__ = ("cpus", "qos")

    def __init__(
        self,
        name: str,
        attempt: int,
        zones: tuple[int, ...],
        cpu_mcpu: int,
        memory_bytes: int,
        work_mcpu_ms: int,
        now: int,
        qos: QosClass,
        cpus: CpuSet,
    ) -> None:
        super().__init__(name, attempt, zones, cpu_mcpu, memory_bytes, work_mcpu_ms, now)
        self.qos = qos
        self.cpus = cpus


class OnlineReplicas:
    """All online replicas of one machine. `zone_mcpu` is their use in each zone, `lse_mcpu` that of LSE replicas; `room_mcpu` is
    what they leave there to the services of the trace: CPUs without an owner, less what LS replicas use. All are exact after
    `share`.
    """

    def __init__(self, spec: MachineSpec) -> None:
        self._spec = spec
        self._all = CpuSet((1 << spec.zones * spec.cpus_per_zone) - 1)
        self._zones = [
            CpuSet(((1 << spec.cpus_per_zone) - 1) << zone * spec.cpus_per_zone) for zone in range(spec.zones)
        ]
        self.by_name: dict[str, OnlineReplica] = {}
        self.zone_mcpu = [0] * spec.zones
        self.lse_mcpu = [0] * spec.zones
        self.room_mcpu = [spec.cpus_per_zone * _MCPU] * spec.zones
        self.used_mcpu = 0
        self.memory_bytes = 0

    @property
    def own(self) -> CpuSet:
        """CPUs that LSE and LSR replicas hold."""
        return CpuSet.from_iterable(cpu for one in self.by_name.values() for cpu in one.cpus)

    @property
    def lse(self) -> CpuSet:
        """CPUs that LSE replicas hold."""
        return CpuSet.from_iterable(cpu for one in self.by_name.values() if one.qos is QosClass.LSE for cpu in one.cpus)

    def placed(self, qos: QosClass, cpus: str) -> tuple[CpuSet, tuple[int, ...]]:
        """The own CPUs and the zones of a replica that is about to start: LS has no own CPUs, and all zones.

        Raises InvalidInput when the CPUs cannot be given.
        """
        if qos not in (QosClass.LSE, QosClass.LSR, QosClass.LS):
            raise InvalidInput("qos", "must be LSE, LSR or LS for online work", qos.value)
        if not qos.has_own_cpus:
            if self._all <= self.own:
                raise InvalidInput("cpus", "no shared CPU is left", cpus)
            return CpuSet(), tuple(range(self._spec.zones))
        own = CpuSet.parse(cpus, "cpus")
        if not own:
            raise InvalidInput("cpus", f"{qos.value} work needs CPUs of its own", cpus)
        if not own <= self._all:
            raise InvalidInput("cpus", "must be CPUs of this machine", cpus)
        if own & self.own:
            raise InvalidInput("cpus", "must not be held by others", (own & self.own).format())
        if qos is QosClass.LSE and self._all <= self.lse | own:
            raise InvalidInput("cpus", "must leave a CPU to the rest of the machine", cpus)
        has_shared = any(not one.qos.has_own_cpus for one in self.by_name.values())
        if has_shared and self._all <= self.own | own:
            raise InvalidInput("cpus", "must leave a CPU to LS work", cpus)
        return own, tuple(zone for zone, cpus_of_zone in enumerate(self._zones) if cpus_of_zone & own)

    def share(self, now_ms: int) -> int:
        """Set the rate of every replica; returns when the first one ends (ms) if nothing changes.

        Own CPUs give what was asked of them; LS replicas share the others of their zones in proportion.
        """
        zone_mcpu = [0] * self._spec.zones
        lse_mcpu = [0] * self._spec.zones
        shared = []
        for one in self.by_name.values():
            if not one.qos.has_own_cpus:
                shared.append(one)
                continue
            left_mcpu = min(one.cpu_mcpu, len(one.cpus) * _MCPU)
            one.run_at(left_mcpu, now_ms)
            for zone in one.zones:
                part_mcpu = min(left_mcpu, len(self._zones[zone] & one.cpus) * _MCPU)
                zone_mcpu[zone] += part_mcpu
                left_mcpu -= part_mcpu
                if one.qos is QosClass.LSE:
                    lse_mcpu[zone] += part_mcpu
        own = self.own
        self.room_mcpu = [len(cpus - own) * _MCPU for cpus in self._zones]
        if shared:
            shares = share_batch_cpu(shared, self.room_mcpu, None)
            for one, rate_mcpu in zip(shared, shares.granted_mcpu, strict=True):
                one.run_at(rate_mcpu, now_ms)
            zone_mcpu = [fixed + part for fixed, part in zip(zone_mcpu, shares.zone_mcpu, strict=True)]
            self.room_mcpu = [room - part for room, part in zip(self.room_mcpu, shares.zone_mcpu, strict=True)]
        self.zone_mcpu, self.lse_mcpu = zone_mcpu, lse_mcpu
        self.used_mcpu = sum(zone_mcpu)
        return min((one.due_ms() for one in self.by_name.values()), default=NEVER_MS)

    def grow_memory(self, now_ms: int) -> bool:
        """Set the memory of each replica at `now_ms`; returns whether any still grows."""
        self.memory_bytes, is_ramping = grow_memory(
            self.by_name.values(), now_ms, self._spec.interference.memory_ramp_ms
        )
        return is_ramping


def spread_into_room(demand_mcpu: int, weights: Sequence[int], weight_sum: int, room_mcpu: Sequence[int]) -> list[int]:
    """The online demand of each zone: by weight; the excess over a zone's room goes to the next zones with room.

    The sum is the demand, or all room where the demand exceeds it.
    """
    spread = [demand_mcpu * weight // weight_sum for weight in weights]
    spread[-1] += demand_mcpu - sum(spread)
    got = [min(part, room) for part, room in zip(spread, room_mcpu, strict=True)]
    over = demand_mcpu - sum(got)
    for zone, room in enumerate(room_mcpu):
        more = min(over, room - got[zone])
        got[zone] += more
        over -= more
    return got
