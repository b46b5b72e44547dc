"""Which CPUs of a zone one workload gets when its threads keep off each other's cores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from colo_common.model.cpu_topology import CpuRow, CpuTopology
from colo_common.model.cpuset import CpuSet
from colo_scheduler.cpus.siblings import choose_apart
from tests.parity.table import JsonObject, Result, Table, difference, raised

_KEYS = {"zone_cpus", "allocatable", "need"}


def _choose(case: JsonObject) -> object:
    topology = CpuTopology.from_rows(CpuRow(cpu=cpu, core=core, zone=0, socket=0) for cpu, core in case["zone_cpus"])
    allocatable, busy = CpuSet.from_iterable(case["allocatable"]), CpuSet.from_iterable(case.get("busy_others") or ())
    cpus = choose_apart(topology, allocatable, case["need"], busy)
    if cpus is None:
        return {"cpus": None, "own_sibling_pairs": 0}
    shared = sum((core & cpus.mask).bit_count() > 1 for core in topology.core_masks)
    return {"cpus": list(cpus), "own_sibling_pairs": shared}


def _is_choice(case: Any) -> bool:
    return isinstance(case, dict) and isinstance(case.get("input"), dict) and case["input"].keys() >= _KEYS


def _overlap(document: JsonObject) -> int:
    cases = document.get("cases")
    return int(isinstance(cases, list) and any(_is_choice(case) for case in cases))


def _run(document: JsonObject) -> Iterator[Result]:
    for case in document.get("cases", ()):
        name = str(case.get("name")) if isinstance(case, dict) else f"not a case: {case!r}"
        try:
            yield Result(name, difference(case["expected"], _choose(case["input"])))
        except Exception as error:  # a case that our code cannot answer is a failed case, and the next one still runs
            yield Result(name, raised(error))


TABLE = Table("seed002_cpu_choice", _overlap, _run)
