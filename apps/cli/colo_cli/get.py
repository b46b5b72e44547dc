"""The commands `colo get jobs` and `colo get job`."""

from typing import TYPE_CHECKING

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.event_lines import date_text, print_clock
from colo_cli.output import ListOutput, ago, counted, print_data, print_list, print_table, print_text
from colo_cli.watching import Watch, watched
from colo_cli.which_job import ask_job

if TYPE_CHECKING:
    from colo_common.events.requests import JobSummary, ReplicaDetail

__all__ = ["job", "jobs"]

_REPLICAS_SHOWN = 100
_JOB_COLUMNS = (
    "JOB", "STATE", "AGE>", "WAITING>", "RUNNING>", "DONE>", "FAILED>", "QUEUE", "+REPLICAS>", "+STOPPED>", "+TENANT",
    "+SUBMITTED",
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
    """List jobs, newest first, with the time since each was submitted and its replicas by state.

    Args:
        state: Only these states, separated by commas, in any case.
        queue: Only this queue.
        tenant: Only this tenant.
        name: Only jobs with this name in their files.
        limit: The most jobs to list.
        output: table, wide, name, json or yaml.
        watch: List again every two seconds.
        api: Address of the gateway.
    """
    client = Client(api)

    def show() -> int:
        from colo_common.events.requests import JobList

        answer = client.pages("/v1/jobs", "jobs", limit, state=state, queue=queue, tenant=tenant, name=name)
        found = answer_as(answer, JobList)
        is_table = print_list(
            answer, output, _JOB_COLUMNS, lambda: [_job_row(each, client.now_ms) for each in found.jobs], "no jobs"
        )
        more = found.total - len(found.jobs)
        if is_table and more > 0:
            print(f"and {more} more (--limit shows more)")
        if is_table and found.jobs:
            print_clock(client.clock_speed)
        return 0

    return watched(watch, show)


def _job_row(job: "JobSummary", now_ms: int) -> list[str]:
    counts = map(str, (job.waiting, job.running, job.succeeded, job.failed))
    more = [job.queue, str(job.replicas), str(job.stopped), job.tenant, date_text(job.submitted_at_ms)]
    return [job.job, job.state, ago(job.submitted_at_ms, now_ms), *counts, *more]


def job(job: str, /, *, output: ListOutput = "table", watch: Watch = False, api: str | None = None) -> int:
    """Show one job and its replicas.

    Args:
        job: The job's id, the beginning of it, or its name.
        output: table, wide, name, json or yaml.
        watch: Show it again every two seconds.
        api: Address of the gateway.
    """
    client = Client(api)
    return watched(watch, lambda: _show_job(client, job, output))


def _show_job(client: Client, job: str, output: ListOutput) -> int:
    from colo_common.events.requests import JobDetail

    answer = ask_job(client, job)
    if output in ("json", "yaml"):
        if answer.get("next"):
            answer = client.pages(f"/v1/jobs/{answer['summary']['job']}", "replicas")
        print_data(answer, output)
        return 0
    detail = answer_as(answer, JobDetail)
    summary = detail.summary
    if output == "name":
        print(summary.job)
        return 0
    tenant = "" if summary.tenant == "default" else f", tenant {summary.tenant}"
    print_text(
        f"{summary.job}: {summary.state}, queue {summary.queue}{tenant}, class {detail.spec.qos.value}, "
        f"{counted(summary.replicas, 'replica')}, submitted {ago(summary.submitted_at_ms, client.now_ms)} ago"
    )
    print_clock(client.clock_speed)
    print()
    shown = detail.replicas[:_REPLICAS_SHOWN]
    header = ["REPLICA", "STATE", "NODE", "ZONES", "REASON", "EVICTIONS>", "EXIT>", "ATTEMPT>", "RETRIES>"]
    print_table(header, [_replica_row(each) for each in shown], "no replicas", is_wide=output == "wide")
    more = summary.replicas - len(shown)
    if more > 0:
        print(f"and {more} more; --output json lists them")
    return 0


def _replica_row(replica: "ReplicaDetail") -> list[str]:
    return [
        replica.replica,
        replica.state,
        replica.node or "-",
        ",".join(map(str, replica.zones)) or "-",
        _why(replica) or "-",
        str(replica.evictions),
        "-" if replica.exit_code is None else str(replica.exit_code),
        str(replica.attempt),
        str(replica.retries),
    ]


def _why(replica: "ReplicaDetail") -> str:
    """Why the replica waits or ended; also after success, and with the evictions before."""
    why = replica.reason or ("done" if replica.state == "Succeeded" else "")
    if not replica.evictions or why == "evicted":
        return why
    times = "once" if replica.evictions == 1 else f"{replica.evictions} times"
    return f"{why}, evicted {times} before" if why else f"evicted {times} before"
