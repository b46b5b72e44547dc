"""`colo cancel JOB`."""

import sys
import urllib.parse

from colo_cli.client import Client

__all__ = ["cancel"]


def cancel(job: str, /, *, api: str | None = None) -> int:
    """Stop a job for good: waiting replicas are withdrawn, running ones get SIGTERM, grace, SIGKILL.

    Args:
        job: The job's id.
        api: Address of the gateway.
    """
    answer = Client(api).call("DELETE", f"/v1/jobs/{urllib.parse.quote(job, safe='')}")
    sys.stdout.write(f"{answer['job']} {answer['state']}\n")
    return 0
