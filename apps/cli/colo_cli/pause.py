"""The commands `colo pause` and `colo resume`, of a node, a job or a queue."""

from typing import Annotated

from cyclopts import Parameter

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.failure import Failure
from colo_cli.restrictions import As, Output, ask_to_lift, ask_to_restrict, one_of, print_changes
from colo_cli.which_job import ask_job

__all__ = ["pause", "resume"]


def pause(
    target: str = "",
    /,
    *,
    node: str = "",
    job: str = "",
    queue: str = "",
    running: Annotated[bool, Parameter(negative=())] = False,
    reason: str = "",
    for_: str | None = None,
    by: As = "",
    output: Output = "table",
    api: str | None = None,
) -> int:
    """Pause batch work of a node, a job or a queue.

    Of a node: no batch work starts there, and what runs is suspended. Of a job: its waiting replicas get no place, its running
    batch replicas are suspended. Of a queue: its waiting replicas get no place; what runs goes on, and with --running its batch
    replicas are suspended. Online work is not suspended. What you change by hand in the control groups of a paused node, or of the
    replicas of a paused job, stays as long as the pause.

    Args:
        target: The name of a node, a job or a queue; say which with a flag when several have the name.
        node: The node's name.
        job: The job's id, the beginning of it, or its name.
        queue: The queue's name.
        running: Of a queue: suspend what runs as well.
        reason: Why, in a line; everybody who asks reads it.
        for_: The time after which it ends by itself, such as 30m; without it, until `colo resume`.
        by: Who asks; COLO_USER or your user name when absent.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    scope, name = _target(api, target, node, job, queue)
    answer = ask_to_restrict(api, "pause", scope, name, reason=reason, by=by, running=running, **{"for": for_})
    print_changes(answer, f"{scope} {name} is paused already", output)
    return 0


def resume(
    target: str = "",
    /,
    *,
    node: str = "",
    job: str = "",
    queue: str = "",
    reason: str = "",
    by: As = "",
    output: Output = "table",
    api: str | None = None,
) -> int:
    """End a pause: suspended replicas run on, waiting ones get places.

    Args:
        target: The name of a node, a job or a queue; say which with a flag when several have the name.
        node: The node's name.
        job: The job's id, the beginning of it, or its name.
        queue: The queue's name.
        reason: Why, in a line.
        by: Who asks; COLO_USER or your user name when absent.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    scope, name = _target(api, target, node, job, queue)
    answer = ask_to_lift(api, ("pause",), scope, name, by=by, reason=reason)
    print_changes(answer, f"{scope} {name} is not paused", output)
    return 0


def _target(api: str | None, target: str, node: str, job: str, queue: str) -> tuple[str, str]:
    """The scope and the exact name. Raises Failure for none, for several, and for a name that means nothing or several things."""
    if target and not (node or job or queue):
        return _found(Client(api), target)
    if target:
        raise Failure("give a name or a flag, not both", 2)
    scope, name = one_of({"node": node, "job": job, "queue": queue})
    return (scope, _job_id(Client(api), name)) if scope == "job" else (scope, name)


def _found(client: Client, name: str) -> tuple[str, str]:
    from colo_common.events.requests import NodeList
    from colo_gateway.state_replies import QueuesReply

    found = []
    nodes = answer_as(client.pages("/v1/nodes", "nodes"), NodeList).nodes
    if any(each.node == name for each in nodes):
        found.append(("node", name))
    queues = answer_as(client.pages("/v1/queues", "queues"), QueuesReply).queues
    if any(each.queue == name for each in queues):
        found.append(("queue", name))
    try:
        found.append(("job", _job_id(client, name)))
    except Failure:
        if not found:
            raise Failure(f"no node, queue or job has the name {name}") from None
    if len(found) > 1:
        kinds = " and ".join(scope for scope, _ in found)
        raise Failure(f"{name} is the name of a {kinds}; say which: --{found[0][0]} {name}", 2)
    return found[0]


def _job_id(client: Client, name: str) -> str:
    from colo_common.events.requests import JobDetail

    return answer_as(ask_job(client, name), JobDetail).summary.job
