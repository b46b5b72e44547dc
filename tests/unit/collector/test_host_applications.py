"""Processes outside of pods, as Koordinator's host-application-config lists them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from colo_collector.discover import parse_online_groups
from colo_collector.host_applications import host_applications
from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import PriorityBand, QosClass

DOCUMENT: dict[str, Any] = {
    "applications": [
        {
            "name": "nginx",
            "qos": "LS",
            "cgroupPath": {"base": "CgroupRoot", "relativePath": "/web/nginx"},
            "strategy": {},
        },
        {"name": "yarn", "qos": "BE", "priority": "koord-batch"},
        {"name": "mysql", "priority": "koord-prod"},
        {
            "name": "cache",
            "qos": "LS",
            "priority": "koord-mid",
            "cgroupPath": {"base": "Kubepods", "parentDir": "host"},
        },
        {
            "name": "scan",
            "qos": "BE",
            "priority": "koord-free",
            "cgroupPath": {"base": "KubepodsBesteffort", "parentDir": "host.slice", "relativePath": "scan.service"},
        },
        {
            "name": "agent",
            "qos": "SYSTEM",
            "cgroupPath": {"parentDir": "system.slice", "relativePath": "agent.service"},
        },
    ],
    "nodeConfigs": [
        {
            "name": "edge",
            "nodeSelector": {"matchLabels": {"pool": "edge"}},
            "applications": [{"name": "nginx", "qos": "LSR"}],
        },
        {"name": "again", "nodeSelector": {"matchLabels": {"pool": "edge"}}},
    ],
}


def read(document: Any, labels: dict[str, str] | None = None) -> list[tuple[str, str, str, str]]:
    found = host_applications(json.dumps(document), labels or {}, "colo", parse_online_groups(("db=/db",), "colo"))
    return [(one.name, one.path, one.qos.value, one.band.value) for one in found]


def test_class_priority_and_path_are_those_of_the_document() -> None:
    assert read(DOCUMENT) == [
        ("nginx", "/web/nginx", QosClass.LS, PriorityBand.PROD),
        ("yarn", "/host-best-effort/yarn", QosClass.BE, PriorityBand.BATCH),
        ("mysql", "/host-latency-sensitive/mysql", QosClass.LS, PriorityBand.PROD),
        ("cache", "/kubepods/host", QosClass.LS, PriorityBand.MID),
        (
            "scan",
            "/kubepods.slice/kubepods-besteffort.slice/host.slice/scan.service",
            QosClass.BE,
            PriorityBand.FREE,
        ),
        ("agent", "/system.slice/agent.service", QosClass.SYSTEM, PriorityBand.PROD),
    ]
    assert read({}) == []
    assert host_applications("", {}, "colo", ()) == ()


def test_the_first_configuration_of_the_node_s_labels_comes_in_place_of_the_others() -> None:
    edge = [("nginx", "/host-latency-sensitive/nginx", QosClass.LSR, PriorityBand.PROD)]
    assert read(DOCUMENT, {"pool": "edge"}) == edge
    assert len(read(DOCUMENT, {"pool": "core"})) == 6


@pytest.mark.parametrize(
    ("application", "field", "rule"),
    [
        ({"name": "a", "qos": "best"}, ".qos", "must be one of"),
        ({"name": "a", "qos": "BE", "priority": "koord-prod"}, ".priority", "may only have"),
        ({"name": "a", "priority": "high"}, ".priority", "must be one of prod mid batch free"),
        ({"name": "a b"}, "", "the name must be"),
        ({"name": "a", "cgroupPath": {"base": "CgroupRoot"}}, ".cgroupPath", "below the root"),
        ({"name": "a", "cgroupPath": {"relativePath": "x/../y"}}, ".cgroupPath", "below the root"),
        ({"name": "db"}, "", "a name may come once"),
        ({"name": "a", "cgroupPath": {"relativePath": "db/inner"}}, "", "neither within /db"),
        ({"name": "a", "cgroupPath": {"relativePath": "colo/batch"}}, "", "neither within /colo"),
    ],
)
def test_what_breaks_a_rule_is_named_by_its_place(application: dict[str, Any], field: str, rule: str) -> None:
    for document, where in (
        ({"applications": [application]}, "host_applications.applications[0]"),
        # What is meant for other nodes is checked, too.
        (
            {"nodeConfigs": [{"nodeSelector": {"matchLabels": {"a": "b"}}, "applications": [application]}]},
            "host_applications.nodeConfigs[0].applications[0]",
        ),
    ):
        with pytest.raises(InvalidInput) as caught:
            read(document)
        assert caught.value.field == where + field
        assert rule in caught.value.rule


@pytest.mark.parametrize("text", ["{", "[]", '{"applications":[{"qos":"LS"}]}', '{"apps":[]}', "x" * 65_537])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        host_applications(text, {}, "colo", ())
    assert caught.value.field == "host_applications"
