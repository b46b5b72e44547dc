"""The kubelet's choice of CPUs: packed, and distributed over zones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from colo_common.model.cpu_topology import CpuRow, CpuTopology, cpus_of_mask
from colo_common.model.cpuset import CpuSet
from colo_scheduler.cpus.binding import NoCpus
from colo_scheduler.peers.kubelet.static_policy import take_distributed, take_packed
from tests.parity.table import JsonObject, Result, Table, UnknownSentence, difference, raised


def _take(case: JsonObject) -> object:
    topology = CpuTopology.from_rows(CpuRow(cpu, core, zone, socket) for cpu, core, zone, socket in case["topology"])
    free = CpuSet.from_iterable(case["available_cpus"]).mask
    need, is_across_cores = case["num_cpus"], case.get("sorting") == "spread"
    match case.get("algorithm") or "packed":
        case "packed":
            found = take_packed(topology, free, need, is_across_cores=is_across_cores)
        case "distributed":
            group = case.get("cpu_group_size") or 1
            found = take_distributed(topology, free, need, group, is_across_cores=is_across_cores)
        case unknown:
            raise UnknownSentence(unknown)
    return {"error": found.detail} if isinstance(found, NoCpus) else {"cpus": cpus_of_mask(found)}


def _expected(case: JsonObject) -> object:
    """Newer kubelets add the numbers to the message: ": requested=5, available=4"."""
    expected = case["expected"]
    if isinstance(expected, Mapping) and "error" in expected:
        return {"error": str(expected["error"]).split(": requested=")[0]}
    return expected


def _is_ours(case: object) -> bool:
    found = case.get("input") if isinstance(case, Mapping) else None
    return isinstance(found, Mapping) and {"available_cpus", "num_cpus"} <= found.keys()


def _overlap(document: JsonObject) -> int:
    cases = document.get("cases")
    return int(isinstance(cases, list) and any(_is_ours(case) for case in cases))


def _run(document: JsonObject) -> Iterator[Result]:
    for case in document.get("cases", ()):
        name = case.get("name", "a case without a name") if isinstance(case, Mapping) else f"not a case: {case!r}"
        try:
            failure = difference(_expected(case), _take(case["input"]))
        except Exception as error:  # a case that our code cannot answer is a failed case, and the next one still runs
            failure = raised(error)
        yield Result(str(name), failure)


TABLE = Table("cpu_accumulator_kubelet", _overlap, _run)
