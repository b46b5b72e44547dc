"""`colo get job` of a job whose replicas come in several pages."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from colo_cli import get
from colo_cli.client import Client
from colo_common.events.requests import GetJob, JobDetail
from tests.support.jobs_world import JobsWorld, a_spec, a_task

REPLICAS = 2_500


def test_a_job_of_several_pages_is_printed_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = JobsWorld()
    world.submit(a_spec(a_task(replicas=REPLICAS)))

    def answer(_client: Client, path: str, *, limit: int = 0, cursor: str | None = None, **_query: Any) -> Any:
        detail = world.ask(GetJob(job=path.removeprefix("/v1/jobs/"), limit=limit, cursor=cursor or ""))
        assert isinstance(detail, JobDetail)
        return msgspec.json.decode(msgspec.json.encode(detail))

    monkeypatch.setattr(Client, "get", answer)
    assert get.job("j1", output="json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert [each["replica"] for each in printed["replicas"]] == [f"j1/main/{number}" for number in range(REPLICAS)]
    assert get.job("j1") == 0
    assert capsys.readouterr().out.endswith("and 2400 more; --output json lists them\n")
