"""Finds a job by its id, by the name in its file, or by the beginning of its id."""

import urllib.parse
from typing import Any, Final

from colo_cli.client import Client
from colo_cli.failure import CommandRefused, Failure

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
    """The id of the only job of this name, or of its only unfinished job; else the only id that begins with the text, or None.

    With `whole_name` the beginning of an id must contain the whole name of the job. A cancel, which cannot be undone, needs this:
    "train" must not match the job "train-all" when no other job is left. Raises Failure (2) that lists the jobs when several match.
    """
    named = _list(client, name=text)
    if named["total"] > 1:
        from colo_common.model.lifecycle import JOB

        states = ",".join(name for name in JOB.state_names if name not in JOB.terminal)
        live = _list(client, name=text, state=states)
        if live["total"] != 1:
            what = f'{named["total"]} jobs have the name "{text}"'
            raise _several(f"{what}, {live['total']} of them are not over", live if live["total"] else named)
        named = live
    if not named["total"]:
        named = _list(client, prefix=text)
        if named["total"] > 1:
            raise _several(f'{named["total"]} ids begin with "{text}"', named)
        if whole_name and named["total"] and not text.startswith(f"{named['jobs'][0]['name']}-"):
            return None
    return str(named["jobs"][0]["job"]) if named["total"] else None


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


def _list(client: Client, **query: str) -> Any:
    return client.get("/v1/jobs", limit=_SHOWN_MOST, **query)


def _several(what: str, found: Any) -> Failure:
    jobs = found["jobs"]
    width = max(len(job["job"]) for job in jobs)
    lines = [f"  {job['job']:<{width}}  {job['state']}" for job in jobs]
    more = found["total"] - len(jobs)
    return Failure(
        "\n".join([f"job: {what}; say which by its id:", *lines, *([f"  and {more} more"] if more > 0 else [])]), 2
    )
