"""The command `colo watch`: one line for each fact, as it happens."""

import json
import sys

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.event_lines import clock_text, print_line
from colo_cli.which_job import find_job
from colo_common.model.printable import printable

__all__ = ["watch"]


def watch(
    *,
    kind: str = "",
    node: str = "",
    job: str = "",
    since: str = "",
    types: str = "",
    json_lines: bool = False,
    api: str | None = None,
) -> int:
    """Follow facts as they happen; Ctrl-C ends it.

    Example: `colo watch --since 1m --kind eviction,enforcement`.

    Args:
        kind: Only these kinds, separated by commas: job, replica, placement, eviction, enforcement, node, freshness, pressure ...
        node: Only facts of this node.
        job: Only facts of this job: its id, the beginning of it, or its name.
        since: Begin so long ago (10s, 1m, 1h30m), or after a position that --json-lines printed; 0 replays all kept facts.
        types: Only these fact types, separated by commas (PlacementsDecided,EvictionRequested,...).
        json_lines: One JSON object a line instead of text: position, type and the whole fact.
        api: Address of the gateway.
    """
    from colo_gateway.event_line import EventLine

    client = Client(api)
    if job:
        found = find_job(client, job)
        if found is None:
            sys.stderr.write(f"colo: no job {job} is known now; waiting for facts of one with this id\n")
        job = found or job
    try:
        for name, body in client.events(types=types, kind=kind, node=node, job=job, since=since, form="line"):
            if name == "open":
                _remark(clock_text(body["clock_speed"]))
            elif name == "gap":
                _remark(f"older facts are no longer kept; these begin at position {printable(body['text'])}")
            elif name == "overrun":
                _remark("this reader was too slow and was disconnected; --since with the last position resumes")
            elif name == "ended":
                _remark(f"the gateway ended the stream: {printable(body['text'])}")
                return 1
            else:
                line = answer_as(body, EventLine)
                if json_lines:
                    print(json.dumps({"position": line.position, "type": line.type, **body["fact"]}), flush=True)
                else:
                    print_line(line)
    except KeyboardInterrupt:
        # Ctrl-C is the usual end of this command and no error.
        pass
    return 0


def _remark(sentence: str) -> None:
    """A remark about the lines, beside them: a program that reads the lines does not meet it."""
    if sentence:
        sys.stderr.write(f"colo: {sentence}\n")
