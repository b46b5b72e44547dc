"""What the command reads from a file, and what it refuses before anybody is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from colo_cli.failure import Failure
from colo_cli.job_files import read_file, read_job_file, read_job_files
from colo_common.model.constraints import CpuBind, NumaPolicy
from colo_common.model.job_file import job_from_mapping
from colo_common.model.policy_file import policy_of
from colo_common.model.reservation_file import reservation_from_mapping

EXAMPLES = Path(__file__).parents[3] / "examples"


def read_reservation(file: str) -> object:
    return read_file(file, "reservation", reservation_from_mapping)


@pytest.mark.parametrize("read", [read_job_file, read_reservation])
@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("place: " + "[" * 5_000, "must not be nested deeper than 32 levels"),
        ("place: " + "[" * 5_000 + "]" * 5_000, "must not be nested deeper than 32 levels"),
        ("name: a\ncpu: 1\nname: b\n", "name: is written twice in one mapping"),
        ("a: &x [*x]", "must be YAML"),
        ("a: [", "must be YAML"),
        ("- 1", "must be a mapping of the "),
    ],
)
def test_what_cannot_be_read_ends_with_2(read: Callable[[str], object], text: str, rule: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(Failure) as failed:
        read(str(file))
    assert failed.value.status == 2
    assert rule in str(failed.value)
    assert "\n" not in str(failed.value)


def test_a_file_may_repeat_itself_by_anchors(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "name: a\ntasks:\n"
        "  - {name: x, cpu: 1, memory: 1Gi, work: 1 cpu-s, place: &where {node_labels: {disk: ssd}}}\n"
        "  - {name: y, cpu: 1, memory: 1Gi, work: 1 cpu-s, place: *where}\n"
    )
    tasks = read_job_file(str(file))["tasks"]
    assert tasks[0]["place"] == tasks[1]["place"] == {"node_labels": {"disk": "ssd"}}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_accepted(path: Path) -> None:
    if path.stem == "reservation":
        assert read_reservation(str(path))
    elif path.stem == "policy":
        assert policy_of(path.read_bytes())[0] == "colo"
    else:
        assert job_from_mapping(read_job_file(str(path))).tasks


def test_the_devices_example_has_every_request() -> None:
    spec = job_from_mapping(yaml.safe_load((EXAMPLES / "devices.yaml").read_text()))
    devices = [device for task in spec.tasks for device in task.constraints.devices]
    assert any(task.constraints.joint_devices for task in spec.tasks)
    for name, plain in (("scope", "node"), ("exclusive", "none"), ("partition", None)):
        assert any(getattr(device, name) != plain for device in devices), name


def test_the_placed_example_has_every_kind_of_place() -> None:
    spec = job_from_mapping(yaml.safe_load((EXAMPLES / "placed.yaml").read_text()))
    places = [task.constraints for task in spec.tasks]
    assert {place.numa_policy for place in places} >= {NumaPolicy.SINGLE_NUMA_NODE}
    assert {place.cpu_bind for place in places} >= {CpuBind.FULL_PCPUS}
    for name in ("devices", "huge_pages", "node_labels", "tolerations", "spread"):
        assert any(getattr(place, name) for place in places), name


JOB = "{name: %s, cpu: 1, memory: 1Gi, work: 1 cpu-s}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (JOB % "a", [("", "a")]),
        (f"---\n{JOB % 'a'}\n---\n{JOB % 'b'}\n", [("document 1", "a"), ("document 2", "b")]),
        (f"---\n# nothing\n---\n{JOB % 'a'}\n---\n", [("", "a")]),
        (f"- {JOB % 'a'}\n- {JOB % 'b'}\n", [("item 1", "a"), ("item 2", "b")]),
        (f"[{JOB % 'a'}]\n---\n{JOB % 'b'}\n", [("document 1, item 1", "a"), ("document 2", "b")]),
        (f"{{kind: List, apiVersion: v1, items: [{JOB % 'a'}, {JOB % 'b'}]}}", [("item 1", "a"), ("item 2", "b")]),
    ],
)
def test_a_file_may_hold_several_jobs(text: str, found: list[tuple[str, str]], tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(text)
    assert [(job.where, job.name) for job in read_job_files(str(file))] == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{JOB % 'a'}\n---\n{{name: b, cpu: -1, memory: 1Gi, work: 1 cpu-s}}\n", "document 2: cpu: must "),
        (f"- {JOB % 'a'}\n- {{name: b, cpu: 1, memory: 1Gi, work: 1 cpu-s, colour: red}}\n", "item 2: colour: "),
        (f"{JOB % 'a'}\n---\n7\n", "document 2: must be a mapping of the job's fields"),
        (f"{JOB % 'a'}\n---\n{{name: b\n", "must be YAML"),
        ("", "must hold at least one job"),
        ("[]", "must hold at least one job"),
        (f"{JOB % 'a'}\n---\n" * 101, "must hold at most 100 jobs, and has 101"),
    ],
)
def test_the_wrong_job_of_several_is_named_by_its_place_and_field(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(text)
    with pytest.raises(Failure) as failed:
        read_job_files(str(file))
    assert failed.value.status == 2
    assert str(failed.value).startswith(f"{file}: ")
    assert says in str(failed.value)


def test_where_one_job_is_asked_for_several_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(f"{JOB % 'a'}\n---\n{JOB % 'b'}\n")
    with pytest.raises(Failure, match="must hold one job here, and has 2"):
        read_job_file(str(file))
