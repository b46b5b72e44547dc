"""Finds a job by its id, by the name in its file, or by the beginning of its id."""

import sys
import urllib.parse
from typing import TYPE_CHECKING, Any, Final

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.failure import CommandRefused, Failure
from colo_cli.output import counted

if TYPE_CHECKING:
    from colo_common.events.requests import JobList, JobSummary

__all__ = ["ask_job", "find_job", "split_replica"]

_SHOWN_MOST: Final = 10
_NOT_FOUND: Final = 404


def ask_job(client: Client, job: str, part: str = "", *, method: str = "GET", replica: str = "") -> Any:
    """The reply of `/v1/jobs/{job}` or a part of it ("explain", "trace").

    An exact id is taken as it is; without such a job `find_job` finds it. `replica` is "task/index", or "job/task/index" with the
    same text as `job`. Raises Failure: 1 when no job is found, 2 when several match.
    """
    if not job:
        raise Failure("job: must not be empty", 2)
    try:
        return _ask(client, job, part, method, _replica_of(job, job, replica))
    except CommandRefused as refused:
        if refused.code != _NOT_FOUND or refused.field != "job":
            raise
        found = find_job(client, job, whole_name=method != "GET")
        if found is None:
            raise
    return _ask(client, found, part, method, _replica_of(found, job, replica))


def find_job(client: Client, text: str, *, whole_name: bool = False) -> str | None:
    """The id of the job that a name means, else the only id that begins with the text, or None.

    Of several jobs of one name an unfinished one goes before those that have ended, and the newest before older ones; a line on
    stderr says so. With `whole_name`, which a cancel needs because it cannot be undone, several unfinished jobs are refused, and
    the beginning of an id must contain the whole name: "train" must not match "train-all". Raises Failure (2) that lists what
    matches.
    """
    from colo_common.model.submission import UNFINISHED

    named = _list(client, name=text)
    if named.total > 1:
        live = _list(client, name=text, state=",".join(UNFINISHED))
        if whole_name and live.total > 1:
            raise _several(f'{live.total} unfinished jobs have the name "{text}"', live)
        chosen = (live.jobs or named.jobs)[0]
        _say_which(text, chosen, named.total, live.total)
        return chosen.job
    if not named.total:
        named = _list(client, prefix=text)
        if named.total > 1:
            raise _several(f'{named.total} ids begin with "{text}"', named)
        if whole_name and named.jobs and not text.startswith(f"{named.jobs[0].name}-"):
            return None
    return named.jobs[0].job if named.jobs else None


def _say_which(text: str, chosen: "JobSummary", total: int, live: int) -> None:
    which = (
        "the only one that has not ended" if live == 1 else "the newest that has not ended" if live else "the newest"
    )
    print(
        f'note: {total} jobs have the name "{text}"; this is {which}, {chosen.job} ({chosen.state}). '
        f"`colo get jobs --name {text}` lists them",
        file=sys.stderr,
    )


def split_replica(job: str, replica: str) -> tuple[str, str]:
    """Job and replica, where `job` may be the id of a replica ("job/task/index")."""
    name, slash, rest = job.partition("/")
    return (name, rest) if slash and not replica else (job, replica)


def _ask(client: Client, job: str, part: str, method: str, replica: str) -> Any:
    path = f"/v1/jobs/{urllib.parse.quote(job, safe='')}" + (f"/{part}" if part else "")
    return client.get(path, replica=replica) if method == "GET" else client.call(method, path)


def _replica_of(job: str, given_job: str, replica: str) -> str:
    if replica.count("/") == 1:
        return f"{job}/{replica}"
    return f"{job}/{replica.removeprefix(given_job + '/')}" if replica.startswith(given_job + "/") else replica


def _list(client: Client, **query: str) -> "JobList":
    from colo_common.events.requests import JobList

    return answer_as(client.get("/v1/jobs", limit=_SHOWN_MOST, **query), JobList)


def _moment(job: "JobSummary") -> str:
    """The time of a submission to the second, in UTC."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(job.submitted_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _several(what: str, found: "JobList") -> Failure:
    jobs = found.jobs
    width = max(len(job.job) for job in jobs)
    states = max(len(job.state) for job in jobs)
    lines = [
        f"  {job.job:<{width}}  {job.state:<{states}}  submitted {_moment(job)}, {counted(job.replicas, 'replica')}"
        for job in jobs
    ]
    more = found.total - len(jobs)
    return Failure(
        "\n".join([f"job: {what}; say which by its id:", *lines, *([f"  and {more} more"] if more > 0 else [])]), 2
    )
