"""Which class, band and CPUs of its own a workload may have."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from colo_common.model.qos import PriorityBand, QosClass, parse_qos
from tests.parity.peers.effective_qos import (
    effective,
    effective_of_pod,
    labelled_band,
    labelled_qos,
)
from tests.parity.peers.pod import (
    PRIORITY_CLASS_LABEL,
    PRIORITY_LABEL,
    QOS_LABEL,
    Amounts,
    Container,
    KubernetesQos,
    Pod,
    kubernetes_qos,
)
from tests.parity.peers.pod_admission import Refusal, refusals
from tests.parity.tables.koord_qos_mapping import refusals_of_job


def container(
    cpu: int = 0, memory: int = 0, cpu_limit: int = 0, memory_limit: int = 0, batch_cpu: int = 0
) -> Container:
    return Container(
        requests=Amounts(cpu_mcpu=cpu, memory_bytes=memory, batch_cpu_mcpu=batch_cpu),
        limits=Amounts(cpu_mcpu=cpu_limit, memory_bytes=memory_limit),
    )


def pod(qos: str = "", priority: int | None = 9500, **cpu: int) -> Pod:
    return Pod(labels={QOS_LABEL: qos} if qos else {}, priority=priority, containers=(container(**cpu),))


def test_hls_is_lsr_with_no_batch_work_on_its_cpus_which_is_lse() -> None:
    assert parse_qos("HLS", "qos") is QosClass.LSE


def test_every_reason_is_given_and_in_a_fixed_order() -> None:
    before = Pod(labels={QOS_LABEL: "BE", PRIORITY_LABEL: "1"}, priority=5500)
    after = Pod(
        labels={QOS_LABEL: "LSR", PRIORITY_LABEL: "2"}, priority=7500, containers=(container(cpu=1500, batch_cpu=1),)
    )
    assert refusals(after, before) == (
        Refusal.QOS_IMMUTABLE,
        Refusal.PRIORITY_CLASS_IMMUTABLE,
        Refusal.PRIORITY_LABEL_IMMUTABLE,
        Refusal.BATCH_RESOURCES_NEED_BE,
        Refusal.FORBIDDEN_COMBINATION,
        Refusal.CPU_REQUEST_NOT_INTEGER,
    )
    assert Refusal.PRIORITY_LABEL_IMMUTABLE not in refusals(after, before, keeps_priority_label=False)


def test_a_priority_may_move_inside_its_band() -> None:
    assert refusals(pod("LS", 9100), pod("LS", 9900)) == ()


def test_an_unknown_class_is_no_class_and_cannot_have_batch_resources() -> None:
    assert refusals(pod("VIP", batch_cpu=1)) == (Refusal.BATCH_RESOURCES_NEED_BE,)


def test_whole_cpus_count_over_all_containers() -> None:
    both = Pod(labels={QOS_LABEL: "LSR"}, priority=9500, containers=(container(cpu=500), container(cpu=1500)))
    assert refusals(both) == ()


@given(
    st.sampled_from([*QosClass.__members__, "", "HLS"]),
    st.one_of(st.none(), st.integers(-1, 12_000)),
    st.integers(0, 4000),
    st.integers(0, 2),
)
def test_what_is_admitted_keeps_its_promises(qos: str, priority: int | None, cpu: int, batch: int) -> None:
    each = pod(qos, priority, cpu=cpu, batch_cpu=batch)
    if refusals(each):
        return
    found = effective_of_pod(each)
    if batch:
        assert found.labelled_qos is QosClass.BE
    if found.labelled_qos is QosClass.BE:
        assert found.band in (PriorityBand.MID, PriorityBand.BATCH, PriorityBand.FREE)
    if found.labelled_qos in (QosClass.LSE, QosClass.LSR):
        assert cpu >= 1000
        assert cpu % 1000 == 0
    if found.labelled_qos is QosClass.LSR:
        assert found.band is PriorityBand.PROD


@pytest.mark.parametrize(
    ("containers", "wanted"),
    [
        ((), KubernetesQos.BEST_EFFORT),
        ((container(), container()), KubernetesQos.BEST_EFFORT),
        ((container(batch_cpu=1),), KubernetesQos.BEST_EFFORT),
        ((container(cpu=1),), KubernetesQos.BURSTABLE),
        ((container(cpu_limit=1),), KubernetesQos.BURSTABLE),
        ((container(1, 1, 1, 1),), KubernetesQos.GUARANTEED),
        ((container(1, 1, 2, 1),), KubernetesQos.BURSTABLE),
        ((container(1, 1, 1, 1), container()), KubernetesQos.BURSTABLE),
        ((container(cpu_limit=1, memory_limit=1),), KubernetesQos.BURSTABLE),
        ((container(1, 1, 2, 1), container(2, 1, 1, 1)), KubernetesQos.GUARANTEED),
    ],
)
def test_kubernetes_class_follows_from_requests_and_limits(
    containers: tuple[Container, ...], wanted: KubernetesQos
) -> None:
    assert kubernetes_qos(Pod(containers=containers)) is wanted


def test_the_recorded_kubernetes_class_wins() -> None:
    assert kubernetes_qos(Pod(status_qos=KubernetesQos.GUARANTEED)) is KubernetesQos.GUARANTEED


def test_no_pod_has_no_class_no_band_and_priority_0() -> None:
    found = effective_of_pod(None)
    assert (found.qos, found.band, found.priority) == (None, None, 0)


def test_an_unknown_priority_class_hides_the_number() -> None:
    assert labelled_band({PRIORITY_CLASS_LABEL: "gold"}, 9500) is None
    assert labelled_band({PRIORITY_CLASS_LABEL: "prod"}, 9500) is None
    assert labelled_band({PRIORITY_CLASS_LABEL: "koord-free"}, 9500) is PriorityBand.FREE


@given(st.text(max_size=6), st.one_of(st.none(), st.integers()), st.sampled_from(list(KubernetesQos)))
def test_with_a_kubernetes_class_nothing_stays_open(name: str, priority: int | None, kubernetes: KubernetesQos) -> None:
    found = effective({QOS_LABEL: name}, priority, kubernetes)
    assert found.qos is not None
    assert found.band is not None
    assert found.priority != 0
    assert found.labelled_qos == labelled_qos({QOS_LABEL: name})
    assert found.qos == (found.labelled_qos or found.qos)


@given(
    st.sampled_from(["LSR", "LS", "BE", "LSE", "SYSTEM", ""]),
    st.none() | st.integers(0, 10_000),
    st.integers(0, 3_000) | st.sampled_from([1_000, 2_000]),
    st.integers(0, 1),
)
def test_colo_has_the_same_against_a_job_as_koordinator_against_its_pod(
    qos: str, priority: int | None, cpu_mcpu: int, batch: int
) -> None:
    request = Amounts(cpu_mcpu=cpu_mcpu, batch_cpu_mcpu=batch)
    asked = Pod(labels={QOS_LABEL: qos}, priority=priority, containers=(Container(requests=request),))
    reasons = refusals_of_job(asked)
    event(f"a job can be it: {reasons is not None}")
    assert reasons is None or reasons == refusals(asked)
