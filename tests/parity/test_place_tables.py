"""The tables of zones, load, reservations and devices, beyond their files: what a case leaves out, and options that meet."""

from __future__ import annotations

from typing import Any

import pytest

from tests.parity.tables import all_tables

_TABLES = {table.stem: table for table in all_tables()}
_PODS = {"containers": [{"requests": {"cpu": 1000}}]}
# Two zones of two switches with two GPUs each.
_GPUS = [{"minor": minor, "numa": minor // 4, "pcie": str(minor // 2)} for minor in range(8)]
_FOURS = {"4": [{"minors": [0, 1, 4, 5], "score": 1}]}


def failure(stem: str, asked: object, expected: object, **rest: object) -> str | None:
    (found,) = _TABLES[stem].run({"cases": [{"name": "a case", "input": asked, "expected": expected, **rest}]})
    return found.failure


class TestDevices:
    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            # A group goes before any scope; where none has to be found, the scope decides about the others.
            ({"gpu_wanted": 4, "partition_table": _FOURS, "required_scope": "PCIe"}, {"gpu": [0, 1, 4, 5]}),
            ({"gpu_wanted": 4, "partition_table": _FOURS, "required_scope": "Device"}, {"gpu": [0, 1, 4, 5]}),
            (
                {
                    "gpu_wanted": 4,
                    "used_gpus": [0],
                    "partition_table": _FOURS,
                    "gpu_partition_policy": "Prefer",
                    "required_scope": "NUMANode",
                },
                {"gpu": [4, 5, 6, 7]},
            ),
            ({"gpu_wanted": 4, "used_gpus": [0], "partition_table": _FOURS, "required_scope": "NUMANode"}, None),
            ({"gpu_wanted": 2, "required_scope": "Device"}, None),
            # A group that is there is kept to, and other devices that are not beside it are missing.
            (
                {
                    "gpu_wanted": 4,
                    "partition_table": _FOURS,
                    "gpu_partition_policy": "Prefer",
                    "required_scope": "NUMANode",
                    "rdmas": [{"minor": minor, "numa": 0, "pcie": str(minor)} for minor in (0, 1)],
                    "rdma_wanted": 1,
                    "joint": True,
                    "joint_scope": "SamePCIe",
                },
                None,
            ),
            # A table without any group is a table: nothing can be given in groups.
            ({"gpu_wanted": 1, "partition_table": {}}, None),
            ({"gpu_wanted": 1, "partition_table": {}, "gpu_partition_policy": "Prefer"}, {"gpu": [0]}),
        ],
    )
    def test_groups_go_before_scopes(self, asked: dict[str, object], expected: object) -> None:
        asked = {"gpus": _GPUS, "used_gpus": [], **asked}
        assert failure("device_share", asked, expected or {"error": True}) is None

    def test_a_scope_of_gpus_says_nothing_of_other_devices(self) -> None:
        asked = {
            "gpus": _GPUS,
            "rdmas": [{"minor": 1, "numa": 0, "pcie": "0"}],
            "gpu_wanted": 0,
            "rdma_wanted": 1,
            "required_scope": "Device",
        }
        assert failure("device_share", asked, {"rdma": [1]}) is None


class TestZones:
    def test_a_provider_that_says_nothing_and_absent_fields_stand_for_no_opinion(self) -> None:
        asked = {
            "implementation": "koordinator",
            "policy": "best-effort",
            "numa_nodes": [0, 1],
            "providers": [None, {}],
        }
        expected = {"affinity": [0, 1], "preferred": True, "unsatisfied": False, "score": 0, "admit": True}
        assert failure("topology_policy_merge", asked, expected) is None

    @pytest.mark.parametrize("nodes", [[], [{"name": "a", "zones": None}, {"name": "b"}]])
    def test_nodes_that_tell_no_zones_score_nothing(self, nodes: list[Any]) -> None:
        asked = {
            "kind": "score",
            "pod": _PODS,
            "strategy": "LeastAllocated",
            "policy": "single-numa-node",
            "nodes": nodes,
        }
        best = nodes[0]["name"] if nodes else None
        assert failure("numa_fit", asked, {"best_node": best, "best_score": 0}) is None

    def test_a_result_that_names_no_zone_of_memory_low_priority_to_the_assumed_one(self) -> None:
        zones = [
            {"name": "node0", "allocatable": {"cpu_milli": 4000}},
            {"name": "node1", "allocatable": {"cpu_milli": 3000}},
        ]
        held = {
            "topology_result": [{"name": "node1", "type": "Socket", "cpu_milli": 3000}],
            "assumed_result": [{"name": "node0", "cpu_milli": 2000}],
        }
        asked = {
            "pod": {"topology_awareness": True, "containers": [{"request_cpu_milli": 3000, "limit_cpu_milli": 3000}]},
            "node": {"crane_cpu_manager_policy": "Static", "zones": zones},
            "existing_pods": [held],
            "aware_resources": ["cpu"],
        }
        expected = {"status": "ok", "reason": None, "result": [{"name": "node1", "cpu_milli": 3000}], "score": 100}
        assert failure("crane_numa_topology", asked, expected) is None


class TestLoad:
    @pytest.mark.parametrize("value", [None, "not a number", -0.5])
    def test_what_is_no_number_is_no_metric(self, value: object) -> None:
        metrics = {"cpu_usage_avg_5m": {"value": value, "age_s": 1}, "mem_usage_avg_5m": {"value": 0.5, "age_s": 1}}
        asked = {
            "kind": "filter_score",
            "metrics": metrics,
            "sync_period_s": dict.fromkeys(metrics, 180),
            "predicates": {"cpu_usage_avg_5m": 0.1},
            "weights": dict.fromkeys(metrics, 1),
        }
        assert failure("crane_dynamic", asked, {"passes": True, "rejected_by": None, "score": 25}) is None

    @pytest.mark.parametrize("allowed", [True, False])
    def test_own_factors_are_found_under_the_name_of_the_annotation_too(self, allowed: bool) -> None:
        pod = {"kube_qos": "Burstable", "requests": {"cpu": 1000}, "load_estimated_scaling_factors": {"cpu": 10}}
        asked = {"kind": "estimate_pod", "pod": pod, "factors": {"cpu": 50}, "allow_customize_estimation": allowed}
        assert failure("loadaware", asked, {"cpu": 100 if allowed else 500}) is None

    def test_a_class_that_nobody_knows_says_nothing(self) -> None:
        asked = {
            "kind": "estimate_pod",
            "pod": {"priority_class": "koord-none", "priority": 5500, "requests": {"kubernetes.io/batch-cpu": 4000}},
            "factors": {"cpu": 50},
        }
        assert failure("loadaware", asked, {"cpu": 2000}) is None


class TestReservations:
    def test_a_reservation_controls_all_that_it_reserves_unless_it_says(self) -> None:
        reservation = {"name": "r", "policy": "Restricted", "allocatable": {"cpu": 1000}}
        asked = {"kind": "fits_reservation", "pod_requests": {"cpu": 2000}, "reservation": reservation}
        assert failure("reservation", asked, {"insufficient": True}) is None
        asked = {**asked, "reservation": {**reservation, "resource_names": []}}
        assert failure("reservation", asked, {"insufficient": False}) is None
