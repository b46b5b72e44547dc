"""Who runs on which CPUs when online work is placed: rules without files, a row for each."""

import pytest
from msgspec.structs import replace

from colo_collector.discover import online_workloads
from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import replica_token
from colo_common.model.qos import LEGAL_BANDS, PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_executor.desired import DesiredPolicy, MachineFacts
from colo_executor.kept_cpus import KeptCpus
from colo_executor.knob_table import Knob
from colo_executor.online import (
    CpuHold,
    CpusRefused,
    given_cpus,
    is_online,
    not_admitted,
    online_group,
    online_knobs,
    online_sets,
    online_top_knobs,
    pools_of,
    protected_bytes,
)
from tests.support.builders import a_placement

LSE, LSR, LS, BE, SYSTEM = QosClass.LSE, QosClass.LSR, QosClass.LS, QosClass.BE, QosClass.SYSTEM
NONE = KeptCpus()


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


MACHINE = MachineFacts(
    cpus=cpus("0-15"),
    mems=cpus("0-1"),
    zones={0: cpus("0-7"), 1: cpus("8-15")},
    has=frozenset(Knob) - {Knob.CPU_IDLE, Knob.CPU_BVT},
)


def held(qos: QosClass, text: str, owner: str = "x/y/0") -> CpuHold:
    return CpuHold(owner=owner, qos=qos, cpus=cpus(text), cpu_mcpu=1000)


def online(qos: QosClass, text: str = "", mcpu: int = 2000):
    return replace(a_placement(mcpu=mcpu), qos=qos, band=PriorityBand.PROD, cpus=text)


def test_sixteen_cpus_are_shared_as_the_classes_document_it() -> None:
    """LSE 0-1, LSR 2-3: LS has 4-15 and BE 2-15."""
    pools = pools_of(MACHINE.cpus, (held(LSE, "0-1"), held(LSR, "2-3"), held(LS, "")), NONE)
    assert (pools.ls.format(), pools.be.format()) == ("4-15", "2-15")


def test_withheld_cpus_are_in_no_pool() -> None:
    pools = pools_of(MACHINE.cpus, (held(LSE, "2-3"),), KeptCpus(withheld=cpus("0-1,15")))
    assert (pools.ls.format(), pools.be.format()) == ("4-14", "4-14")


@pytest.mark.parametrize(
    ("qos", "text", "holds", "withheld", "refusal"),
    [
        (LSE, "0-1", (), "", ""),
        (LSR, "0-14", (), "", ""),
        (LSR, "0-15", (), "", ""),
        (LS, "", (held(LSE, "0-13"),), "", ""),
        (LS, "4-5", (), "", ""),
        (LSE, "", (), "", "LSE work needs CPUs of its own, and was given none"),
        (LSR, "3-1", (), "", "cpus: a range must not end below its start"),
        (LSE, "15-16", (), "", "16 are not online on this node"),
        (LSE, "0-1", (), "1-2", "1 are withheld by the node's rules"),
        (LSE, "0-1", (held(LSR, "1-2"),), "", "1 are held by x/y/0"),
        (LSR, "0-1", (held(LSE, "0-1"),), "", "0-1 are held by x/y/0"),
        (LSE, "0-15", (), "", "0-15 would leave no CPU to the rest of the node"),
        (LSE, "8-15", (held(LSE, "0-7"),), "", "8-15 would leave no CPU to the rest of the node"),
        (LSR, "0-15", (held(LS, ""),), "", "no shared CPU is left for x/y/0"),
        (LSE, "4-5", (held(LS, "4-5"),), "", "no shared CPU is left for x/y/0"),
        (LS, "", (held(LSR, "0-15"),), "", "no shared CPU is left for job/main/0"),
        (LS, "4-5", (held(LSR, "4-5"),), "", "no shared CPU is left for job/main/0"),
    ],
)
def test_online_work_gets_its_cpus_or_a_refusal(qos, text, holds, withheld, refusal) -> None:
    def give() -> CpuHold:
        return given_cpus(online(qos, text), "job/main/0", MACHINE, holds, KeptCpus(withheld=cpus(withheld)))

    if not refusal:
        assert give().cpus == cpus(text)
        return
    with pytest.raises(CpusRefused, match=refusal) as refused:
        give()
    assert refused.value.reason is Reason.CPUS_SHORT


