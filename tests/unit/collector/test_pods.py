"""Pods and containers of others on machine trees of every naming, and what a kubelet, honest or not, says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_collector.attached_groups import SetAttachedGroups
from colo_collector.discover import parse_online_groups
from colo_collector.files import FileReader
from colo_collector.kubelet_access import KubeletAccess, check_access
from colo_collector.kubelet_pods import read_pods
from colo_collector.machine import Machine
from colo_collector.pods import POD_ROOTS, Pod, check_pod_roots
from colo_collector.readings import SampleRead
from colo_common.events.enforcement import AttachedGroup
from colo_common.events.node import WorkloadUsage
from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import PriorityBand, QosClass
from tests.support.machine_tree import FakeWorkload, MachineSpec, MachineTree
from tests.support.manual_clock import ManualClock
from tests.unit.collector.test_machine import TimedReader

A, B, C, D = (f"{digit * 8}-1111-2222-3333-{digit * 12}" for digit in "abcd")
FILE_POD = "0123456789abcdef0123456789abcdef"
CONTAINER = "f" * 64


def systemd(uid: str, tree: str = "", prefix: str = "kubepods") -> str:
    """The path of a pod's slice as systemd nests it."""
    name = uid.replace("-", "_")
    parts = [f"{prefix}.slice"] if prefix == "kubepods" else ["kubelet.slice", f"{prefix}.slice"]
    if tree:
        parts.append(f"{prefix}-{tree}.slice")
    return "/" + "/".join([*parts, f"{prefix}{f'-{tree}' if tree else ''}-pod{name}.slice"])


LAYOUTS = {
    "cgroupfs": (f"/kubepods/pod{A}", f"/kubepods/burstable/pod{B}", f"/kubepods/besteffort/pod{C}"),
    "systemd": (systemd(A), systemd(B, "burstable"), systemd(C, "besteffort")),
    "kind": tuple(
        systemd(uid, tree, "kubelet-kubepods") for uid, tree in ((A, ""), (B, "burstable"), (C, "besteffort"))
    ),
    "custom": (f"/own/kubepods/pod{A}", f"/own/kubepods/burstable/pod{B}", f"/own/kubepods/besteffort/pod{C}"),
}


def sampled(
    root: Path,
    spec: MachineSpec,
    *,
    online: tuple[str, ...] = (),
    pods: dict[str, Pod] | None = None,
    attached: tuple[AttachedGroup, ...] = (),
    **options: Any,
) -> tuple[WorkloadUsage, ...]:
    tree = MachineTree(spec, root)
    tree.write()
    reader = TimedReader(str(root))
    options = {"pod_roots": POD_ROOTS, "containers": True, **options}
    machine = Machine(
        reader, subtree="colo", online=parse_online_groups(online, "colo"), labels={}, clock=ManualClock(0), user_hz=100, **options
    )  # fmt: skip
    machine.set_pods(pods or {})
    machine.set_attached_groups(SetAttachedGroups(groups=attached))
    machine.observe()
    tree.advance(
        1_000, zone_pct={0: 90}, workload_mcpu={one.name: 50 * (n + 1) for n, one in enumerate(spec.workloads)}
    )
    tree.write()
    reader.now_ns += 1_000_000_000
    event = machine.observe().event
    assert isinstance(event, SampleRead), event
    # Every layout adds up: what belongs to no workload is the system's.
    assert event.system_cpu_used_mcpu == event.cpu_used_mcpu - sum(one.cpu_used_mcpu for one in event.workloads)
    return event.workloads


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cgroup", ["v1", "v2", "hybrid"])
def test_pods_are_found_by_their_paths_in_all_three_trees(
    tmp_path: Path, layout: str, cgroup: Literal["v1", "v2", "hybrid"]
) -> None:
    spec = MachineSpec(
        cgroup=cgroup, workloads=tuple(FakeWorkload(f"w{n}", path) for n, path in enumerate(LAYOUTS[layout]))
    )
    roots = (*POD_ROOTS, "/own/kubepods")
    found = sampled(tmp_path, spec, pod_roots=roots, pods={B: Pod(name="db", namespace="shop")})
    assert [(one.workload, one.qos, one.band, one.cpu_used_mcpu, one.pod) for one in found] == [
        (f"pod-{A}", QosClass.LSR, PriorityBand.PROD, 50, ""),
        (f"pod-{B}", QosClass.LS, PriorityBand.PROD, 100, "shop/db"),
        (f"pod-{C}", QosClass.BE, PriorityBand.MID, 150, ""),
    ]


def test_what_a_replica_is_attached_to_counts_once_and_keeps_the_name_of_its_pod(tmp_path: Path) -> None:
    paths = (f"/kubepods/burstable/pod{B}", f"/docker/{CONTAINER}", f"/kubepods/pod{A}")
    spec = MachineSpec(workloads=tuple(FakeWorkload(f"w{n}", path) for n, path in enumerate(paths)))
    pod = AttachedGroup(replica="db/main/0", attempt=2, qos=QosClass.LSR, group=paths[0][1:])
    container = AttachedGroup(replica="web/main/0", attempt=1, qos=QosClass.LS, group=paths[1][1:])
    found = sampled(
        tmp_path,
        spec,
        online=(f"mine={paths[2]}:LSE",),
        pods={B: Pod(name="db", namespace="shop")},
        attached=(pod, container),
    )
    assert [(one.workload, one.replica, one.qos, one.cpu_used_mcpu, one.pod) for one in found] == [
        ("db/main/0#2", "db/main/0", QosClass.LSR, 50, "shop/db"),
        ("mine", "", QosClass.LSE, 150, ""),
        ("web/main/0#1", "web/main/0", QosClass.LS, 100, ""),
    ]


