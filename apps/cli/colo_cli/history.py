"""The command `colo history`: what happened in a span of time, as a finite list."""

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.event_lines import clock_text, moment, print_line
from colo_cli.failure import Failure
from colo_cli.output import Format, counted, print_data, print_text, span_text
from colo_cli.which_job import find_job

if TYPE_CHECKING:
    from colo_gateway.history import History

__all__ = ["history"]

Output = Annotated[Format, Parameter(name=["--output", "-o"])]


def history(
    what: Literal["node", "job", ""] = "",
    name: str = "",
    /,
    *,
    since: str = "1m",
    kind: str = "",
    types: str = "",
    limit: int = 100,
    output: Output = "table",
    api: str | None = None,
) -> int:
    """List what happened, the newest last: everywhere, on a node, or to a job.

    Examples: `colo history`, `colo history node node-03 --since 10m`, `colo history job train`.

    Args:
        what: node or job; nothing for everything.
        name: The node's name; the job's id, the beginning of it, or its name.
        since: How long ago (10s, 1m, 1h30m), or a position of `colo watch --json-lines`.
        kind: Only these kinds, separated by commas: job, replica, placement, eviction, enforcement, node, freshness, pressure ...
        types: Only these fact types, separated by commas.
        limit: At most so many lines, 1 to 1000.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    if bool(what) != bool(name):
        raise Failure("history: say which: `colo history node NODE`, `colo history job JOB`, or neither", 2)
    client = Client(api)
    query: dict[str, str | int | None] = {"since": since, "kind": kind, "types": types, "limit": limit}
    if what == "node":
        query["node"] = name
    elif what == "job":
        query["job"] = find_job(client, name) or name
    answer = client.get("/v1/history", **query)
    if output != "table":
        print_data(answer, output)
        return 0
    from colo_gateway.history import History

    reply = answer_as(answer, History)
    _print(reply, f" about {what} {query[what]}" if what else "")
    return 0


def _print(reply: "History", about: str) -> None:
    span = span_text(max(reply.to_ms - reply.from_ms, 0))
    counts = ", ".join(f"{count} {name}" for name, count in reply.counts.items()) or "nothing"
    print_text(f"The last {span}{about} (to {moment(reply.to_ms)}): {counts}")
    notes = [clock_text(reply.clock_speed)]
    if reply.left_out:
        notes.append(f"no lines for {', '.join(reply.left_out)}: --types or --kind shows them")
    known_ms = reply.known_since_ms
    if known_ms is None or known_ms > reply.from_ms:
        since = "now" if known_ms is None else moment(known_ms)
        notes.append(f"the gateway keeps facts since {since} only")
    if reply.earlier:
        notes.append(f"{counted(reply.earlier, 'earlier line')} not shown: --limit")
    for note in notes:
        if note:
            print_text(f"({note})", indent=1)
    for line in reply.lines:
        print_line(line)