def test_own_cpus_come_with_the_memory_of_their_zones() -> None:
    pools = pools_of(MACHINE.cpus, (), NONE)
    for text, mems in (("0-1", "0"), ("8", "1"), ("7-8", "0-1")):
        own, near = online_sets(held(LSE, text), MACHINE, pools)
        assert (own.format(), near.format()) == (text, mems)
    assert online_sets(held(LS, ""), MACHINE, pools)[1].format() == "0-1"
    without_memory = replace(MACHINE, mems=cpus("0"))
    assert online_sets(held(LSE, "8"), without_memory, pools)[1].format() == "0", "CPUs of a zone without memory"


def test_an_online_replica_has_weight_and_memory_by_its_request_and_no_ceiling() -> None:
    placement = online(LSR, "2-3")
    hold = held(LSR, "2-3")
    writes = online_knobs(DesiredPolicy(), MACHINE, placement, hold, pools_of(MACHINE.cpus, (hold,), NONE), "lsr.x")
    knobs = {write.knob: write.value for write in writes}
    assert knobs[Knob.CPUSET_CPUS] == "2-3"
    assert knobs[Knob.CPU_WEIGHT] == 2048
    assert knobs[Knob.MEMORY_LIMIT] == placement.memory_bytes
    assert not knobs.keys() & {Knob.CPU_QUOTA, Knob.CPU_IDLE, Knob.CPU_PERIOD}
    top = {write.knob: write.value for write in online_top_knobs(DesiredPolicy(), MACHINE, (hold, held(LS, "")))}
    assert top == {
        Knob.CPUSET_CPUS: "0-15",
        Knob.CPUSET_MEMS: "0-1",
        Knob.CPU_WEIGHT: 2048,
        Knob.MEMORY_MIN: 0,
        Knob.MEMORY_LOW: 0,
    }


@pytest.mark.parametrize(
    ("qos", "low_pct", "min_pct", "least", "low"),
    [
        (LSE, 100, 0, 0, 1001),
        (LSR, 50, 10, 100, 500),
        (LSR, 5, 10, 100, 100),
        (LSE, 0, 10, 100, 0),
        (LS, 33, 10, 0, 330),
    ],
    ids=["all", "rounded down", "low is at least min", "unless nothing is low", "LS has no min"],
)
def test_memory_is_protected_by_request_class_and_policy(qos, low_pct, min_pct, least, low) -> None:
    policy = DesiredPolicy(memory_low_pct=low_pct, memory_min_pct=min_pct)
    holds = [replace(held(qos, "2"), memory_bytes=1001), replace(held(LS, ""), memory_bytes=100)]
    assert protected_bytes(policy, holds[0]) == (least, low)
    top = {write.knob: write.value for write in online_top_knobs(policy, MACHINE, holds)}
    other = protected_bytes(policy, holds[1])
    assert (top[Knob.MEMORY_MIN], top[Knob.MEMORY_LOW]) == (least + other[0], low + other[1])


def test_only_legal_pairs_of_class_and_band_are_admitted_and_prod_alone_is_online() -> None:
    for qos in QosClass:
        for band in PriorityBand:
            placement = replace(a_placement(), qos=qos, band=band)
            is_legal = qos is not SYSTEM and band in LEGAL_BANDS[qos]
            assert bool(not_admitted(placement)) is not is_legal, (qos, band)
            if is_legal:
                assert is_online(placement) is (band is PriorityBand.PROD)


@pytest.mark.parametrize("qos", [LSE, LSR, LS])
def test_the_collector_reads_class_and_attempt_from_the_name_that_the_executor_gives(qos: QosClass) -> None:
    name = online_group(qos, replica_token("lse/ls/3", 2))
    (workload,) = online_workloads([name], "colo")
    assert (workload.qos, workload.band) == (qos, PriorityBand.PROD)
    assert (workload.replica, workload.attempt, workload.path) == ("lse/ls/3", 2, f"/colo-online/{name}")
