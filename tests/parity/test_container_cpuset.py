"""The CPU list that a workload's cpuset gets."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import QosClass
from tests.parity.peers.container_cpuset import (
    CpusetRule,
    GivenCpus,
    ZoneCpus,
    ZonePool,
    cpus_of_host_application,
    cpus_of_workload,
)

LS_POOLS = (ZonePool(zone=0, cpus="2-7"), ZonePool(zone=1, cpus="8-15"))
BE_POOLS = (ZonePool(zone=0, cpus="0-7"), ZonePool(zone=1, cpus="8-15"))
RULE = CpusetRule(ls_pools=LS_POOLS, be_pools=BE_POOLS)
NOTHING = GivenCpus()
ZONE_1 = GivenCpus(zones=(ZoneCpus(zone=1, cpu_mcpu=2000),))

Kubernetes = Literal["Guaranteed", "Burstable", "BestEffort"]
classes = st.sampled_from([*QosClass.__members__.values(), None])
kubernetes_classes: st.SearchStrategy[Kubernetes] = st.sampled_from(["Guaranteed", "Burstable", "BestEffort"])


@given(classes, kubernetes_classes, st.booleans())
def test_cpus_by_number_always_win(qos: QosClass | None, kubernetes: Kubernetes, is_static: bool) -> None:
    given_cpus = GivenCpus(cpus="3-4", zones=ZONE_1.zones)
    rule = CpusetRule(ls_pools=LS_POOLS, is_kubelet_static=is_static)
    assert cpus_of_workload(rule, given_cpus, qos, kubernetes) == "3-4"
    assert cpus_of_workload(None, given_cpus, qos, kubernetes) == "3-4"


@given(classes, kubernetes_classes)
def test_without_a_rule_nothing_else_is_touched(qos: QosClass | None, kubernetes: Kubernetes) -> None:
    assert cpus_of_workload(None, ZONE_1, qos, kubernetes) is None


@pytest.mark.parametrize("qos", [QosClass.LSE, QosClass.LSR, QosClass.LS, QosClass.SYSTEM, None])
def test_work_given_zones_stays_in_their_ls_pools(qos: QosClass | None) -> None:
    assert cpus_of_workload(RULE, ZONE_1, qos, "Burstable") == "8-15"


def test_be_stays_in_its_zones_only_where_the_node_keeps_it_there() -> None:
    batch = GivenCpus(zones=(ZoneCpus(zone=0, batch_cpu_mcpu=2000),))
    assert cpus_of_workload(RULE, batch, QosClass.BE, "BestEffort") == ""
    kept = CpusetRule(ls_pools=LS_POOLS, be_pools=BE_POOLS, has_be_zones=True)
    assert cpus_of_workload(kept, batch, QosClass.BE, "BestEffort") == "0-7"


def test_zones_are_joined_in_the_order_given_and_zones_without_cpu_do_not_count() -> None:
    both = GivenCpus(zones=(ZoneCpus(zone=1, cpu_mcpu=1), ZoneCpus(zone=0)))
    assert cpus_of_workload(RULE, both, QosClass.LS, "Burstable") == "8-15,2-7"
    assert cpus_of_workload(RULE, GivenCpus(zones=(ZoneCpus(zone=1),)), QosClass.LS, "Burstable") == "2-7,8-15"


def test_system_work_runs_where_the_node_says() -> None:
    with_system = CpusetRule(ls_pools=LS_POOLS, system_cpus="0-1")
    assert cpus_of_workload(with_system, NOTHING, QosClass.SYSTEM, "Burstable") == "0-1"
    assert cpus_of_workload(RULE, NOTHING, QosClass.SYSTEM, "Burstable") == "2-7,8-15"


@pytest.mark.parametrize("qos", [None, QosClass.LSE, QosClass.LSR, QosClass.BE])
def test_guaranteed_work_is_left_to_a_static_kubelet(qos: QosClass | None) -> None:
    static = CpusetRule(ls_pools=LS_POOLS, is_kubelet_static=True)
    assert cpus_of_workload(static, NOTHING, qos, "Guaranteed") is None
    assert cpus_of_workload(static, NOTHING, qos, "BestEffort") == ""
    assert cpus_of_workload(RULE, NOTHING, qos, "Guaranteed") == "2-7,8-15"


def test_ls_is_in_the_pool_whatever_kubernetes_says() -> None:
    static = CpusetRule(ls_pools=LS_POOLS, is_kubelet_static=True)
    assert cpus_of_workload(static, NOTHING, QosClass.LS, "BestEffort") == "2-7,8-15"


def test_host_applications_are_ls_or_refused() -> None:
    assert cpus_of_host_application(RULE, QosClass.LS) == "2-7,8-15"
    for qos in (QosClass.LSR, QosClass.BE, None):
        with pytest.raises(InvalidInput, match="must be LS"):
            cpus_of_host_application(RULE, qos)
