"""The commands `colo get jobs` and `colo get job`."""

from typing import Any

from colo_cli.client import Client
from colo_cli.output import ListOutput, Output, counted, print_data, print_list, print_table
from colo_cli.watching import Watch, watched
from colo_cli.which_job import ask_job

__all__ = ["job", "jobs"]

_REPLICAS_SHOWN = 100
_JOB_COLUMNS = (
    "JOB", "QUEUE", "+TENANT", "STATE", "REPLICAS>", "WAITING>", "RUNNING>", "SUCCEEDED>", "FAILED>",
)  # fmt: skip


def jobs(
    *,
    state: str = "",
    queue: str = "",
    tenant: str = "",
    name: str = "",
    limit: int = 100,
    output: ListOutput = "table",
    watch: Watch = False,
    api: str | None = None,
) -> int:
    """List jobs, newest first.

    Args:
        state: Only these states, separated by commas, in any case.
        queue: Only this queue.
        tenant: Only this tenant.
        name: Only jobs with this name in their files.
        limit: The most jobs to list, 1 to 1000.
        output: table, wide, name, json or yaml.
        watch: List again every two seconds.
        api: Address of the gateway.
    """
    client = Client(api)

    def show() -> int:
        answer = client.get("/v1/jobs", state=state, queue=queue, tenant=tenant, name=name, limit=limit)
        is_table = print_list(
            answer, output, _JOB_COLUMNS, lambda: [_job_row(each) for each in answer["jobs"]], "no jobs"
        )
        more = answer["total"] - len(answer["jobs"])
        if is_table and more > 0:
            print(f"and {more} more (--limit shows up to 1000)")
        return 0

    return watched(watch, show)


def _job_row(job: dict[str, Any]) -> list[str]:
    counts = (str(job[key]) for key in ("replicas", "waiting", "running", "succeeded", "failed"))
    return [job["job"], job["queue"], job["tenant"], job["state"], *counts]


def job(job: str, /, *, output: Output = "table", watch: Watch = False, api: str | None = None) -> int:
    """Show one job and its replicas.

    Args:
        job: The job's id, the beginning of it, or its name.
        output: table, json or yaml.
        watch: Show it again every two seconds.
        api: Address of the gateway.
    """
    client = Client(api)
    return watched(watch, lambda: _show_job(client, job, output))


def _show_job(client: Client, job: str, output: str) -> int:
    answer = ask_job(client, job)
    if output != "table":
        print_data(answer, output)
        return 0
    summary = answer["summary"]
    tenant = "" if summary["tenant"] == "default" else f", tenant {summary['tenant']}"
    print(
        f"{summary['job']}: {summary['state']}, queue {summary['queue']}{tenant}, class {answer['spec'].get('qos', 'BE')}, "
        f"{counted(summary['replicas'], 'replica')}\n"
    )
    rows = [
        [
            each["replica"],
            each["state"],
            each["node"] or "-",
            ",".join(map(str, each["zones"])) or "-",
            str(each["attempt"]),
            str(each["retries"]),
            str(each["evictions"]),
            "-" if each["exit_code"] is None else str(each["exit_code"]),
            _why(each),
        ]
        for each in answer["replicas"][:_REPLICAS_SHOWN]
    ]
    header = ["REPLICA", "STATE", "NODE", "ZONES", "ATTEMPT>", "RETRIES>", "EVICTIONS>", "EXIT>", "REASON"]
    print_table(header, rows, "no replicas")
    more = len(answer["replicas"]) - len(rows)
    if more > 0:
        print(f"and {more} more; --output json lists them")
    return 0


def _why(replica: dict[str, Any]) -> str:
    """Why the replica waits or ended; also after success, and with the evictions before."""
    why = replica["reason"] or ("done" if replica["state"] == "Succeeded" else "")
    evictions = replica["evictions"]
    if not evictions or why == "evicted":
        return str(why)
    times = "once" if evictions == 1 else f"{evictions} times"
    return f"{why}, evicted {times} before" if why else f"evicted {times} before"
