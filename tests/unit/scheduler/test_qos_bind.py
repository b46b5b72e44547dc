"""What a pod asks of the cores it is bound to, and what its node demands."""

from __future__ import annotations

import pytest

from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import PriorityBand, QosClass
from colo_scheduler.cpus.binding import BindPolicy, ExclusivePolicy
from colo_scheduler.cpus.qos_binding import (
    AskedPolicy,
    Binding,
    NodeBindPolicy,
    ResourceSpec,
    bind,
)

PROD = PriorityBand.PROD


@pytest.mark.parametrize(
    ("qos", "band", "is_bound"),
    [
        (QosClass.LSE, PROD, True),
        (QosClass.LSR, PROD, True),
        (QosClass.LSE, PriorityBand.BATCH, False),
        (QosClass.LSR, None, False),
        (QosClass.LS, PROD, False),
        (QosClass.BE, PROD, False),
        (QosClass.SYSTEM, PROD, False),
        (None, PROD, False),
    ],
)
def test_only_prod_work_with_cpus_of_its_own_is_bound(
    qos: QosClass | None, band: PriorityBand | None, is_bound: bool
) -> None:
    assert (bind(ResourceSpec(), qos=qos, band=band, cpu_mcpu=2000) is not None) == is_bound


@pytest.mark.parametrize(
    ("required", "preferred", "wanted", "is_required"),
    [
        (None, None, BindPolicy.FULL_PCPUS, False),
        (None, AskedPolicy.DEFAULT, BindPolicy.FULL_PCPUS, False),
        (AskedPolicy.DEFAULT, AskedPolicy.SPREAD_BY_PCPUS, BindPolicy.SPREAD_BY_PCPUS, False),
        (AskedPolicy.FULL_PCPUS, AskedPolicy.SPREAD_BY_PCPUS, BindPolicy.FULL_PCPUS, True),
    ],
)
def test_required_goes_before_preferred_goes_before_the_default(
    required: AskedPolicy | None, preferred: AskedPolicy | None, wanted: BindPolicy, is_required: bool
) -> None:
    found = bind(ResourceSpec(required=required, preferred=preferred), qos=QosClass.LSR, band=PROD, cpu_mcpu=4000)
    assert found == Binding(cpus=4, policy=wanted, is_required=is_required, exclusive=ExclusivePolicy.NONE)


def test_a_bursting_workload_runs_in_a_pool() -> None:
    burst = ResourceSpec(preferred=AskedPolicy.CONSTRAINED_BURST)
    assert bind(burst, qos=QosClass.LSR, band=PROD, cpu_mcpu=1500) is None


def test_bound_cpus_are_whole() -> None:
    with pytest.raises(InvalidInput, match="whole CPUs"):
        bind(ResourceSpec(), qos=QosClass.LSR, band=PROD, cpu_mcpu=1500)
    assert bind(ResourceSpec(), qos=QosClass.LSR, band=PROD, cpu_mcpu=0) is None


def test_a_node_with_a_policy_binds_everybody_and_demands_it() -> None:
    node = NodeBindPolicy.SPREAD_BY_PCPUS
    found = bind(ResourceSpec(), qos=None, band=None, cpu_mcpu=1000, node=node)
    assert found is not None
    assert (found.policy, found.is_required) == (BindPolicy.SPREAD_BY_PCPUS, True)
    with pytest.raises(InvalidInput, match="SpreadByPCPUs, which the node demands"):
        bind(ResourceSpec(required=AskedPolicy.FULL_PCPUS), qos=QosClass.LSR, band=PROD, cpu_mcpu=1000, node=node)
    with pytest.raises(InvalidInput, match="whole CPUs"):
        bind(ResourceSpec(), qos=QosClass.LS, band=PROD, cpu_mcpu=500, node=node)
