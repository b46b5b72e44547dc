"""What a drain of a node would ask to leave, where it would fit, and what runs there although the node does not meet it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from colo_common.events.fleet import PlacedReplica
from colo_common.events.requests import JobDetail, JobPlanned, PlannedTask
from colo_common.model.colocation import COLOCATION_LABEL, admits_online
from colo_common.model.node_selector import meets
from colo_common.model.qos import PriorityBand
from colo_common.model.reasons import SENTENCES
from colo_common.model.shortage import most_text, shortage_text
from colo_common.model.workload import JobSpec

__all__ = ["DrainPreview", "LeavingReplica", "leaves", "leaving", "part_on_node"]

_BATCH: Final = (PriorityBand.FREE, PriorityBand.BATCH)


class LeavingReplica(Struct, frozen=True, kw_only=True):
    """A replica that would leave. `fits_on` is the node where it would go now, "" where it would have to wait, and `waits_for` then
    says what is short, where that is known.

    `unmet` says which wish of its job the node does not meet any more, "" when it meets all.
    """

    replica: str
    attempt: int
    state: str
    band: PriorityBand
    cpu_mcpu: int
    memory_bytes: int
    fits_on: str = ""
    unmet: str = ""
    waits_for: str = ""


class DrainPreview(Struct, frozen=True, kw_only=True):
    """The replicas that a drain would ask to leave, in order of their names; `staying` counts the others on the node.

    Each job is planned alone, on the other nodes as they are now: the replicas of several jobs may compete for one place. `partial`
    says what could not be asked: of a node that has more than 10,000 replicas, or of which the jobs service told only some, the
    others are neither leaving nor staying.
    """

    node: str
    batch_only: bool
    leaving: tuple[LeavingReplica, ...]
    staying: int = 0
    total: int = 0
    partial: str = ""


def leaves(replica: PlacedReplica, *, batch_only: bool) -> bool:
    """Whether the drain asks this replica to leave."""
    return not batch_only or replica.band in _BATCH


def part_on_node(spec: JobSpec, replicas: Sequence[PlacedReplica]) -> JobSpec | None:
    """The job with only so many replicas of each task as are on the node; None without any."""
    counts = Counter(_task_of(each.replica) for each in replicas)
    tasks = tuple(
        structs.replace(task, replicas=counts[task.name], min_succeeded=None, max_failed=None)
        for task in spec.tasks
        if counts[task.name]
    )
    return structs.replace(spec, tasks=tasks) if tasks else None


def leaving(
    replicas: Sequence[PlacedReplica], detail: JobDetail | None, plan: JobPlanned | None, labels: Mapping[str, str]
) -> list[LeavingReplica]:
    """The rows of one job: its replicas on the node, each with the next place of its task in the plan."""
    places: dict[str, list[str]] = {}
    for place in plan.places if plan is not None else ():
        places.setdefault(place.replica.partition("/")[0], []).append(place.node)
    tasks = {task.task: task for task in plan.tasks} if plan is not None else {}
    rows = []
    for each in replicas:
        free = places.get(_task_of(each.replica), [])
        rows.append(
            LeavingReplica(
                replica=each.replica,
                attempt=each.attempt,
                state=each.state,
                band=each.band,
                cpu_mcpu=each.cpu_mcpu,
                memory_bytes=each.memory_bytes,
                waits_for="" if free else _waits_for(tasks.get(_task_of(each.replica))),
                fits_on=free.pop(0) if free else "",
                unmet=_unmet(each, detail, labels),
            )
        )
    return rows


def _unmet(replica: PlacedReplica, detail: JobDetail | None, labels: Mapping[str, str]) -> str:
    if replica.band is PriorityBand.PROD and not admits_online(labels):
        return f"the node takes batch work only ({COLOCATION_LABEL}={labels[COLOCATION_LABEL]})"
    task = (
        next((each for each in detail.spec.tasks if each.name == _task_of(replica.replica)), None) if detail else None
    )
    if task is None:
        return ""
    for name, value in task.constraints.node_labels:
        if labels.get(name) != value:
            return f"asks for {name}={value}, the node has {labels.get(name, 'no such label')}"
    for requirement in task.constraints.node_requirements:
        if not meets(requirement, labels.get(requirement.key)):
            return (
                f"asks for {requirement.key} {requirement.operator}, the node has {labels.get(requirement.key, 'none')}"
            )
    return ""


def _waits_for(task: PlannedTask | None) -> str:
    """What the other nodes lack for a replica of the task: "2.5 CPU short in node-05 (1.5 of 4)", or the commonest reason."""
    if task is None:
        return ""
    near = task.nearest
    if near is not None:
        text = most_text if task.never else shortage_text
        return text(node=near.node, reason=near.reason, need=near.need, have=near.have, unit=near.unit, zone=near.zone)
    return SENTENCES[task.counts[0].reason] if task.counts else ""


def _task_of(replica: str) -> str:
    return replica.split("/")[1] if replica.count("/") == 2 else ""