def test_pods_from_files_and_containers_of_engines_are_found_and_what_is_listed_counts_once(tmp_path: Path) -> None:
    paths = (
        f"/kubepods/burstable/pod{FILE_POD}",
        f"/docker/{CONTAINER}",
        f"/system.slice/docker-{'e' * 64}.scope",
        f"/machine.slice/libpod-{CONTAINER}.scope",
        "/system.slice/nginx.service",
        f"/kubepods/pod{A}",
        "/kubepods/burstable/podnonsense",
    )
    spec = MachineSpec(workloads=tuple(FakeWorkload(f"w{n}", path) for n, path in enumerate(paths)))
    found = sampled(tmp_path, spec, online=(f"mine=/kubepods/pod{A}:LSE", "nginx=/system.slice/nginx.service:SYSTEM"))
    assert [(one.workload, one.qos) for one in found] == [
        ("docker-eeeeeeeeeeee", QosClass.LS),
        ("docker-ffffffffffff", QosClass.LS),
        ("libpod-ffffffffffff", QosClass.LS),
        ("mine", QosClass.LSE),
        ("nginx", QosClass.SYSTEM),
        (f"pod-{FILE_POD}", QosClass.LS),
    ]
    assert sampled(tmp_path / "none", spec, pod_roots=(), containers=False) == ()


def test_a_pod_that_a_kubelet_tells_later_keeps_its_counters(tmp_path: Path) -> None:
    tree = MachineTree(MachineSpec(workloads=(FakeWorkload("w", f"/kubepods/pod{A}"),)), tmp_path)
    tree.write()
    reader = TimedReader(str(tmp_path))
    machine = Machine(
        reader, subtree="colo", online=(), labels={}, clock=ManualClock(0), user_hz=100, pod_roots=POD_ROOTS
    )
    machine.observe()
    machine.set_pods({A: Pod(name="db", namespace="shop", qos=QosClass.LSE)})
    tree.advance(1_000, workload_mcpu={"w": 500})
    tree.write()
    reader.now_ns += 1_000_000_000
    event = machine.observe().event
    assert isinstance(event, SampleRead)
    assert [(one.pod, one.qos, one.cpu_used_mcpu) for one in event.workloads] == [("shop/db", QosClass.LSE, 500)]


def a_pod(uid: str, **changes: Any) -> dict[str, Any]:
    return {"metadata": {"name": "db", "namespace": "shop", "uid": uid, **changes}, "status": {"qosClass": "Burstable"}}


@pytest.mark.parametrize(
    ("pod", "qos", "band"),
    [
        (a_pod(A), QosClass.LS, None),
        (a_pod(A, labels={"koordinator.sh/qosClass": "LSR"}), QosClass.LSR, None),
        (a_pod(A, labels={"colo.io/qos": "BE"}) | {"spec": {"priority": 5500}}, QosClass.BE, PriorityBand.MID),
        (a_pod(A, labels={"colo.io/qos": "LSE"}) | {"spec": {"priority": 3500}}, QosClass.LSE, None),
        (a_pod(A, labels={"colo.io/qos": "HUGE"}), QosClass.LS, None),
        (a_pod(A) | {"spec": {"priority": 9500}}, QosClass.LS, PriorityBand.PROD),
        (a_pod(A) | {"status": {}}, None, None),
    ],
)
def test_a_kubelet_tells_class_and_band(pod: dict[str, Any], qos: QosClass | None, band: PriorityBand | None) -> None:
    found, malformed = read_pods(json.dumps({"items": [pod, {"metadata": 5}, {"metadata": {"uid": ""}}]}).encode())
    assert (found[A].qos, found[A].band, malformed) == (qos, band, 2)


def test_a_pod_from_a_file_is_known_by_the_hash_of_its_file() -> None:
    pod = a_pod(A, annotations={"kubernetes.io/config.hash": FILE_POD})
    found, _ = read_pods(json.dumps({"items": [pod]}).encode())
    assert found[FILE_POD] == found[A]


KEYS = st.sampled_from(["items", "metadata", "uid", "name", "spec", "priority", "status"])
VALUES = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=20
)


@given(st.binary(max_size=300) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_whatever_a_kubelet_answers_is_pods_or_a_refusal(answer: bytes) -> None:
    try:
        found, malformed = read_pods(answer)
    except InvalidInput:
        return
    assert malformed >= 0
    assert all(pod.name for pod in found.values())


def test_the_rules_of_these_settings_name_their_field() -> None:
    for access, field in (
        (KubeletAccess(url="127.0.0.1:10250"), "kubelet_url"),
        (KubeletAccess(url="http://127.0.0.1:10255", token_file="/t"), "kubelet_token_file"),
        (KubeletAccess(url="https://127.0.0.1:10250", period_ms=5), "kubelet_period_ms"),
    ):
        with pytest.raises(InvalidInput) as caught:
            check_access(access)
        assert caught.value.field == field
    for roots in (("kubepods",), ("/a/../b",), ("/",), ("/x",) * 17):
        with pytest.raises(InvalidInput):
            check_pod_roots(roots)


def test_a_machine_without_pods_lists_nothing(tmp_path: Path) -> None:
    MachineTree(MachineSpec(), tmp_path).write()
    with FileReader(str(tmp_path)) as reader:
        machine = Machine(
            reader, subtree="colo", online=(), labels={}, clock=ManualClock(0), pod_roots=POD_ROOTS, containers=True
        )
        assert machine.observe().workloads == 0
