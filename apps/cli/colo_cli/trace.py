"""The command `colo trace JOB`: the spans of a placement as a tree, without a tracing back end."""

from typing import Annotated

from cyclopts import Parameter

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.output import Format, print_data, print_text
from colo_cli.which_job import ask_job, split_replica

__all__ = ["trace"]


def trace(
    job: str,
    /,
    *,
    replica: str = "",
    output: Annotated[Format, Parameter(name=["--output", "-o"])] = "table",
    api: str | None = None,
) -> int:
    """Print the trace of a replica's newest placement.

    Args:
        job: The job's id, the beginning of it, or its name; "job/task/index" for one replica.
        replica: This replica ("task/index"); the first one when absent.
        output: table (a tree), json or yaml.
        api: Address of the gateway.
    """
    job, replica = split_replica(job, replica)
    client = Client(api)
    answer = ask_job(client, job, "trace", replica=replica)
    if output != "table":
        print_data(answer, output)
        return 0
    from colo_gateway.replies import JobTrace

    found = answer_as(answer, JobTrace)
    wall = "; by the clock on the wall, not the simulated one" if client.clock_speed != 1 else ""
    print_text(f"{found.replica} attempt {found.attempt}, trace {found.trace_id}{wall}")
    for span in found.spans:
        label = "  " * span.depth + span.name
        extra = " ".join(f"{key.removeprefix('colo.')}={value}" for key, value in sorted(span.attributes.items()))
        error = f"  error: {span.error}" if span.error else ""
        offset_ms, took_ms = span.offset_us / 1000, span.duration_us / 1000
        line = f"{label:<24} {span.service:<11} +{offset_ms:>9.2f} ms {took_ms:>9.2f} ms  {extra}{error}"
        print_text(line, indent=26)
    return 0
