"""The command `colo plan -f job.yaml`."""

import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.failure import Failure
from colo_cli.job_files import JobInFile, read_job_files
from colo_cli.output import Format, bytes_text, counted, cpu_text, print_data, print_table, print_text
from colo_cli.submit import print_notes

if TYPE_CHECKING:
    from colo_common.events.placement import NearestMiss, NodeScore, ReasonCount
    from colo_common.events.requests import PlannedReplica
    from colo_common.model.placement import DeviceShare
    from colo_gateway.replies import FieldChange, PlanReply, RunningJob

__all__ = ["devices_text", "plan", "print_refusals", "reason_text"]

_NODES_SHOWN: Final = 10
_PLACES_SHOWN: Final = 10
_WHOLE_PCT: Final = 100


def plan(
    *,
    file: Annotated[str, Parameter(name=["--file", "-f"], allow_leading_hyphen=True)],
    places: int = 100,
    output: Annotated[Format, Parameter(name=["--output", "-o"])] = "table",
    api: str | None = None,
) -> int:
    """Show where the job that a file describes would go, or why not, and how it differs from the one that runs; nothing changes.

    Ends with 0 when every replica fits, 1 when not, 2 when there is no answer. With the check index that it prints, a submission is
    refused when the plan is outdated. Several jobs of a file are planned one by one, each as if it came alone.

    Args:
        file: The job file (YAML or JSON), or one with several jobs; "-" reads standard input.
        places: The most replicas to list one by one in json and yaml, at most 1000.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    jobs = read_job_files(file)
    client = Client(api)
    from colo_gateway.replies import PlanReply

    answers = [_asked(client, file, job, places) for job in jobs]
    replies = [answer_as(answer, PlanReply) for answer in answers]
    if output != "table":
        print_data(answers[0] if len(jobs) == 1 else {"plans": answers}, output)
    for number, (job, reply) in enumerate(zip(jobs, replies, strict=True)):
        if output == "table":
            if job.where:
                print_text(f"{chr(10) * bool(number)}{job.title}:")
            _print(reply)
            _print_running(reply.running)
        print_notes(reply.notes)
    if output == "table" and len(jobs) == 1:
        index = replies[0].check_index
        again = f"colo submit -f {shlex.quote(file)} --check-index {index}"
        print()
        print_text(f"check index {index}: `{again}` is refused once this is outdated")
    return 0 if all(reply.fits for reply in replies) else 1


def _asked(client: Client, file: str, job: JobInFile, places: int) -> Any:
    body = json.dumps(job.mapping).encode()
    try:
        return client.call("POST", f"/v1/plan?places={places}", body, **{"Content-Type": "application/json"})
    except Failure as error:
        raise Failure(f"{file}: {job.where}: {error}" if job.where else str(error), 2) from error


def _print(plan: "PlanReply") -> None:
    verdict = "fits" if plan.fits else "does not fit"
    replicas, nodes = counted(plan.replicas, "replica"), counted(plan.nodes, "node")
    print(f"{verdict}: {plan.placed} of {replicas} on the {nodes} known now")
    if plan.waiting:
        wait = "replica of another job waits" if plan.waiting == 1 else "replicas of other jobs wait"
        print(f"{plan.waiting} {wait} now and may come first")
    for task in plan.tasks:
        print(f"\n{task.task}: {task.placed} of {task.replicas}")
        if task.nodes:
            shown = [f"{node} x{count}" for node, count in task.nodes[:_NODES_SHOWN]]
            more = len(task.nodes) - len(shown)
            print_text("  " + ", ".join(shown) + (f" and {counted(more, 'node')} more" if more else ""))
        _print_devices(task.task, plan.places)
        print_refusals(task.counts, task.nearest, never=task.never)
        # Scores explain a place; without one they are left out.
        if task.placed:
            _print_scores(task.scores)
    _print_victims(plan)


def _print_running(running: "RunningJob | None") -> None:
    """Print how the job differs from the newest unfinished one of its name. A submission leaves that one alone."""
    if running is None:
        return
    others = f" and {counted(running.others, 'other')} of its name" if running.others else ""
    print()
    print_text(f"{running.job} is {running.state}{others}; a submission adds a job beside it and changes nothing of it")
    if running.update == "none":
        print("  the same job: nothing differs")
        return
    print_text(
        f"  what differs, and what it would ask of its replicas ({running.update} in all; cancel it to replace it):"
    )
    _print_changes(running.changes, "  ")
    for task in running.tasks:
        now, planned = task.replicas_now, task.replicas_planned
        if task.update == "none" and now == planned:
            continue
        sign = "+" if not now else "-" if not planned else "~"
        moved = f" ({planned - now:+d})" if planned != now else ""
        print(f"  {sign} task {task.task}: {now} -> {counted(planned, 'replica')}{moved}")
        _print_changes([change for change in task.changes if change.field != "replicas"], "      ")


def _print_changes(changes: "Sequence[FieldChange]", indent: str) -> None:
    for change in changes:
        line = f"{indent}~ {change.field}: {change.now} -> {change.planned} ({change.update})"
        print_text(line, indent=len(indent) + 4)


def _print_devices(task: str, places: "Sequence[PlannedReplica]") -> None:
    """Print the devices that the first replicas of a task would get, if the task requests devices."""
    own = [place for place in places if place.replica.partition("/")[0] == task and place.devices]
    for place in own[:_PLACES_SHOWN]:
        print_text(f"  {place.replica} on {place.node}: {devices_text(place.devices)}", indent=4)
    if len(own) > _PLACES_SHOWN:
        print(f"  and {len(own) - _PLACES_SHOWN} more with devices")


def devices_text(shares: "Sequence[DeviceShare]") -> str:
    """The text of device shares: "gpu 0, gpu 1, nic 0 (50 %)"."""
    return ", ".join(
        f"{share.kind} {share.device}" + (f" ({share.core_pct} %)" if share.core_pct < _WHOLE_PCT else "")
        for share in shares
    )


def print_refusals(counts: "Sequence[ReasonCount]", nearest: "NearestMiss | None", *, never: bool) -> None:
    """Print why nodes refuse: that no node could ever hold it, or the nodes by reason and the nearest node."""
    from colo_common.model.shortage import CONDITION, most_text, shortage_text

    if never and nearest is not None:
        # The reasons of each node at this moment do not matter then.
        print_text(f"  no node could hold one even when empty: {most_text(**_miss(nearest))}", indent=4)
        return
    for count in counts:
        detail = f": {count.detail}" if count.detail else ""
        sentence = f"{counted(count.nodes, 'node')}: {reason_text(count.reason)} ({count.reason}){detail}"
        print_text(f"  {sentence}", indent=4)
    # A condition has no amount; its reason was printed above.
    if nearest is not None and nearest.unit != CONDITION:
        print_text(f"  nearest: {shortage_text(**_miss(nearest))}", indent=4)


def _print_scores(scores: "Sequence[NodeScore]") -> None:
    if not scores:
        return
    names = sorted({name for row in scores for name in row.scores})
    rows = [["  " + row.node, *(str(row.scores.get(name, "")) for name in names), str(row.total)] for row in scores]
    # The scores of a later replica depend on the replicas before it.
    print("  scores before the first replica is placed:")
    print_table(["  NODE", *(f"{name}>" for name in names), "TOTAL>"], rows, "")


def _print_victims(plan: "PlanReply") -> None:
    if not plan.victims:
        return
    print()
    print_text(f"{plan.by_preempting} more would fit if these less important replicas left (nobody leaves by this):")
    rows = [
        [
            "  " + each.replica,
            each.node,
            each.band.value,
            str(each.priority),
            cpu_text(each.cpu_mcpu),
            bytes_text(each.memory_bytes),
        ]
        for each in plan.victims
    ]
    print_table(["  REPLICA", "NODE", "BAND", "PRIORITY>", "CPU>", "MEMORY>"], rows, "")


def reason_text(reason: str) -> str:
    """The sentence of a reason; the reason itself when it has none."""
    from colo_common.model.reasons import SENTENCES, Reason

    return SENTENCES.get(Reason(reason), reason) if reason in list(Reason) else reason


def _miss(near: "NearestMiss") -> dict[str, Any]:
    return {
        "node": near.node,
        "reason": near.reason,
        "need": near.need,
        "have": near.have,
        "unit": near.unit,
        "zone": near.zone,
    }
