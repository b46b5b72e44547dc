"""The shell of the jobs service: its subscriptions, the loading of rows, its own effects and its metrics."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, cast

import structlog
from msgspec import Struct, structs
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from colo_common.events.effects import Effect
from colo_common.events.enforcement import NodeRecovered, PlacementRefused, ReplicaEnded, ReplicaStarted
from colo_common.events.fleet import ListNodeReplicas, ListTenants
from colo_common.events.job import QueueChanged
from colo_common.events.node import FreshnessChanged
from colo_common.events.placement import PlacementRejected, PlacementsDecided
from colo_common.events.requests import (
    CancelJob,
    GetJob,
    ListJobs,
    ListQueues,
    PendingReplicas,
    SubmitJob,
)
from colo_common.events.started import StartedReplicas
from colo_common.events.trace import trace_is_sampled
from colo_common.events.waiting import ExplainWait
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.partition import WHOLE, Share
from colo_common.ports import Bus, Clock, Replay, Row, Store
from colo_common.runtime.core import Core, Subscription
from colo_common.runtime.lease_keeper import HeldTerm, LeaseKeeper
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.service import Service
from colo_common.runtime.telemetry import Telemetry
from colo_common.runtime.wall_time import wall_us_at
from colo_jobs.admission import QUEUE_AGAIN_MS
from colo_jobs.core import JobsCore
from colo_jobs.effects import (
    AskHolds,
    JobReloaded,
    JobRowsLoaded,
    JobsLost,
    LogRefused,
    LogUnreadable,
    ReloadJob,
    RequestsPublished,
)
from colo_jobs.missed import MISSED_KIND
from colo_jobs.rebuild import REBUILT_FROM, FactsOfJobs
from colo_jobs.records import (
    JOB_KIND,
    MARK_KIND,
    MARK_USED,
    PAGE_KIND,
    SPEC_KIND,
    decode_spec,
    is_loss,
    mark_id,
    page_count,
    page_id,
)
from colo_jobs.retention import RetentionPolicy
from colo_jobs.transaction import Counters

__all__ = ["ANSWERS", "HEARS", "HEARS_PART", "JobsMetrics", "JobsShell", "jobs_service"]

# Facts about replicas come in thousands and are less urgent than a submission. With this wait, facts that arrive together become
# one batch, and a job that is placed and started in one batch is written once.
_WAIT_MS: Final = 25

_NAMED_MOST: Final = 3
#: The ids of jobs that nobody can rebuild are all logged, so many to a line; a log is no place for more lines than this makes.
_IDS_OF_LINE: Final = 100
_IDS_MOST: Final = 100_000
# Redis loses a second or two at its worst, and what was put back after that before this service ended.
_NEWEST_MS: Final = 120_000
# Facts of placements come in thousands, and only those of the lost seconds are needed.
_REDELIVERED_MS: Final = 10_000
_NEW_CONSUMER_S: Final = 900
_COUNTS_SINCE_S: Final = 2 * QUEUE_AGAIN_MS // 1_000
_COUNTS_MOST: Final = 10_000

HEARS: Final = (
    # All with the same wait: a refusal must not overtake its decision, nor a node's recovery the ends that it reported before.
    *(
        Subscription(type=fact, may_wait_ms=_WAIT_MS)
        for fact in (
            PlacementsDecided,
            PlacementRejected,
            PlacementRefused,
            ReplicaStarted,
            ReplicaEnded,
            NodeRecovered,
        )
    ),
    # Lost nodes are kept in memory only, and a placement on a lost node may arrive after a restart.
    Subscription(type=FreshnessChanged, durable=False, replay=True),
)
#: What the service of one partition hears. Its consumer is new where the number of partitions was changed, which takes seconds: it
#: need not read all that the stream has kept for days. The others' counts are said again each minute.
HEARS_PART: Final = (
    *(structs.replace(each, since_s=_NEW_CONSUMER_S) if each.durable else each for each in HEARS),
    Subscription(type=QueueChanged, durable=False, since_s=_COUNTS_SINCE_S, since_most=_COUNTS_MOST),
)
ANSWERS: Final[tuple[type[Struct], ...]] = (
    SubmitJob, CancelJob, GetJob, ListJobs, ListQueues, ListTenants, ListNodeReplicas, PendingReplicas,
    StartedReplicas, ExplainWait,
)  # fmt: skip


class JobsShell:
    """Loads the rows and performs the core's own effects: the `load` and `perform` of the shared runtime."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        telemetry: Telemetry | None = None,
        replay: Replay | None = None,
        share: Share = WHOLE,
        retention: RetentionPolicy = RetentionPolicy(),
    ) -> None:
        """`replay`: where jobs are looked for that the store has lost; None: they are not. `share`: whose rows are loaded.

        `retention`: of jobs that ended so long ago the store lacks the rows because they were deleted.
        """
        self._retention = retention
        self._replay = replay
        self._share = share
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._log = structlog.get_logger("jobs")
        #: Set when the core wants to know what is held.
        self.holds_due = asyncio.Event()

    async def load(self) -> Sequence[Struct]:
        """Load all rows of the store as the first event of the core."""
        specs = await self._rows(SPEC_KIND)
        jobs = await self._rows(JOB_KIND)
        pages = await self._rows(PAGE_KIND)
        self._log.info("rows-loaded", jobs=len(jobs), pages=len(pages))
        missed = await self._rows(MISSED_KIND)
        losses = tuple(row for row in await self._store.load(MARK_KIND) if is_loss(row.id, self._share))
        loaded = JobRowsLoaded(specs=specs, jobs=jobs, pages=pages, missed=missed, losses=losses)
        if self._replay is None:
            return [loaded]
        mark = await self._store.get(MARK_KIND, mark_id(self._share))
        is_used = mark is not None and mark.value == MARK_USED
        if is_used or (mark is None and jobs):
            newest = await self._newest_lost(self._replay, {row.id: row.version for row in jobs})
            # An earlier version of this service left no mark, nor does one that put its rows back into an emptied store.
            marked = [newest] if is_used else [JobsLost(), newest]
            return [loaded, *marked, *await self._received_last(self._replay)]
        return [loaded, await self._lost(self._replay, 0 if mark is None else mark.version)]

    async def _rows(self, kind: str) -> tuple[Row, ...]:
        """The rows of this partition. A page is named by its job and its number."""
        rows, share = await self._store.load(kind), self._share
        return rows if share.is_whole else tuple(row for row in rows if share.owns(row.id.split("/", 1)[0]))

    async def _newest_lost(self, replay: Replay, versions: Mapping[str, int]) -> JobsLost:
        """What the store lacks of what was published last, given the version of each job's row.

        A Redis that lost its last second together with this service has the row of an earlier one and a mark, and lacks jobs that
        were accepted. Whether they are lost is asked of the last minutes before the newest fact, however long ago that was.
        """
        facts = FactsOfJobs(self._share)
        count = await replay.facts(REBUILT_FROM, facts.take, newest_ms=_NEWEST_MS)
        lost = tuple(job for job in facts.lost() if job.job not in versions)
        now_ms, is_over = self._clock.now_ms(), self._retention.is_over
        ends = [end for end in facts.ends.values() if end.job in versions or not is_over(end.at_ms, now_ms)]
        ended = sum(end.job not in versions and end.spec is not None for end in ends)
        older = tuple(job for job, version in facts.versions.items() if versions.get(job, version) < version)
        if lost or older or ended:
            self._log.error(
                "jobs-lost",
                why="the store lacks rows that had been written, and the stream has what was published of them",
                facts=count,
                accepted_again=len(lost),
                ended=ended,
                older=len(older),
                first_older=older[:_NAMED_MOST],
            )
        return JobsLost(jobs=lost, mark_version=None, moved=facts.moved, older=older, ends=tuple(ends))

    async def _received_last(self, replay: Replay) -> list[Struct]:
        """What this service may have handled and acknowledged, while the rows that followed from it were lost.

        Nobody says it again so soon: who ordered a node to tell how an attempt ended would get a copy, which the bus drops.
        """
        received: list[Struct] = []
        # Nodes go on while this service is away: what it handled last came before its own newest facts.
        for types in ((PlacementsDecided,), (ReplicaStarted, ReplicaEnded, PlacementRefused)):
            await replay.facts(types, received.append, newest_ms=_REDELIVERED_MS, newest_of=REBUILT_FROM)
        return received

    async def _lost(self, replay: Replay, mark_version: int) -> JobsLost:
        """The jobs that the stream of facts knows and an empty store does not."""
        facts = FactsOfJobs(self._share)
        count = await replay.facts(REBUILT_FROM, facts.take)
        lost = facts.lost()
        if lost or facts.unknown:
            self._log.error(
                "jobs-lost",
                why="the store is empty and was never used, and the stream has facts of unfinished jobs",
                facts=count,
                accepted_again=len(lost),
                unknown=len(facts.unknown),
            )
        self._name_unknown(facts.unknown)
        return JobsLost(jobs=lost, mark_version=mark_version, unknown=facts.unknown)

    def _name_unknown(self, unknown: Sequence[str]) -> None:
        """Log who has to be submitted again: every id, up to the limit."""
        named = unknown[:_IDS_MOST]
        for first in range(0, len(named), _IDS_OF_LINE):
            self._log.error(
                "jobs-unknown",
                then="submit them again, with their ids and keys",
                number=first + 1,
                of=len(unknown),
                not_named=len(unknown) - len(named),
                jobs=list(named[first : first + _IDS_OF_LINE]),
            )

    async def perform(self, effect: Effect) -> Sequence[Struct]:
        """Perform one effect of the core and return the events that report its result."""
        match effect:
            case RequestsPublished():
                self._trace(effect)
            case AskHolds():
                self.holds_due.set()
            case ReloadJob(job=job):
                self._log.error("another-writer", job=job)
                return [await self._reload(job)]
            case LogRefused():
                self._log.warning(
                    "transition-refused",
                    machine=effect.machine,
                    state=effect.state,
                    transition=effect.event,
                    story=effect.story,
                )
            case LogUnreadable(why=why):
                self._log.error("job-unreadable", why=why)
            case _:
                raise InvariantBroken("the jobs service performs no such effect", effect=type(effect).__name__)
        return []

    def _trace(self, published: RequestsPublished) -> None:
        """Record the root span of each placement, `submit` or `requeue`: from the time the attempt needed a place until now."""
        if self._telemetry is None:
            return
        now_us = self._clock.wall_us()
        for placement_request, submit_trace in zip(published.placement_requests, published.submit_traces, strict=True):
            if not trace_is_sampled(placement_request.traceparent):
                continue
            attributes = {
                "job": placement_request.job,
                "replica": placement_request.replica,
                "attempt": str(placement_request.attempt),
                "queue": placement_request.queue,
            }
            if submit_trace:
                attributes["submit_trace"] = submit_trace
            self._telemetry.root(
                "submit" if placement_request.attempt == 1 else "requeue",
                traceparent=placement_request.traceparent,
                start_us=min(wall_us_at(self._clock, placement_request.queued_at_ms), now_us),
                end_us=now_us,
                attributes=attributes,
            )

    async def _reload(self, job: str) -> JobReloaded:
        spec = await self._store.get(SPEC_KIND, job)
        record = await self._store.get(JOB_KIND, job)
        if spec is None or record is None:
            return JobReloaded(job=job)
        pages: list[Row] = []
        try:
            count = page_count(decode_spec(spec.value, job).replica_count)
        except InvalidInput:
            # The core names it, and leaves the job alone.
            count = 0
        for page in range(count):
            row = await self._store.get(PAGE_KIND, page_id(job, page))
            if row is not None:
                pages.append(row)
        return JobReloaded(job=job, specs=(spec,), jobs=(record,), pages=tuple(pages))


