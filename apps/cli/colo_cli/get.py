"""The commands `colo get jobs`, `job`, `nodes` and `queues`."""

from typing import Annotated

from cyclopts import Parameter

from colo_cli.client import Client
from colo_cli.output import Format, bytes_text, counted, cpu_text, print_data, print_table, span_text
from colo_cli.which_job import ask_job

__all__ = ["job", "jobs", "nodes", "queues"]

_REPLICAS_SHOWN = 100
Output = Annotated[Format, Parameter(name=["--output", "-o"])]


def jobs(
    *,
    state: str = "",
    queue: str = "",
    limit: int = 100,
    output: Output = "table",
    api: str | None = None,
) -> int:
    """List jobs, newest first.

    Args:
        state: Only these states, separated by commas, in any case.
        queue: Only this queue.
        limit: The most jobs to list, 1 to 1000.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    answer = Client(api).get("/v1/jobs", state=state, queue=queue, limit=limit)
    if output != "table":
        print_data(answer, output)
        return 0
    rows = [
        [
            j["job"],
            j["queue"],
            j["state"],
            *(str(j[k]) for k in ("replicas", "waiting", "running", "succeeded", "failed")),
        ]
        for j in answer["jobs"]
    ]
    header = ["JOB", "QUEUE", "STATE", "REPLICAS>", "WAITING>", "RUNNING>", "SUCCEEDED>", "FAILED>"]
    print_table(header, rows, "no jobs")
    more = answer["total"] - len(rows)
    if more > 0:
        print(f"and {more} more (--limit shows up to 1000)")
    return 0


def job(job: str, /, *, output: Output = "table", api: str | None = None) -> int:
    """Show one job and its replicas.

    Args:
        job: The job's id, the beginning of it, or its name.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    answer = ask_job(Client(api), job)
    if output != "table":
        print_data(answer, output)
        return 0
    summary = answer["summary"]
    print(
        f"{summary['job']}: {summary['state']}, queue {summary['queue']}, class {answer['spec'].get('qos', 'BE')}, "
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
            each["reason"],
        ]
        for each in answer["replicas"][:_REPLICAS_SHOWN]
    ]
    header = ["REPLICA", "STATE", "NODE", "ZONES", "ATTEMPT>", "RETRIES>", "EVICTIONS>", "EXIT>", "REASON"]
    print_table(header, rows, "no replicas")
    more = len(answer["replicas"]) - len(rows)
    if more > 0:
        print(f"and {more} more; --output json lists them")
    return 0


def nodes(*, output: Output = "table", api: str | None = None) -> int:
    """List nodes with usage and what batch work may be promised.

    Args:
        output: table, json or yaml.
        api: Address of the gateway.
    """
    answer = Client(api).get("/v1/nodes")
    if output != "table":
        print_data(answer, output)
        return 0
    rows = [
        [
            n["node"],
            n["freshness"],
            "-" if n["sample_age_ms"] is None else span_text(n["sample_age_ms"]),
            f"{cpu_text(n['cpu_used_mcpu'])}/{cpu_text(n['cpu_capacity_mcpu'])}",
            cpu_text(n["batch_cpu_used_mcpu"]),
            f"{cpu_text(n['held_cpu_mcpu'])}/{cpu_text(n['batch_cpu_mcpu'])}",
            f"{bytes_text(n['memory_used_bytes'])}/{bytes_text(n['memory_capacity_bytes'])}",
            f"{bytes_text(n['held_memory_bytes'])}/{bytes_text(n['batch_memory_bytes'])}",
        ]
        for n in answer["nodes"]
    ]
    header = [
        "NODE",
        "FRESHNESS",
        "AGE>",
        "CPU USED>",
        "OF BATCH>",
        "BATCH CPU HELD>",
        "MEMORY USED>",
        "BATCH MEMORY HELD>",
    ]
    print_table(header, rows, "no nodes yet")
    return 0


def queues(*, output: Output = "table", api: str | None = None) -> int:
    """List queues with counts.

    Args:
        output: table, json or yaml.
        api: Address of the gateway.
    """
    answer = Client(api).get("/v1/queues")
    if output != "table":
        print_data(answer, output)
        return 0
    rows = [
        [q["queue"], str(q["waiting"]), str(q["running"]), str(q["capacity"]), span_text(q["oldest_wait_ms"])]
        for q in answer["queues"]
    ]
    print_table(["QUEUE", "WAITING>", "RUNNING>", "CAPACITY>", "OLDEST WAIT>"], rows, "no queues")
    return 0
