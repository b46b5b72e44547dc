"""The control groups that a kernel would show on a simulated machine: colo's tier and replicas, and the services of the trace."""

from __future__ import annotations

from typing import Final

from colo_common.events.kernel import KernelGroup
from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import attempt_key
from colo_common.model.qos import QosClass
from colo_sim.machine import SimMachine

__all__ = ["groups_of"]

_VERSION: Final = 2
_WEIGHT_LEAST: Final = 1
_WEIGHT_MOST: Final = 10_000
_SERVICES: Final = "online-services"


def groups_of(machine: SimMachine) -> tuple[KernelGroup, ...]:
    """Every group by path. Online work with CPUs of its own has exactly these; LS work and the services of the trace share the
    CPUs without an owner; batch work may use every CPU of its zones that the tier has and no LSE work holds.
    """
    spec = machine.spec
    width = spec.cpus_per_zone
    everything = CpuSet((1 << spec.zones * width) - 1)
    owned = machine.owned_cpus()
    own = CpuSet.from_iterable(cpu for _, cpus in owned.values() for cpu in cpus)
    lse = CpuSet.from_iterable(cpu for qos, cpus in owned.values() if qos is QosClass.LSE for cpu in cpus)
    tier = CpuSet.parse(machine.batch_cpus) - lse
    mems = _mems(tuple(range(spec.zones)))
    quota = machine.batch_quota_mcpu
    groups = [
        _group(_SERVICES, f"/{_SERVICES}", QosClass.LS, cpus=everything - own, mems=mems, is_colo=False),
        _group("batch", "/colo/batch", QosClass.BE, cpus=tier, mems=mems, weight=_WEIGHT_LEAST, quota=quota),
    ]
    for replica in machine.counters().replicas:
        zones = CpuSet.from_iterable(cpu for zone in replica.zones for cpu in range(zone * width, (zone + 1) * width))
        is_batch = replica.qos is QosClass.BE
        if is_batch:
            cpus = tier & zones
        elif replica.qos.has_own_cpus:
            cpus = owned[replica.replica][1]
        else:
            cpus = everything - own
        name = attempt_key(replica.replica, replica.attempt)
        parent = "/colo/batch" if is_batch else "/colo-online"
        groups.append(
            _group(
                name,
                f"{parent}/{name.replace('/', '.')}",
                replica.qos,
                cpus=cpus,
                mems=_mems(replica.zones),
                weight=max(_WEIGHT_LEAST, min(_WEIGHT_MOST, machine.request_mcpu(replica.replica) // 10)),
                replica=replica.replica,
                attempt=replica.attempt,
                processes=1,
            )
        )
    return tuple(sorted(groups, key=lambda group: group.path))


def _mems(zones: tuple[int, ...]) -> str:
    return CpuSet.from_iterable(zones).format()


def _group(
    name: str,
    path: str,
    qos: QosClass,
    *,
    cpus: CpuSet,
    mems: str,
    weight: int = 100,
    quota: int | None = None,
    is_colo: bool = True,
    replica: str = "",
    attempt: int = 0,
    processes: int = 0,
) -> KernelGroup:
    return KernelGroup(
        name=name,
        path=path,
        version=_VERSION,
        qos=qos,
        is_colo=is_colo,
        replica=replica,
        attempt=attempt,
        cpus=cpus.format(),
        mems=mems,
        weight=weight,
        cpu_quota_mcpu=quota,
        processes=processes,
    )
