"""What the chart gives the executor of a node: its policy for groups of others, devices, and a place for outputs.

What needs helm proves nothing without it, as in test_chart; the examples of the page and the schema are looked at in any case.
"""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from colo_common.model.colocation_rules import ColocationRule
from colo_common.model.invalid import InvalidInput
from colo_common.runtime.settings import load
from colo_evictor.settings import EvictorSettings
from colo_executor.settings import ExecutorSettings
from colo_executor.unmanaged import UnmanagedGroup, check_unmanaged
from colo_scheduler.settings import SchedulerSettings
from tests.repo.test_chart import AGENT_CAPABILITIES, CHART, K8S, environment, helm

NAME = "COLO_EXECUTOR_PROCESS_UNMANAGED"


def example() -> dict[str, Any]:
    """The values of the page that protect online work which colo did not place."""
    (block,) = re.findall(r"```yaml\n(executor:\n  unmanaged:\n.*?)```", (K8S / "README.md").read_text(), re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(block)
    return found


def containers(tmp_path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """What helm renders of these values: the pod of each DaemonSet and Deployment by its name."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    done = helm(
        "template", "colo", str(CHART), "--namespace", "colo", "--kube-version", "1.31.0", "--values", str(file)
    )
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.safe_load_all(done.stdout) if each and each["kind"] in ("DaemonSet", "Deployment")]
    return {each["metadata"]["name"].removeprefix("colo-"): each["spec"]["template"]["spec"] for each in found}


def test_the_policy_of_the_page_loads_from_the_environment_as_from_a_file(tmp_path: Path):
    groups = example()["executor"]["unmanaged"]
    by_text = load(ExecutorSettings, "executor", environ={NAME: json.dumps(groups)})
    file = tmp_path / "colo.yaml"
    file.write_text(yaml.safe_dump({"executor": {"process_unmanaged": groups}}))
    by_file = load(ExecutorSettings, "executor", environ={"COLO_CONFIG": str(file)})
    assert by_text == by_file
    assert by_text.process.unmanaged == tuple(msgspec.convert(groups, list[UnmanagedGroup]))


def test_the_least_numbers_of_the_schema_are_those_of_the_executor():
    schema = json.loads((CHART / "values.schema.json").read_text())
    entry = schema["properties"]["executor"]["properties"]["unmanaged"]["items"]
    assert entry["properties"].keys() == set(UnmanagedGroup.__struct_fields__)
    assert all(member["description"] for member in entry["properties"].values())
    bounds = [
        (name, number, step)
        for name, member in entry["properties"].items()
        for bound, step in (("minimum", -1), ("maximum", 1))
        if (number := member.get(bound)) is not None
    ]
    assert {name for name, _, _ in bounds} == {
        "weight_least", "cpu_most_mcpu", "memory_most_bytes", "memory_low_bytes", "memory_min_bytes",
    }  # fmt: skip
    for name, number, step in bounds:
        check_unmanaged([UnmanagedGroup(group="a.slice", **{name: number})], "colo", "unmanaged")
        with pytest.raises(InvalidInput, match=rf"unmanaged\[0\].{name}"):
            check_unmanaged([UnmanagedGroup(group="a.slice", **{name: number + step})], "colo", "unmanaged")


def test_every_member_of_a_struct_is_described_once():
    program = runpy.run_path(str(K8S / "schema.py"))
    assert program["UNMANAGED"].keys() == program["UNMANAGED_RULES"].keys() == set(UnmanagedGroup.__struct_fields__)


def test_the_executor_gets_the_policy_that_the_values_have(tmp_path: Path):
    every = {
        "group": "system.slice/*.service", "weight_least": 2048, "cpu_most_mcpu": 1500, "memory_most_bytes": 1 << 40,
        "cpus": "0-1,3", "clear_of_own_cpus": False, "memory_low_bytes": 1 << 30, "memory_min_bytes": 1 << 20,
    }  # fmt: skip
    values = example()
    groups = [*values["executor"]["unmanaged"], every]
    found = containers(tmp_path, {"executor": {"enabled": True, "unmanaged": groups}})
    settings = load(ExecutorSettings, "executor", environ=environment(found["executor"]))
    assert settings.process.unmanaged == tuple(msgspec.convert(groups, list[UnmanagedGroup]))
    assert NAME not in environment(found["collector"])
    plain = containers(tmp_path, {"executor": {"enabled": True}})["executor"]
    assert NAME not in environment(plain)


def test_rules_of_colocation_are_a_list_in_the_values_or_json(tmp_path: Path):
    rules = [{"is_colocated": False}, {"selector": {"labels": {"pool": "mixed"}}, "batch_replicas_most": 8}]
    settings = {"scheduler": {"policy_colocation": rules}, "evictor": {"policy_colocation": json.dumps(rules)}}
    found = containers(tmp_path, {"services": {name: {"settings": each} for name, each in settings.items()}})
    wanted = tuple(msgspec.convert(rules, list[ColocationRule]))
    for name, kind in (("scheduler", SchedulerSettings), ("evictor", EvictorSettings)):
        assert load(kind, name, environ=environment(found[name])).policy.colocation == wanted


def test_outputs_have_the_folder_of_the_node_that_the_values_name(tmp_path: Path):
    pod = containers(tmp_path, {"executor": {"enabled": True, "outputDir": "/srv/jobs"}})["executor"]
    settings = load(ExecutorSettings, "executor", environ=environment(pod))
    (volume,) = (each for each in pod["volumes"] if each["name"] == "outputs")
    (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "outputs")
    assert volume["hostPath"] == {"path": "/srv/jobs", "type": "Directory"}
    assert mount == {"name": "outputs", "mountPath": settings.process.output_dir}
    plain = containers(tmp_path, {"executor": {"enabled": True}})["executor"]
    assert load(ExecutorSettings, "executor", environ=environment(plain)).process.output_dir == ""
    assert "outputs" not in {each["name"] for each in plain["volumes"]}


def test_the_fence_is_one_capability_and_the_devices_one_folder(tmp_path: Path):
    for fence, devices in ((False, False), (True, False), (False, True), (True, True)):
        values = {"executor": {"enabled": True, "fenceDevices": fence, "nodeDevices": devices}}
        pod = containers(tmp_path, values)["executor"]
        (container,) = pod["containers"]
        added = container["securityContext"]["capabilities"]["add"]
        assert added == AGENT_CAPABILITIES + (["SYS_ADMIN"] if fence else [])
        places = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        assert ("/dev" in places) is devices
        # The kubelet writes there beside a message of its own, and the node's /dev is not the place.
        assert container.get("terminationMessagePath") == ("/tmp/termination-log" if devices else None)
        assert (
            [each["hostPath"]["path"] for each in pod["volumes"] if each["name"] == "devices"] == ["/dev"]
        ) is devices


@pytest.mark.parametrize("is_seen", [False, True])
def test_both_agents_see_resctrl_read_only_where_the_values_say_so(tmp_path: Path, is_seen: bool):
    pods = containers(tmp_path, {"executor": {"enabled": True}, "nodes": {"resctrl": is_seen}})
    for name in ("collector", "executor"):
        mounts = [each for each in pods[name]["containers"][0]["volumeMounts"] if each["name"] == "resctrl"]
        volumes = [each["hostPath"]["path"] for each in pods[name]["volumes"] if each["name"] == "resctrl"]
        assert volumes == (["/sys/fs/resctrl"] if is_seen else [])
        assert [(each["mountPath"], each["readOnly"]) for each in mounts] == [(path, True) for path in volumes]


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("executor.unmanaged=kubepods.slice", "/executor/unmanaged': got string, want array"),
        ("executor.unmanaged[0].weight_least=1024", "missing property 'group'"),
        ("executor.unmanaged[0].group=user.slice", "/executor/unmanaged/0': minProperties: got 1, want 2"),
        ("executor.unmanaged[0].group=a,executor.unmanaged[0].weigth_least=1024", "'weigth_least' not allowed"),
        ("executor.unmanaged[0].group=a,executor.unmanaged[0].weight_least=2", "minimum: got 2, want 3"),
        ("executor.unmanaged[0].group=/a,executor.unmanaged[0].weight_least=9", "/executor/unmanaged/0/group"),
        ("executor.unmanaged[0].group=a,executor.unmanaged[0].cpus=0", "/executor/unmanaged/0/cpus"),
        ("executor.settings.process_unmanaged=x", "executor.settings.process_unmanaged: say it by executor.unmanaged"),
        ("executor.settings.process_unmanaged[0].group=a", "process_unmanaged: say it by executor.unmanaged"),
        ("executor.settings.process_output_dir=/x", "process_output_dir: say it by executor.outputDir"),
        ("executor.settings.process_state_dir=/x", "process_state_dir: say it by executor.stateDir"),
        ("executor.outputDir=jobs", "/executor/outputDir"),
        ("executor.fenceDevices=perhaps", "/executor/fenceDevices"),
        ("services.scheduler.settings.policy_colocation[0].colocated=no", "'colocated' not allowed"),
    ],
)
def test_wrong_values_of_the_executor_are_refused_and_named(setting: str, says: str):
    done = helm("template", "colo", str(CHART), "--kube-version", "1.31.0", "--set", f"executor.enabled=true,{setting}")
    assert done.returncode != 0
    assert says in done.stderr
