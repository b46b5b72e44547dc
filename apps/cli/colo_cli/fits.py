"""The command `colo fits`: how many replicas would find a place now, and where."""

import json
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.failure import Failure
from colo_cli.job_files import read_job_file
from colo_cli.output import Output, bytes_text, counted, cpu_text, print_data, print_text
from colo_cli.plan import print_refusals
from colo_cli.submit import print_notes

if TYPE_CHECKING:
    from colo_gateway.state_replies import FitsReply, TaskFits

__all__ = ["fits"]

_NODES_SHOWN: Final = 8


def fits(
    *,
    file: Annotated[str, Parameter(name=["--file", "-f"], allow_leading_hyphen=True)] = "",
    cpu: str = "",
    memory: str = "",
    qos: str = "",
    most: int = 1000,
    output: Output = "table",
    api: str | None = None,
) -> int:
    """Show how many equal replicas would find a place now, on which nodes, or why none does. Nothing changes.

    Ends with 0 when at least one replica of every task fits, 1 when not, 2 when there is no answer.

    Args:
        file: A job file (YAML or JSON); "-" reads standard input. Each of its tasks is asked about alone.
        cpu: CPU of one replica ("2", "500m"), instead of a file.
        memory: Memory of one replica ("4Gi"); without it only the CPU decides.
        qos: Class of the replica: LSE, LSR, LS or BE (the default).
        most: How many replicas are tried, 1 to 1000.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    if bool(file) == bool(cpu):
        raise Failure("give either --file or --cpu (with --memory and --qos)", 2)
    if file and (memory or qos):
        raise Failure("--memory and --qos belong to --cpu: a file says them itself", 2)
    asked = (
        read_job_file(file)
        if file
        else {"cpu": cpu, **({"memory": memory} if memory else {}), **({"qos": qos} if qos else {})}
    )
    try:
        body = json.dumps(asked).encode()
        answer = Client(api).call("POST", f"/v1/fits?most={most}", body, **{"Content-Type": "application/json"})
    except Failure as error:
        raise Failure(str(error), 2) from error
    from colo_gateway.state_replies import FitsReply

    reply = answer_as(answer, FitsReply)
    if output != "table":
        print_data(answer, output)
    else:
        _print(reply)
    print_notes(reply.notes)
    return 0 if all(task.fits for task in reply.tasks) else 1


def _print(reply: "FitsReply") -> None:
    for task in reply.tasks:
        at_least = " or more" if task.fits == task.most else ""
        shape = f"{cpu_text(task.cpu_mcpu)} CPU, {bytes_text(task.memory_bytes)}, class {reply.qos}"
        wanted = f" ({task.wanted} wanted)" if task.wanted > 1 else ""
        name = f"{task.task}: " if len(reply.tasks) > 1 else ""
        where = f"on {len(task.nodes)} of {counted(reply.nodes, 'node')}"
        print_text(f"{name}{counted(task.fits, 'replica')}{at_least} of {shape} would fit now{wanted}, {where}")
        _print_where(task)
        if task.fits < task.most:
            if task.fits:
                print("no more, because")
            print_refusals(task.counts, task.nearest, never=task.never)
    if reply.waiting:
        wait = "replica of a job waits" if reply.waiting == 1 else "replicas of jobs wait"
        print(f"{reply.waiting} {wait} now and may come first")


def _print_where(task: "TaskFits") -> None:
    if not task.nodes:
        return
    shown = [f"{node} x{count}" for node, count in task.nodes[:_NODES_SHOWN]]
    more = len(task.nodes) - len(shown)
    print_text("  " + ", ".join(shown) + (f" and {counted(more, 'node')} more" if more > 0 else ""))
