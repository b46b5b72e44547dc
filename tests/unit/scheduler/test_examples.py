"""The example files as a newcomer tries them: each job is planned, and what a plain machine cannot hold is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from colo_common.events.effects import Reply, RequestReceived, Wake
from colo_common.events.requests import JobPlanned, PlanJob
from colo_common.model.job_file import job_from_mapping
from colo_common.model.reasons import Reason
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import Bench, an_allocatable

EXAMPLES = Path(__file__).parents[3] / "examples"
JOBS = sorted(path for path in EXAMPLES.glob("*.yaml") if path.stem not in ("policy", "reservation"))


def planned(path: Path) -> JobPlanned:
    bench = Bench()
    bench.say(a_node("n1", a_topology(cpus=16), is_online=True))
    bench.say(an_allocatable("n1", [(16_000, 64 * GIB)]))
    effects = bench.tell(
        RequestReceived(request="r", body=PlanJob(spec=job_from_mapping(yaml.safe_load(path.read_text()))))
    )
    while not (replies := [each for each in effects if isinstance(each, Reply)]):
        effects = bench.tell(Wake())
    (reply,) = replies
    assert isinstance(reply.body, JobPlanned)
    return reply.body


# What a machine without devices and labels holds of each task, and why not the rest: example -> task -> (placed, reason).
PLAIN: dict[str, dict[str, tuple[int, Reason | None]]] = {
    "attach": {"main": (0, Reason.LABELS_DIFFER)},
    "devices": {"train": (0, Reason.DEVICE_UNKNOWN), "linked": (0, Reason.DEVICE_UNKNOWN)},
    "job": {"main": (4, None)},
    "placed": {"solver": (0, Reason.LABELS_DIFFER), "front": (3, None)},
}


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_every_example_is_planned_to_the_last_replica(path: Path) -> None:
    plan = planned(path)
    reasons = {task.task: [(count.reason, count.nodes) for count in task.counts] for task in plan.tasks}
    expected = PLAIN[path.stem]
    assert {task.task: task.placed for task in plan.tasks} == {name: placed for name, (placed, _) in expected.items()}
    assert reasons == {name: [(reason, 1)] if reason else [] for name, (_, reason) in expected.items()}
    asked = {task.name: task.replicas for task in job_from_mapping(yaml.safe_load(path.read_text())).tasks}
    assert {task.task: task.replicas for task in plan.tasks} == asked
    assert plan.fits is (path.stem == "job")