class JobsMetrics(Collector):
    """Exports the counters, and the queues' counts of all `cores` of the process, as metrics."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.cores: list[JobsCore] = []

    def collect(self) -> list[Metric]:
        counters = self.counters
        illegal = CounterMetricFamily(
            "colo_jobs_illegal_transitions", "events that a table refused", labels=("machine", "state", "event")
        )
        for key, count in sorted(counters.illegal.items()):
            illegal.add_metric(key, count)
        ignored = CounterMetricFamily(
            "colo_jobs_ignored_transitions", "late and duplicate events, by machine", labels=("machine",)
        )
        for machine, count in sorted(counters.ignored.items()):
            ignored.add_metric((machine,), count)
        ended = CounterMetricFamily("colo_jobs_jobs_ended", "jobs that reached a final state", labels=("state",))
        for state, count in sorted(counters.jobs_ended.items()):
            ended.add_metric((state,), count)
        plain: list[Metric] = [
            CounterMetricFamily(name, meaning, value=getattr(counters, field))
            for name, meaning, field in (
                ("colo_jobs_late_facts_total", "facts about an attempt that is over", "late"),
                ("colo_jobs_future_facts_total", "facts about an attempt that was never requested", "future"),
                ("colo_jobs_unknown_replica_facts_total", "facts about a replica of no known job", "unknown_replica"),
                (
                    "colo_jobs_jobs_restored_total",
                    "jobs that an emptied store had lost and the stream of facts knew",
                    "jobs_restored",
                ),
                ("colo_jobs_rows_unreadable_total", "stored jobs that could not be read", "unreadable_rows"),
                (
                    "colo_jobs_submissions_refused_full_total",
                    "submissions refused because a queue was full",
                    "queue_full",
                ),
                ("colo_jobs_jobs_submitted_total", "jobs accepted", "submitted"),
                ("colo_jobs_replica_evictions_total", "attempts that were evicted", "evictions"),
                ("colo_jobs_replica_losses_total", "attempts lost with a node or stopped by another program", "losses"),
                ("colo_jobs_replica_failures_total", "attempts that failed", "failures"),
            )
        ]
        waiting = GaugeMetricFamily("colo_jobs_waiting_replicas", "replicas that need a place", labels=("queue",))
        running = GaugeMetricFamily("colo_jobs_placed_replicas", "replicas that hold a place", labels=("queue",))
        queues = [(name, queue) for core in self.cores for name, queue in core.index.queues.items()]
        for name in sorted({name for name, _ in queues}):
            waiting.add_metric((name,), sum(queue.waiting for one, queue in queues if one == name))
            running.add_metric((name,), sum(queue.running for one, queue in queues if one == name))
        return [illegal, ignored, ended, *plain, waiting, running]


def jobs_service(
    core: JobsCore,
    *,
    bus: Bus,
    store: Store,
    clock: Clock,
    metrics: Metrics | None = None,
    telemetry: Telemetry | None = None,
    boot_id: str = "",
    seed: int | None = None,
    leases: LeaseKeeper | None = None,
    term: HeldTerm | None = None,
    shell: JobsShell | None = None,
) -> Service:
    """The whole service on the given ports; `list_holds` belongs beside it, due when that of the `shell` is.

    With `leases` it serves for one term, and `store` must name its fences. With `term` it is the service of one partition, that of
    the core's share: whoever hosts it answers the requests, and exports the JobsMetrics.
    """
    shell = shell or JobsShell(store, clock, telemetry)
    metrics = metrics or Metrics()
    share = core.share
    if share.is_whole:
        exported = JobsMetrics(core.counters)
        exported.cores.append(core)
        metrics.registry.register(exported)
    return Service(
        name="jobs",
        # The core only receives the types of HEARS and ANSWERS and the events of `perform` and `load`.
        core=cast(Core, core),
        bus=bus,
        store=store,
        clock=clock,
        subscriptions=HEARS if share.is_whole else HEARS_PART,
        answers=ANSWERS if share.is_whole else (),
        discoverable=share.is_whole,
        perform=shell.perform,
        load=shell.load,
        metrics=metrics,
        boot_id=boot_id,
        seed=seed,
        leases=leases,
        ends_with_lease=leases is not None,
        term=term,
        puts_back=True,
        asks_for_missed=True,
        unrestored=lambda: len(core.unknown),
    )
