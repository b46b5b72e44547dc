"""The example files as a newcomer tries them: each job is planned, and what a plain machine cannot hold is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from colo_common.events.effects import Reply, RequestReceived, Wake
from colo_common.events.requests import JobPlanned, PlanJob
from colo_common.model.job_file import job_from_mapping
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import Bench, an_allocatable

EXAMPLES = Path(__file__).parents[3] / "examples"
JOBS = sorted(path for path in EXAMPLES.glob("*.yaml") if path.stem != "reservation")


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


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_every_example_is_planned_to_the_last_replica(path: Path) -> None:
    plan = planned(path)
    assert plan.replicas > 0
    assert plan.fits is (plan.placed == plan.replicas)
    assert all(task.placed == task.replicas or task.counts for task in plan.tasks)


def test_the_first_example_fits_on_one_small_machine() -> None:
    assert planned(EXAMPLES / "job.yaml").fits
