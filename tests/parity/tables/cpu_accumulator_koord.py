"""Koordinator's choice of CPUs: preferred ones first, whole cores or spread, one zone or socket before several.

Colo gives a CPU to one holder; cases in which several may hold it are `reference only`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from colo_common.model.cpu_topology import CpuRow, CpuTopology, cpus_of_mask
from colo_common.model.cpuset import CpuSet
from colo_scheduler.cpus.accumulate import Wish
from colo_scheduler.cpus.binding import BindPolicy, ExclusivePolicy, NoCpus, NumaStrategy
from colo_scheduler.cpus.exclusive import HeldCpus, Holders, sum_holders
from tests.parity.peers.shared_cpus import take_shared_cpus
from tests.parity.table import JsonObject, Reference, Result, Table, compared, raised


def _topology(asked: JsonObject) -> CpuTopology:
    """Cores are numbered through the machine; their CPUs follow each other, or are as far apart as there are cores ("linux")."""
    threads, in_zone = asked["threads_per_core"], asked["cores_per_numa"]
    zones = asked["sockets"] * asked["numa_per_socket"]
    is_linux = asked.get("cpu_numbering", "sequential") == "linux"
    rows = []
    for core in range(zones * in_zone):
        zone = core // in_zone
        for thread in range(threads):
            cpu = core + thread * zones * in_zone if is_linux else core * threads + thread
            rows.append(CpuRow(cpu, core, zone, zone // asked["numa_per_socket"]))
    return CpuTopology.from_rows(rows)


def _holders(allocated: list[JsonObject]) -> Holders:
    """The counts of the list; every CPU in it keeps others away as its policy says, one with a count of 0, too."""
    held = [
        HeldCpus(cpus=CpuSet(1 << each["cpu"]), exclusive=_exclusive(each.get("exclusive_policy")))
        for each in allocated
    ]
    counts = [1 if each.get("ref_count") is None else each["ref_count"] for each in allocated]
    once = sum_holders(held)
    planes = sum_holders(each for each, count in zip(held, counts, strict=True) for _ in range(count)).planes
    return Holders(planes=planes, pcpu_level=once.pcpu_level, zone_level=once.zone_level)


def _exclusive(name: str | None) -> ExclusivePolicy:
    return ExclusivePolicy(name) if name in list(ExclusivePolicy) else ExclusivePolicy.NONE


def _shown(found: int | NoCpus) -> Mapping[str, object]:
    """A choice as the tables write it."""
    return {"error": found.detail} if isinstance(found, NoCpus) else {"cpus": cpus_of_mask(found)}


def _take(case: JsonObject) -> object:
    is_full = case.get("bind_policy") == BindPolicy.FULL_PCPUS
    is_most = case.get("numa_strategy") == NumaStrategy.MOST_ALLOCATED
    wish = Wish(
        BindPolicy.FULL_PCPUS if is_full else BindPolicy.SPREAD_BY_PCPUS,
        _exclusive(case.get("exclusive_policy")),
        NumaStrategy.MOST_ALLOCATED if is_most else NumaStrategy.LEAST_ALLOCATED,
    )
    most = case.get("max_ref_count") or 1
    found = take_shared_cpus(
        _topology(case["topology"]),
        CpuSet.from_iterable(case["available_cpus"]).mask,
        CpuSet.from_iterable(case.get("preferred_cpus") or ()).mask,
        case["num_cpus_needed"],
        wish,
        _holders(case.get("allocated") or []),
        most,
    )
    return _shown(found) if most == 1 else Reference(_shown(found))


def _is_ours(case: object) -> bool:
    found = case.get("input") if isinstance(case, Mapping) else None
    return isinstance(found, Mapping) and {"available_cpus", "num_cpus_needed"} <= found.keys()


def _overlap(document: JsonObject) -> int:
    cases = document.get("cases")
    return int(isinstance(cases, list) and any(_is_ours(case) for case in cases))


def _run(document: JsonObject) -> Iterator[Result]:
    for case in document.get("cases", ()):
        name = case.get("name", "a case without a name") if isinstance(case, Mapping) else f"not a case: {case!r}"
        try:
            yield compared(str(name), case["expected"], _take(case["input"]))
        except Exception as error:  # a case that our code cannot answer is a failed case, and the next one still runs
            yield Result(str(name), raised(error))


TABLE = Table("cpu_accumulator_koord", _overlap, _run)
