"""What jobs hold and wait for, summed by queue and by tenant, and the replicas that hold a place on a node."""

from collections.abc import Iterable

from msgspec import Struct, field

from colo_common.events.fleet import (
    ListNodeReplicas,
    ListTenants,
    NodeReplicas,
    PlacedReplica,
    TenantList,
    TenantSummary,
)
from colo_common.events.requests import Refusal
from colo_common.model.invalid import InvalidInput
from colo_common.model.paging import limit_of, page_of
from colo_common.model.qos import PriorityBand
from colo_jobs.index import Index
from colo_jobs.job import HOLDING, WAITING, Job

__all__ = ["Use", "list_tenants", "on_node", "use_by_queue"]


class Use(Struct, kw_only=True):
    """Sums over jobs that have not ended. Work of the bands prod and mid holds nothing of the batch allocatable: the one is counted
    as online, the other as mid.
    """

    jobs: int = 0
    waiting: int = 0
    running: int = 0
    held_cpu_mcpu: int = 0
    held_memory_bytes: int = 0
    waiting_cpu_mcpu: int = 0
    waiting_memory_bytes: int = 0
    online_cpu_mcpu: int = 0
    online_memory_bytes: int = 0
    mid_cpu_mcpu: int = 0
    mid_memory_bytes: int = 0
    queues: set[str] = field(default_factory=set)

    def add(self, job: Job) -> None:
        """Add what the replicas of a job request, by their states now."""
        self.jobs += 1
        self.queues.add(job.spec.queue)
        for task, counts in zip(job.spec.tasks, job.counts, strict=True):
            waiting, holding = sum(counts[state] for state in WAITING), sum(counts[state] for state in HOLDING)
            cpu_mcpu, memory_bytes = task.request.cpu_mcpu, task.request.memory_bytes
            self.waiting += waiting
            self.running += holding
            self.waiting_cpu_mcpu += waiting * cpu_mcpu
            self.waiting_memory_bytes += waiting * memory_bytes
            if job.spec.band is PriorityBand.PROD:
                self.online_cpu_mcpu += holding * cpu_mcpu
                self.online_memory_bytes += holding * memory_bytes
            elif job.spec.band is PriorityBand.MID:
                self.mid_cpu_mcpu += holding * cpu_mcpu
                self.mid_memory_bytes += holding * memory_bytes
            else:
                self.held_cpu_mcpu += holding * cpu_mcpu
                self.held_memory_bytes += holding * memory_bytes


def use_by_queue(jobs: Iterable[Job]) -> dict[str, Use]:
    """The use of each queue that has a job which has not ended."""
    found: dict[str, Use] = {}
    for job in jobs:
        if not job.is_ended:
            found.setdefault(job.spec.queue, Use()).add(job)
    return found


def list_tenants(index: Index, request: ListTenants) -> TenantList | Refusal:
    """A page of the tenants that have a job which has not ended, the one that holds most CPU first."""
    found: dict[str, Use] = {}
    for job in index.jobs.values():
        if not job.is_ended:
            found.setdefault(job.spec.tenant, Use()).add(job)
    ordered = sorted(found.items(), key=lambda item: (-item[1].held_cpu_mcpu, item[0]))
    try:
        page, following = page_of(ordered, lambda item: item[0], _tenant_of, request.cursor, limit_of(request.limit))
    except InvalidInput as error:
        return Refusal(code=400, field=error.field, rule=error.rule, got=error.value)
    return TenantList(tenants=page, total=len(ordered), next=following)


def _tenant_of(item: tuple[str, Use]) -> TenantSummary:
    tenant, use = item
    return TenantSummary(
        tenant=tenant,
        jobs=use.jobs,
        waiting=use.waiting,
        running=use.running,
        held_cpu_mcpu=use.held_cpu_mcpu,
        held_memory_bytes=use.held_memory_bytes,
        waiting_cpu_mcpu=use.waiting_cpu_mcpu,
        waiting_memory_bytes=use.waiting_memory_bytes,
        online_cpu_mcpu=use.online_cpu_mcpu,
        online_memory_bytes=use.online_memory_bytes,
        mid_cpu_mcpu=use.mid_cpu_mcpu,
        mid_memory_bytes=use.mid_memory_bytes,
        queues=tuple(sorted(use.queues)),
    )


def on_node(index: Index, request: ListNodeReplicas, now_ms: int) -> NodeReplicas | Refusal:
    """A page of the replicas that hold a place on the node, by job and number."""
    keys, jobs = index.held_on(request.node), index.jobs
    try:
        page, following = page_of(
            keys,
            lambda key: jobs[key[0]].name(key[1]),
            lambda key: _placed(jobs[key[0]], key[1]),
            request.cursor,
            limit_of(request.limit),
        )
    except InvalidInput as error:
        return Refusal(code=400, field=error.field, rule=error.rule, got=error.value)
    return NodeReplicas(replicas=page, total=len(keys), now_ms=now_ms, next=following)


def _placed(job: Job, number: int) -> PlacedReplica:
    replica, request = job.replica(number), job.task_spec(number).request
    return PlacedReplica(
        replica=job.name(number),
        attempt=replica.attempt,
        state=replica.state,
        queue=job.spec.queue,
        tenant=job.spec.tenant,
        qos=job.spec.qos,
        band=job.spec.band,
        cpu_mcpu=request.cpu_mcpu,
        memory_bytes=request.memory_bytes,
        zones=replica.zones,
        since_ms=replica.started_at_ms,
    )
