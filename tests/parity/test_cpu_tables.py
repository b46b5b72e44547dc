"""The tables of CPUs and classes, beyond their files: fields that a case leaves out, and lists that cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.parity.table import Result
from tests.parity.tables import all_tables

_TABLES = {table.stem: table for table in all_tables()}
_MACHINE = {"sockets": 2, "numa_per_socket": 1, "cores_per_numa": 2, "threads_per_core": 2}
# One zone of four CPUs; a CPU is (id, zone, socket, core, cache).
_FOUR = {"cpus": [[cpu, 0, 0, cpu // 2, 0] for cpu in range(4)], "cpus_per_core": 2, "cpus_per_socket": 4}


def results(stem: str, *cases: Any, **rest: object) -> list[Result]:
    return list(_TABLES[stem].run({"cases": list(cases), **rest}))


def failures(stem: str, *cases: Any, **rest: object) -> list[str | None]:
    return [result.failure for result in results(stem, *cases, **rest)]


class TestKoordinatorsChoice:
    @pytest.mark.parametrize(
        "absent", [{}, dict.fromkeys(("allocated", "preferred_cpus", "max_ref_count", "bind_policy"))]
    )
    def test_what_a_case_leaves_out_is_nothing_held_and_one_thread_a_core(self, absent: dict[str, object]) -> None:
        asked = {"topology": _MACHINE, "available_cpus": list(range(8)), "num_cpus_needed": 2, **absent}
        case = {"name": "bare", "input": asked, "expected": {"cpus": [0, 2]}}
        assert failures("cpu_accumulator_koord", case) == [None]

    def test_a_holder_that_counts_nothing_still_keeps_others_away(self) -> None:
        asked = {
            "topology": _MACHINE,
            "available_cpus": list(range(1, 8)),
            "allocated": [{"cpu": 0, "ref_count": 0, "exclusive_policy": "NUMANodeLevel"}],
            "exclusive_policy": "NUMANodeLevel",
            "numa_strategy": "MostAllocated",
            "num_cpus_needed": 2,
        }
        assert failures("cpu_accumulator_koord", {"input": asked, "expected": {"cpus": [4, 6]}}) == [None]

    @pytest.mark.parametrize("stem", ["cpu_accumulator_koord", "cpu_accumulator_kubelet", "seed002_cpu_choice"])
    def test_what_is_no_case_fails_alone(self, stem: str) -> None:
        (found,) = results(stem, "a stray line")
        assert found.failure is not None
        assert "a stray line" in found.name


class TestKatalystsChoice:
    def test_a_need_below_nothing_is_met_by_no_cpu(self) -> None:
        nothing = {"error": False, "cpus": []}
        asked = {"topology": "four", "available": [0], "need": -1}
        cases = [
            {"input": {"function": function, **asked}, "expected": nothing}
            for function in ("by_topology", "numa_balance", "numa_balance_reverse", "ht_numa_balance")
        ]
        assert failures("katalyst_cpu_assignment", *cases, topologies={"four": _FOUR}) == [None] * 4

    def test_a_broken_topology_fails_the_cases_that_name_it_and_no_other(self) -> None:
        asked = {"function": "by_topology", "available": [0, 1], "need": 2}
        expected = {"error": False, "cpus": [0, 1]}
        cases = [{"input": {**asked, "topology": name}, "expected": expected} for name in ("broken", "missing", "four")]
        broken, missing, good = failures(
            "katalyst_cpu_assignment", *cases, topologies={"broken": {"cpus": []}, "four": _FOUR}
        )
        assert broken is not None
        assert missing is not None
        assert good is None

    def test_pools_that_a_case_leaves_out_want_nothing(self) -> None:
        asked = {"function": "regulate_pool_sizes", "unexpandable": {"isolated": 2}, "available": 4}
        expected = {"sizes": {"isolated": 2}, "throttled": False}
        assert failures("katalyst_cpu_assignment", {"input": asked, "expected": expected}) == [None]


class TestPoolsLessSystemCpus:
    POOLS = (
        {"socket": 0, "node": 0, "cpuset": "0-3,4-7"},
        {"socket": 1, "node": 1, "cpuset": "eight"},
        {"socket": 1, "node": 2, "cpuset": "0-1"},
    )

    def test_lists_stay_as_written_where_nothing_is_withheld(self) -> None:
        asked = {"kind": "remove_system_cpus", "pools": self.POOLS, "system_qos": {"cpuset": "0-1", "exclusive": False}}
        assert failures("koord_qos_mapping", {"input": asked, "expected": {"pools": self.POOLS}}) == [None]

    def test_and_from_one_that_cannot_be_read_on(self) -> None:
        asked = {"kind": "remove_system_cpus", "pools": self.POOLS, "system_qos": {"cpuset": "0-1"}}
        expected = [{**self.POOLS[0], "cpuset": "2-7"}, *self.POOLS[1:]]
        assert failures("koord_qos_mapping", {"input": asked, "expected": {"pools": expected}}) == [None]


class TestClassesOfPods:
    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            ({"kind": "qos_raw", "pod": {}}, {"qos": ""}),
            ({"kind": "kube_qos", "pod": {"containers": [{"requests": None}]}}, {"kube_qos": "BestEffort"}),
            ({"kind": "bvt_pod", "rule": {"enable": True}}, {"bvt": 0}),
            ({"kind": "container_cpuset", "kube_qos": "BestEffort"}, {"cpuset": "", "error": False}),
            (
                {"kind": "node_reserved", "topology": [{"cpu": 0, "core": 0, "socket": 0, "node": 0}]},
                {"reserved_cpus": ""},
            ),
            (
                {
                    "kind": "take_by_topology",
                    "topology": [{"cpu": 0, "core": 0, "socket": 0, "node": 0}],
                    "available": "0",
                    "count": -1,
                },
                {"cpus": ""},
            ),
            ({"kind": "topology_policy", "policy": "restricted"}, {"topology_policy": "None"}),
        ],
    )
    def test_what_a_case_leaves_out_says_nothing(self, asked: dict[str, object], expected: dict[str, object]) -> None:
        assert failures("koord_qos_mapping", {"input": asked, "expected": expected}) == [None]
