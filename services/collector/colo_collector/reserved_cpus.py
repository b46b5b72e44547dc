"""The CPUs that a node's operator keeps back: an annotation in the form of Koordinator.

A quantity resolved by the kubelet's rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct, field, structs

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import NodeRules
from colo_common.model.quantity import ceil_div, parse_bytes, parse_mcpu
from colo_common.model.topology import Cpu, NodeTopology

__all__ = ["packed_cpus", "reservation_rules", "reserved_ids"]

_CHARACTERS_MAX: Final = 4_096


class _Resources(Struct, forbid_unknown_fields=True):
    cpu: str = ""
    memory: str = ""


class _Annotation(Struct, forbid_unknown_fields=True):
    resources: _Resources = field(default_factory=_Resources)
    cpus: str = field(name="reservedCPUs", default="")
    policy: Literal["", "Default", "ReservedCPUsOnly"] = field(name="applyPolicy", default="")


def reservation_rules(text: str, rules: NodeRules, name: str = "reservation") -> NodeRules:
    """The rules with what an annotation `node.koordinator.sh/reservation` reserves; "" changes nothing.

    `{"resources":{"cpu":"5","memory":"8Gi"}}` is a quantity, `{"reservedCPUs":"0-3"}` a list, which wins. Raises InvalidInput for
    other text, and where the rules reserve something themselves.
    (koordinator-sh/koordinator:apis/extension/node_reservation.go:28)
    """
    if not text:
        return rules
    if len(text) > _CHARACTERS_MAX:
        raise InvalidInput(name, f"must be at most {_CHARACTERS_MAX} characters", len(text))
    try:
        found = msgspec.json.decode(text, type=_Annotation)
    except msgspec.MsgspecError as error:
        raise InvalidInput(name, f"must be the JSON of node.koordinator.sh/reservation: {error}", text) from error
    if rules.reserved_cpus or rules.reserved_mcpu or rules.reserved_memory_bytes or rules.reserved_cpus_only:
        raise InvalidInput(
            name, "must not be set beside rules_reserved_cpus, _mcpu, _memory_bytes and _cpus_only", text
        )
    CpuSet.parse(found.cpus, f"{name}.reservedCPUs")
    return structs.replace(
        rules,
        reserved_cpus=found.cpus,
        reserved_mcpu=0 if found.cpus or not found.resources.cpu else parse_mcpu(found.resources.cpu, f"{name}.cpu"),
        reserved_memory_bytes=parse_bytes(found.resources.memory, f"{name}.memory") if found.resources.memory else 0,
        reserved_cpus_only=found.policy == "ReservedCPUsOnly",
    )


def reserved_ids(topology: NodeTopology, rules: NodeRules) -> CpuSet:
    """The ids of the CPUs that the operator reserves: those listed, else the quantity by the kubelet's rule, in whole CPUs."""
    listed = CpuSet.parse(rules.reserved_cpus, "rules.reserved_cpus")
    return listed or packed_cpus(topology.cpus, ceil_div(rules.reserved_mcpu, 1_000))


def packed_cpus(cpus: Sequence[Cpu], count: int) -> CpuSet:
    """`count` CPUs as the kubelet's static policy takes them from an empty machine: whole zones and sockets, whole cores, CPUs.

    At each level those with the fewest CPUs go first, of equal ones the lower id. Where there are at least as many sockets as
    zones, zones contain sockets and come first, else the other way round. All CPUs when there are no more.
    (kubernetes/kubernetes:pkg/kubelet/cm/cpumanager/cpu_assignment.go, takeByTopologyNUMAPacked)
    """
    free = {cpu.cpu: cpu for cpu in cpus}
    taken: set[int] = set()
    zones_first = len({cpu.socket for cpu in cpus}) >= len({cpu.zone for cpu in cpus})
    outer: Callable[[Cpu], int] = _zone if zones_first else _socket
    inner: Callable[[Cpu], int] = _socket if zones_first else _zone

    def units(of: Callable[[Cpu], int], members: Sequence[Cpu]) -> list[list[Cpu]]:
        grouped: dict[int, list[Cpu]] = {}
        for cpu in members:
            grouped.setdefault(of(cpu), []).append(cpu)
        return [grouped[key] for key in sorted(grouped, key=lambda key: (len(grouped[key]), key))]

    whole = {of: {key: sum(of(cpu) == key for cpu in cpus) for key in map(of, cpus)} for of in (outer, inner, _core)}

    def take(ordered: Sequence[Sequence[Cpu]], of: Callable[[Cpu], int]) -> None:
        for unit in ordered:
            if len(unit) == whole[of][of(unit[0])] and len(unit) <= count - len(taken):
                for cpu in unit:
                    taken.add(cpu.cpu)
                    del free[cpu.cpu]

    def nested() -> list[list[Cpu]]:
        inside = [unit for first in units(outer, list(free.values())) for unit in units(inner, first)]
        return [core for unit in inside for core in units(_core, unit)]

    take(units(outer, list(free.values())), outer)
    take([unit for first in units(outer, list(free.values())) for unit in units(inner, first)], inner)
    take(nested(), _core)
    rest = [cpu.cpu for core in nested() for cpu in sorted(core, key=lambda one: one.cpu)]
    return CpuSet.from_iterable(sorted(taken | set(rest[: max(count - len(taken), 0)])))


def _zone(cpu: Cpu) -> int:
    return cpu.zone


def _socket(cpu: Cpu) -> int:
    return cpu.socket


def _core(cpu: Cpu) -> int:
    return cpu.core
