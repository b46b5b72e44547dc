"""CPUs taken by topology and in turn from the zones, and the sizes of pools.

Colo regulates no pool sizes, so these cases are `reference only`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from colo_common.model.cpu_topology import CpuRow, CpuTopology
from colo_common.model.cpu_turns import take_in_turn
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_scheduler.peers.katalyst.assignment import take_by_topology
from tests.parity.peers.pool_sizes import overlap_reclaim, regulate_pool_sizes
from tests.parity.table import JsonObject, Reference, Result, Table, compared, raised


@dataclass(frozen=True, slots=True)
class _Machine:
    """A topology, and its caches in order of an id that counts over the whole machine."""

    topology: CpuTopology
    caches: tuple[int, ...]


def _machine(cpus: list[list[int]]) -> _Machine:
    caches: dict[int, int] = {}
    for cpu, _, _, _, l3 in cpus:
        caches[l3] = caches.get(l3, 0) | 1 << cpu
    rows = (CpuRow(cpu=cpu, core=core, zone=zone, socket=socket, l3=l3) for cpu, zone, socket, core, l3 in cpus)
    return _Machine(CpuTopology.from_rows(rows), tuple(caches[l3] for l3 in sorted(caches)))


def _known(machine: _Machine | None) -> _Machine:
    if machine is None:
        raise LookupError("the case names no topology of this file")
    return machine


def _cpus(cpus: CpuSet | None) -> object:
    return {"error": cpus is None, "cpus": None if cpus is None else list(cpus)}


def _by_topology(case: JsonObject, machine: _Machine | None) -> object:
    machine = _known(machine)
    caches = machine.caches if case.get("align_l3") else None
    available = CpuSet.from_iterable(case["available"])
    return _cpus(take_by_topology(machine.topology, available, case["need"], caches=caches))


def _in_turn(*, whole_cores: bool, from_highest: bool) -> Callable[[JsonObject, _Machine | None], object]:
    def take(case: JsonObject, machine: _Machine | None) -> object:
        machine = _known(machine)
        available = CpuSet.from_iterable(case["available"])
        return _cpus(
            take_in_turn(machine.topology, available, case["need"], whole_cores=whole_cores, from_highest=from_highest)
        )

    return take


def _regulate(case: JsonObject, _: _Machine | None) -> object:
    pools = regulate_pool_sizes(
        case.get("expandable") or {},
        case.get("unexpandable") or {},
        case["available"],
        allow_expand=bool(case.get("allow_expand")),
    )
    return Reference({"sizes": pools.sizes, "throttled": pools.is_throttled})


def _overlap_reclaim(case: JsonObject, _: _Machine | None) -> object:
    try:
        return Reference({"error": False, "sizes": overlap_reclaim(case["share_pools"], case["required"])})
    except InvalidInput:
        return Reference({"error": True, "sizes": None})


_FUNCTIONS: dict[str, Callable[[JsonObject, _Machine | None], object]] = {
    "by_topology": _by_topology,
    "numa_balance": _in_turn(whole_cores=True, from_highest=False),
    "numa_balance_reverse": _in_turn(whole_cores=True, from_highest=True),
    "ht_numa_balance": _in_turn(whole_cores=False, from_highest=False),
    "ht_numa_balance_reverse": _in_turn(whole_cores=False, from_highest=True),
    "regulate_pool_sizes": _regulate,
    "overlap_reclaim": _overlap_reclaim,
}


def _function_of(case: Any) -> str | None:
    found = case.get("input") if isinstance(case, dict) else None
    function = found.get("function") if isinstance(found, dict) else None
    return function if isinstance(function, str) else None


def _overlap(document: JsonObject) -> int:
    cases = document.get("cases")
    if not isinstance(cases, list):
        return 0
    return len({function for function in map(_function_of, cases) if function in _FUNCTIONS})


def _run(document: JsonObject) -> Iterator[Result]:
    topologies = document.get("topologies") or {}
    machines: dict[str, _Machine] = {}
    for case in document.get("cases", ()):
        name = str(case.get("name")) if isinstance(case, dict) else f"not a case: {case!r}"
        function = _function_of(case)
        if function is None or function not in _FUNCTIONS:
            yield Result(name, f"unknown function {function!r}")
            continue
        try:
            on = case["input"].get("topology")
            if on in topologies and on not in machines:
                machines[on] = _machine(topologies[on]["cpus"])
            actual = _FUNCTIONS[function](case["input"], machines.get(on))
            yield compared(name, case["expected"], actual)
        except Exception as error:  # a case that our code cannot answer is a failed case, and the next one still runs
            yield Result(name, raised(error))


TABLE = Table("katalyst_cpu_assignment", _overlap, _run)
