"""Which job a word on the command line means."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from colo_cli import cancel, explain, get, trace, watch
from colo_cli.client import Client
from colo_cli.failure import CommandRefused, Failure
from colo_cli.which_job import ask_job, find_job, split_replica

#: 2026-11-22 10:00:00 UTC.
SUBMITTED_MS = 1_795_341_600_000


class Known(NamedTuple):
    """A job that the gateway knows, the newest first in a list of them."""

    job: str
    name: str
    state: str = "Running"


class Gateway(Client):
    """Answers about jobs as the real one does, out of a list."""

    def __init__(self, *jobs: Known) -> None:
        super().__init__("http://127.0.0.1:1")
        self.jobs = jobs
        self.asked: list[str] = []

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Any:
        self.asked.append(f"{method} {path}")
        job = path.removeprefix("/v1/jobs/").partition("?")[0].partition("/")[0]
        if all(known.job != job for known in self.jobs):
            raise CommandRefused(f"job: there is no such job (got {job})", 1, 404, "job")
        return {"job": job, "state": "Terminating", "version": 2}

    def get(self, path: str, **query: str | int | None) -> Any:
        if path != "/v1/jobs":
            given = f"?replica={query['replica']}" if query.get("replica") else ""
            return self.call("GET", path + given)
        assert query["limit"]
        states = str(query.get("state") or "").split(",")
        found = [
            known
            for known in self.jobs
            if known.name == (query.get("name") or known.name)
            and known.job.startswith(str(query.get("prefix") or ""))
            and (not query.get("state") or known.state in states)
        ]
        shown = found[: int(query["limit"] or 0)]
        return {
            "jobs": [
                {
                    "job": each.job,
                    "name": each.name,
                    "queue": "default",
                    "state": each.state,
                    "replicas": 1,
                    **dict.fromkeys(("waiting", "running", "succeeded", "failed", "stopped"), 0),
                    "submitted_at_ms": SUBMITTED_MS,
                }
                for each in shown
            ],
            "total": len(found),
        }


OVER = ("Completed", "Failed", "Terminated")


@pytest.mark.parametrize(
    ("jobs", "text", "means"),
    [
        ([Known("web-11", "web")], "web", "web-11"),
        ([Known("web-11", "web")], "web-1", "web-11"),
        ([Known("web-11", "web"), Known("web-2-33", "web-2")], "web", "web-11"),
        ([Known("web-11", "web"), Known("web-2-33", "web-2")], "web-2", "web-2-33"),
        ([Known("web-22", "web"), *(Known(f"web-{n}", "web", over) for n, over in enumerate(OVER))], "web", "web-22"),
        ([Known("web-22", "web", "Failed"), Known("web-11", "web", "Inqueue")], "web", "web-11"),
        ([Known("web-3", "web"), Known("web-2", "web", "Inqueue"), Known("web-1", "web", "Failed")], "web", "web-3"),
        ([Known("web-3", "web", "Completed"), Known("web-2", "web", "Failed")], "web", "web-3"),
        ([Known("web-11", "web")], "wob", None),
        ([], "web", None),
    ],
    ids=[
        "by name",
        "by the beginning of its id",
        "a name goes before the beginning of an id",
        "a name of which another is the beginning",
        "the one that is not over",
        "the one that is not over, though an ended one is newer",
        "the newest of those that are not over",
        "the newest of those that are over",
        "no such job",
        "no jobs",
    ],
)
def test_a_word_means_the_one_job_that_it_can_mean(jobs: list[Known], text: str, means: str | None) -> None:
    assert find_job(Gateway(*jobs), text) == means


@pytest.mark.parametrize(
    ("jobs", "text", "is_final", "message"),
    [
        (
            [Known("web-2", "web"), Known("web-100", "web", "Inqueue"), Known("web-3", "web", "Failed")],
            "web",
            True,
            'job: 2 unfinished jobs have the name "web"; say which by its id:\n'
            "  web-2    Running  submitted 2026-11-22 10:00:00 UTC, 1 replica\n"
            "  web-100  Inqueue  submitted 2026-11-22 10:00:00 UTC, 1 replica",
        ),
        (
            [Known("web-2", "web"), Known("wet-3", "wet", "Failed")],
            "we",
            False,
            'job: 2 ids begin with "we"; say which by its id:\n'
            "  web-2  Running  submitted 2026-11-22 10:00:00 UTC, 1 replica\n"
            "  wet-3  Failed   submitted 2026-11-22 10:00:00 UTC, 1 replica",
        ),
        ([Known(f"w-{n}", "w") for n in range(12)], "w", True, "and 2 more"),
    ],
    ids=["several that are not over", "the beginning of several ids", "more than are listed"],
)
def test_a_word_that_may_mean_several_jobs_lists_them(
    jobs: list[Known], text: str, is_final: bool, message: str
) -> None:
    with pytest.raises(Failure) as refused:
        find_job(Gateway(*jobs), text, whole_name=is_final)
    assert refused.value.status == 2
    assert str(refused.value).endswith(message)


def test_one_of_several_jobs_is_named_with_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    gateway = Gateway(Known("web-3", "web", "Completed"), Known("web-2", "web"), Known("web-1", "web", "Failed"))
    assert find_job(gateway, "web") == "web-2"
    assert capsys.readouterr().err == (
        'note: 3 jobs have the name "web"; this is the only one that has not ended, web-2 (Running). '
        "`colo get jobs --name web` lists them\n"
    )


@pytest.mark.parametrize(
    ("text", "is_meant"), [("train-all", True), ("train-all-1", True), ("train", False), ("tr", False)]
)
def test_what_cannot_be_undone_is_not_done_to_a_job_of_another_name(text: str, is_meant: bool) -> None:
    gateway = Gateway(Known("train-all-11", "train-all"))
    if is_meant:
        assert ask_job(gateway, text, method="DELETE")["job"] == "train-all-11"
        return
    with pytest.raises(CommandRefused):
        ask_job(gateway, text, method="DELETE")
    assert ask_job(gateway, text)["job"] == "train-all-11"


def test_an_exact_id_is_asked_for_as_it_is_whatever_else_it_could_mean() -> None:
    gateway = Gateway(Known("web", "old"), Known("web-1", "web"), Known("web-2", "web"))
    assert ask_job(gateway, "web")["job"] == "web"
    assert gateway.asked == ["GET /v1/jobs/web"]


def test_what_does_not_exist_is_refused_as_the_gateway_refuses_it() -> None:
    with pytest.raises(CommandRefused, match="there is no such job") as refused:
        ask_job(Gateway(), "web")
    assert refused.value.status == 1
    with pytest.raises(Failure, match="must not be empty"):
        ask_job(Gateway(), "")


@pytest.mark.parametrize("given", ["main/0", "web/main/0", "web-11/main/0"])
def test_a_replica_is_named_with_or_without_its_job(given: str) -> None:
    gateway = Gateway(Known("web-11", "web"))
    ask_job(gateway, "web", "explain", replica=given)
    assert gateway.asked[-1] == "GET /v1/jobs/web-11/explain?replica=web-11/main/0"


def test_the_id_of_a_replica_names_its_job() -> None:
    assert split_replica("web-11/main/0", "") == ("web-11", "main/0")
    assert split_replica("web-11", "main/0") == ("web-11", "main/0")


def test_every_command_that_takes_a_job_takes_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = Gateway(Known("web-11", "web"))
    monkeypatch.setattr(Client, "get", lambda _self, path, **query: gateway.get(path, **query))
    monkeypatch.setattr(
        Client, "call", lambda _self, method, path, body=None, **headers: gateway.call(method, path, body, **headers)
    )
    followed: list[Any] = []
    monkeypatch.setattr(Client, "events", lambda _self, **query: followed.append(query["job"]) or iter(()))
    assert cancel.cancel("web") == 0
    assert capsys.readouterr().out == "web-11 Terminating\n"
    assert explain.job("web", output="json") == 0
    assert trace.trace("web/main/0", output="json") == 0
    assert get.job("web", output="json") == 0
    assert watch.watch(job="web") == 0
    assert watch.watch(job="unheard-of") == 0
    assert followed == ["web-11", "unheard-of"]
    assert "no job unheard-of is known now" in capsys.readouterr().err
    assert [each for each in gateway.asked if "web-11" in each] == [
        "DELETE /v1/jobs/web-11",
        "GET /v1/jobs/web-11/explain",
        "GET /v1/jobs/web-11/trace?replica=web-11/main/0",
        "GET /v1/jobs/web-11",
    ]
    with pytest.raises(Failure, match="cancelled as a whole"):
        cancel.cancel("web-11/main/0")
