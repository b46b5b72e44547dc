"""QoS classes and priority bands: names of other systems, defaults and legal pairs."""

from __future__ import annotations

import pytest

from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import (
    LEGAL_BANDS,
    PriorityBand,
    QosClass,
    band_from_priority,
    check_pair,
    default_band,
    is_legal_pair,
    parse_band,
    parse_qos,
    qos_from_kubernetes,
)


@pytest.mark.parametrize(
    ("name", "qos"),
    [
        *((qos.value, qos) for qos in QosClass),
        ("HLS", QosClass.LSE),
        ("dedicated_cores", QosClass.LSR),
        ("shared_cores", QosClass.LS),
        ("reclaimed_cores", QosClass.BE),
        ("system_cores", QosClass.SYSTEM),
    ],
)
def test_every_name_means_one_class(name: str, qos: QosClass) -> None:
    assert parse_qos(name, "qos") is qos


@pytest.mark.parametrize("name", ["be", "", "GUARANTEED", None, 3])
def test_an_unknown_class_is_refused_and_the_known_ones_are_listed(name: object) -> None:
    with pytest.raises(InvalidInput, match="SYSTEM LSE LSR LS BE HLS"):
        parse_qos(name, "qos")


def test_kubernetes_qos_maps_to_the_class_of_an_unlabelled_pod() -> None:
    classes = [qos_from_kubernetes(name, "qosClass") for name in ("Guaranteed", "Burstable", "BestEffort")]
    assert classes == [QosClass.LSR, QosClass.LS, QosClass.BE]
    with pytest.raises(InvalidInput):
        qos_from_kubernetes("besteffort", "qosClass")


@pytest.mark.parametrize(
    ("priority", "band"),
    [
        (9999, PriorityBand.PROD),
        (9000, PriorityBand.PROD),
        (8999, None),
        (7999, PriorityBand.MID),
        (5000, PriorityBand.BATCH),
        (3999, PriorityBand.FREE),
        (6666, None),
        (0, None),
        (-1, None),
        (2_000_000_000, None),
    ],
)
def test_a_priority_number_belongs_to_at_most_one_band(priority: int, band: PriorityBand | None) -> None:
    assert band_from_priority(priority) is band


def test_bands_are_ordered_by_importance() -> None:
    assert sorted(PriorityBand, key=lambda band: -band.rank) == list(PriorityBand)
    assert parse_band("koord-mid", "band") is PriorityBand.MID
    with pytest.raises(InvalidInput, match="prod mid batch free"):
        parse_band("best", "band")


def test_the_default_band_is_always_legal() -> None:
    for qos in QosClass:
        assert is_legal_pair(qos, default_band(qos))


def test_best_effort_is_never_prod_and_reserved_cpus_are_always_prod() -> None:
    legal = {(qos.value, band.value) for qos, bands in LEGAL_BANDS.items() for band in bands}
    assert len(legal) == 10
    assert ("BE", "prod") not in legal
    assert {band for qos, band in legal if qos in ("LSE", "LSR", "SYSTEM")} == {"prod"}
    with pytest.raises(InvalidInput, match="band: QoS class BE may only have the priority bands mid batch free"):
        check_pair(QosClass.BE, PriorityBand.PROD, "band")
    with pytest.raises(InvalidInput, match="band: QoS class LSR may only have the priority band prod "):
        check_pair(QosClass.LSR, PriorityBand.BATCH, "band")
    check_pair(QosClass.LS, PriorityBand.FREE, "band")
