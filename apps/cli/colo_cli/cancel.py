"""`colo cancel JOB`."""

import sys

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.failure import Failure
from colo_cli.which_job import ask_job

__all__ = ["cancel"]


def cancel(job: str, /, *, api: str | None = None) -> int:
    """Stop a job for good: waiting replicas are withdrawn, running ones get SIGTERM, grace, SIGKILL.

    Args:
        job: The job's id, its name, or a beginning of its id that has the whole name.
        api: Address of the gateway.
    """
    if "/" in job:
        raise Failure(f"job: must name a job, which is cancelled as a whole (got {job})", 2)
    from colo_common.events.requests import JobAccepted

    accepted = answer_as(ask_job(Client(api), job, method="DELETE"), JobAccepted)
    sys.stdout.write(f"{accepted.job} {accepted.state}\n")
    return 0
