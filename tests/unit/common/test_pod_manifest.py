"""Kubernetes manifests as jobs: what is understood, what is named as left out, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from colo_common.model.constraints import CpuBind
from colo_common.model.invalid import InvalidInput
from colo_common.model.job_file import read_job
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.quantity import parse_bytes
from colo_common.model.workload import ResourceLimits
from tests.support.four_pods import four_pods

POD = "spec.template.spec"
SPEC = "spec.template.metadata.annotations.scheduling.koordinator.sh/resource-spec"
CPU = f"{POD}.containers[0].resources.requests.cpu"


@pytest.mark.parametrize(
    ("qos", "band", "bind", "vain"),
    [
        ("LSE", "prod", CpuBind.SPREAD_BY_PCPUS, 0),
        ("LSR", "prod", CpuBind.SPREAD_BY_PCPUS, 0),
        ("LS", "prod", CpuBind.DEFAULT, 1),
        ("BE", "batch", CpuBind.DEFAULT, 1),
    ],
)
def test_the_four_classes(qos: str, band: str, bind: CpuBind, vain: int) -> None:
    read = read_job(four_pods()[qos])
    (task,) = read.spec.tasks
    assert (read.spec.name, read.spec.qos, read.spec.band) == (
        f"nginx-{qos.lower()}", QosClass(qos), PriorityBand(band),
    )  # fmt: skip
    assert (task.replicas, task.request.cpu_mcpu, task.request.memory_bytes) == (1, 2_000, parse_bytes("200Mi", "m"))
    assert task.constraints.cpu_bind is bind
    assert read.spec.labels == {"app": f"nginx-{qos.lower()}"}
    why = f"is ignored: it is a preference, and work of class {qos} binds no CPUs"
    assert list(read.notes).count(f"{SPEC}.preferredCPUBindPolicy: {why}") == vain
    left_out = [note.split(":")[0] for note in read.notes]
    assert f"{POD}.schedulerName" in left_out
    assert f"{POD}.containers[0].image" in left_out


def a_pod(**container: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", **container}]}}


def requests(limits: dict[str, Any] | None = None, **amounts: Any) -> dict[str, Any]:
    return {"requests": amounts, **({"limits": limits} if limits else {})}


def test_the_limit_of_a_pod_is_the_sum_and_none_where_a_container_has_none() -> None:
    both = a_pod(resources=requests({"cpu": "4", "memory": "8Gi"}, cpu="1", memory="2Gi"))
    assert read_job(both).spec.tasks[0].run.limits == ResourceLimits(cpu_mcpu=4_000, memory_bytes=8 << 30)
    both["spec"]["containers"].append({"name": "b", "resources": requests({"memory": "1Gi"}, cpu="1", memory="1Gi")})
    (task,) = read_job(both).spec.tasks
    assert (task.request.cpu_mcpu, task.request.memory_bytes) == (2_000, 3 << 30)
    assert task.run.limits == ResourceLimits(memory_bytes=9 << 30)


def test_the_limit_of_ephemeral_storage_is_one_of_disk_and_its_request_promises_nothing() -> None:
    amount = {"ephemeral-storage": "2Gi"}
    read = read_job(a_pod(command=["render"], resources=requests(amount, cpu="1", memory="1Gi", **amount)))
    assert read.spec.tasks[0].run.limits == ResourceLimits(disk_bytes=2 << 30)
    assert [note for note in read.notes if "ephemeral-storage" in note] == [
        "spec.containers[0].resources.requests.ephemeral-storage: is not promised: only its limit counts"
    ]


def test_a_pod_with_all_that_is_understood() -> None:
    pod = a_pod(
        command=["render"],
        args=["--all"],
        env=[{"name": "LEVEL", "value": "3"}, {"name": "SECRET", "valueFrom": {"secretKeyRef": {}}}],
        resources=requests({"cpu": "2", "memory": "2Gi"}, cpu="1500m", memory="1Gi", **{"nvidia.com/gpu": 1}),
        livenessProbe={"httpGet": {"port": 80}},
    )
    pod["metadata"]["labels"] = {"koordinator.sh/qosClass": "LS", "team": "films"}
    pod["spec"] |= {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 30,
        "restartPolicy": "Never",
        "hostNetwork": True,
    }
    read = read_job(pod)
    (task,) = read.spec.tasks
    assert (task.run.command, task.run.env, task.run.grace_ms) == (("render", "--all"), {"LEVEL": "3"}, 30_000)
    assert (task.request.cpu_mcpu, task.request.memory_bytes, task.max_retry) == (1_500, 1 << 30, 0)
    assert task.run.limits == ResourceLimits(cpu_mcpu=2_000, memory_bytes=2 << 30)
    assert task.constraints.node_labels == (("disk", "ssd"),)
    assert [toleration.key for toleration in task.constraints.tolerations] == ["spot"]
    assert [(device.kind, device.count) for device in task.constraints.devices] == [("gpu", 1)]
    assert read.spec.labels == {"team": "films"}
    assert sorted(note.split(":")[0] for note in read.notes) == [
        "spec.containers[0].env[1].valueFrom",
        "spec.containers[0].livenessProbe",
        "spec.hostNetwork",
    ]


@pytest.mark.parametrize("name", [None, "koord-mid", "system-node-critical"])
def test_mid_resources_are_requested_by_work_of_the_band_mid(name: str | None) -> None:
    pod = a_pod(resources=requests(**{"kubernetes.io/mid-cpu": "1500", "kubernetes.io/mid-memory": "1Gi"}))
    pod["spec"] |= {} if name is None else {"priorityClassName": name}
    spec = read_job(pod).spec
    assert (spec.band, spec.qos, spec.tasks[0].request.cpu_mcpu) == (PriorityBand.MID, QosClass.BE, 1500)
    pod["spec"]["priorityClassName"] = "koord-batch"
    with pytest.raises(InvalidInput) as refused:
        read_job(pod)
    assert (refused.value.field, refused.value.rule) == (
        "spec.priorityClassName",
        "must be koord-mid: the pod requests mid resources",
    )


def changed(qos: str, change: Any) -> dict[str, Any]:
    pod = four_pods()[qos]
    change(pod["spec"]["template"]["spec"]["containers"][0]["resources"], pod)
    return pod


@pytest.mark.parametrize(
    ("manifest", "field", "rule"),
    [
        ({"kind": "DaemonSet", "metadata": {"name": "a"}}, "kind", "must be one of Deployment Pod"),
        ({"apiVersion": "v1"}, "kind", "must be one of Deployment Pod"),
        ({"kind": "Pod", "metadata": {"name": "a"}}, "spec.containers", "at least one container"),
        (a_pod(), "spec.containers[0].resources.requests", "must request CPU"),
        (a_pod(resources=requests(cpu="many")), "spec.containers[0].resources.requests.cpu", "CPU quantity"),
        (
            changed("LSE", lambda amounts, _: amounts["limits"].update(cpu="4")),
            CPU.replace("requests", "limits"),
            "equal",
        ),
        (
            changed("LSR", lambda amounts, _: (amounts["requests"].update(cpu="1500m"), amounts.pop("limits"))),
            CPU,
            "whole",
        ),
        (changed("BE", lambda _, pod: pod["metadata"].update(name="Nginx")), "metadata.name", "DNS-1123"),
        (changed("LS", lambda _, pod: pod["spec"].update(replicas=0)), "spec.replicas", "from 1"),
    ],
)
def test_what_breaks_a_rule_is_named_by_its_path_in_the_manifest(
    manifest: dict[str, Any], field: str, rule: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_job(manifest)
    assert refused.value.field == field
    assert rule in refused.value.rule
