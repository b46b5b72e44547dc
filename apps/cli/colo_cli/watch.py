"""The command `colo watch`: one line for each fact, as it happens."""

import json
import sys

from colo_cli.client import Client
from colo_cli.fact_text import fact_text
from colo_cli.which_job import find_job

__all__ = ["watch"]


def watch(
    *,
    types: str = "",
    node: str = "",
    job: str = "",
    since: int | None = None,
    json_lines: bool = False,
    api: str | None = None,
) -> int:
    """Follow facts as they happen; Ctrl-C ends it.

    Args:
        types: Only these fact types, separated by commas (PlacementsDecided,EvictionRequested,...).
        node: Only facts of this node.
        job: Only facts of this job: its id, the beginning of it, or its name.
        since: Resume after this position of the event log; 0 replays all kept facts.
        json_lines: One JSON object a line instead of text.
        api: Address of the gateway.
    """
    client = Client(api)
    if job:
        found = find_job(client, job)
        if found is None:
            sys.stderr.write(f"colo: no job {job} is known now; waiting for facts of one with this id\n")
        job = found or job
    try:
        for name, body in client.events(types=types, node=node, job=job, since=since):
            if json_lines:
                print(json.dumps({"type": name, **body}), flush=True)
            else:
                print(f"{name:<22} {fact_text(body)}", flush=True)
    except KeyboardInterrupt:
        # Ctrl-C is the usual end of this command and no error.
        pass
    return 0
