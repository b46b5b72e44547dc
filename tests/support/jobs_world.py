"""A jobs core with a store beside it: what the core says is written, remembered and checked as a real shell would."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from colo_common.events.effects import Effect, Publish, Record, Reply, RequestReceived, Wake
from colo_common.events.enforcement import NodeRecovered, PlacementRefused, ReplicaEnded, ReplicaStarted
from colo_common.events.fact import Fact
from colo_common.events.job import MidPlacementsRequested, PlacementsRequested, StopReplicas
from colo_common.events.node import FreshnessChanged
from colo_common.events.placement import PlacementsDecided
from colo_common.events.requests import CancelJob, GetJob, JobDetail, SubmitJob
from colo_common.model.freshness import Freshness
from colo_common.model.partition import WHOLE, Share
from colo_common.model.placement import Placement, ZoneShare
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.workload import JobSpec, ResourceRequest, RunSpec, TaskSpec
from colo_common.ports import Row
from colo_jobs.core import JobsCore
from colo_jobs.effects import JobReloaded, JobRowsLoaded, ReloadJob
from colo_jobs.policy import JobsPolicy
from colo_jobs.records import is_loss

GIB = 1 << 30


def a_task(name: str = "main", replicas: int = 1, **change: Any) -> TaskSpec:
    """A task that a simulated node can run."""
    fields: dict[str, Any] = {
        "request": ResourceRequest(cpu_mcpu=1000, memory_bytes=GIB),
        "run": RunSpec(work_mcpu_ms=60_000_000, grace_ms=5_000),
        **change,
    }
    return TaskSpec(name=name, replicas=replicas, **fields)


def a_spec(*tasks: TaskSpec, **change: Any) -> JobSpec:
    """A job of these tasks, of one replica when none is given."""
    return JobSpec(name="render", tasks=tasks or (a_task(),), **change)


class JobsWorld:
    """Feeds the core, keeps its rows under compare-and-set, and notes what it published and replied."""

    def __init__(self, policy: JobsPolicy | None = None, share: Share = WHOLE) -> None:
        self.policy = policy or JobsPolicy()
        self.share = share
        self.core = JobsCore(self.policy, share)
        self.rows: dict[tuple[str, str], Row] = {}
        self.now_ms = 1_000
        self.published: list[Publish] = []
        self.replies: list[Reply] = []
        self.own: list[Effect] = []
        self.ids: set[str] = set()
        self._requests = 0
        self._seq = 0

    # ------------------------------------------------------------ feeding

    def feed(self, *events: Struct, wake: bool = True) -> list[Fact]:
        """Handle events as one batch, wake the core if it is due, and return what was published."""
        begin = len(self.published)
        for event in events:
            self._take(self.core.handle(event, self.now_ms))  # type: ignore[arg-type]
        if wake:
            self.wake_if_due()
        self.core.check()
        return [publish.fact for publish in self.published[begin:]]

    def wake_if_due(self) -> None:
        """Send Wake when the deadline has come, as the shell does after a batch."""
        due_ms = self.core.deadline_ms()
        if due_ms is not None and due_ms <= self.now_ms:
            self._take(self.core.handle(Wake(), self.now_ms))
            after_ms = self.core.deadline_ms()
            assert after_ms is None or after_ms > self.now_ms

    def at(self, now_ms: int) -> list[Fact]:
        """Let time pass, waking the core at each of its deadlines; what was published meanwhile."""
        begin = len(self.published)
        while (due_ms := self.core.deadline_ms()) is not None and due_ms <= now_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.wake_if_due()
        self.now_ms = now_ms
        self.core.check()
        return [publish.fact for publish in self.published[begin:]]

    def ask(self, body: Struct, traceparent: str = "") -> Any:
        """The answer to a request."""
        self._requests += 1
        request = f"r{self._requests}"
        self.feed(RequestReceived(request=request, body=body, traceparent=traceparent))
        return next(reply.body for reply in self.replies if reply.request == request)

    def restart(self) -> list[Fact]:
        """A new core on the same rows; what it publishes first."""
        self.core = JobsCore(self.policy, self.share)
        return self.feed(self.all_rows())

    def all_rows(self) -> JobRowsLoaded:
        """The store as a starting service reads it."""
        return JobRowsLoaded(
            specs=self.of_kind("job-spec"),
            jobs=self.of_kind("job"),
            pages=self.of_kind("replica-page"),
            missed=self.of_kind("job-missed"),
            losses=tuple(row for row in self.of_kind("jobs-store") if is_loss(row.id, self.share)),
        )

    def of_kind(self, kind: str) -> tuple[Row, ...]:
        """The rows of a kind in order of id."""
        return tuple(row for (row_kind, _), row in sorted(self.rows.items()) if row_kind == kind)

    def _take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Record():
                    self._write(effect)
                case Publish():
                    self.published.append(effect)
                    self.ids.add(effect.id)
                case Reply():
                    self.replies.append(effect)
                case ReloadJob(job=job):
                    self._take(self.core.handle(self._reloaded(job), self.now_ms))
                case _:
                    self.own.append(effect)

    def _write(self, record: Record) -> None:
        assert len(record.writes) <= 500
        for write in record.writes:
            key = (write.kind, write.id)
            version = self.rows[key].version if key in self.rows else 0
            assert version == write.expect, f"{key}: the core expects version {write.expect}, the store has {version}"
            if write.value is None:
                del self.rows[key]
            else:
                self.rows[key] = Row(id=write.id, value=write.value, version=version + 1)

    def _reloaded(self, job: str) -> JobReloaded:
        pages = tuple(row for row in self.of_kind("replica-page") if row.id.startswith(f"{job}/"))
        specs = tuple(row for row in self.of_kind("job-spec") if row.id == job)
        return JobReloaded(
            job=job, specs=specs, jobs=tuple(row for row in self.of_kind("job") if row.id == job), pages=pages
        )

    # ------------------------------------------------------------ facts, valid by default

    def submit(self, spec: JobSpec | None = None, job: str = "j1", key: str = "") -> Any:
        """Submit a job; the answer."""
        return self.ask(SubmitJob(job=job, spec=spec or a_spec(), key=key))

    def cancel(self, job: str = "j1") -> Any:
        """Cancel a job; the answer."""
        return self.ask(CancelJob(job=job))

    def job(self, job: str = "j1") -> JobDetail:
        """The job as it is answered."""
        detail = self.ask(GetJob(job=job))
        assert isinstance(detail, JobDetail)
        return detail

    def state(self, job: str = "j1") -> str:
        """The job's state."""
        return self.job(job).summary.state

    def replica(self, replica: str = "j1/main/0") -> Any:
        """The replica's record."""
        found = self.core.index.find(replica)
        assert found is not None
        return found[0].replica(found[1])

    def placed(self, replica: str = "j1/main/0", node: str = "n1", attempt: int = 1) -> PlacementsDecided:
        """The scheduler placed this attempt."""
        found = self.core.index.find(replica)
        spec = found[0].spec if found else a_spec()
        placement = Placement(
            replica=replica,
            job=replica.split("/", maxsplit=1)[0],
            attempt=attempt,
            node=node,
            zones=(ZoneShare(zone=0, cpu_mcpu=1000, memory_bytes=GIB),),
            cpu_mcpu=1000,
            memory_bytes=GIB,
            qos=spec.qos,
            band=spec.band,
            run=RunSpec(),
        )
        return PlacementsDecided(placements=(placement,), **self._head())

    def started(
        self, replica: str = "j1/main/0", node: str = "n1", attempt: int = 1, *, again: bool = False
    ) -> ReplicaStarted:
        """The node runs this attempt; `again`: it says so once more."""
        return ReplicaStarted(
            node=node,
            replica=replica,
            job=replica.split("/", maxsplit=1)[0],
            attempt=attempt,
            again=again,
            **self._head(),
        )

    def ended(
        self,
        replica: str = "j1/main/0",
        node: str = "n1",
        attempt: int = 1,
        cause: EndCause = EndCause.EXITED,
        code: int = 0,
    ) -> ReplicaEnded:
        """This attempt is gone from the node."""
        return ReplicaEnded(
            node=node,
            replica=replica,
            job=replica.split("/", maxsplit=1)[0],
            attempt=attempt,
            cause=cause,
            exit_code=code,
            **self._head(),
        )

    def refused(
        self,
        replica: str = "j1/main/0",
        node: str = "n1",
        attempt: int = 1,
        reason: Reason = Reason.CGROUP_REFUSED,
        newest_over: int = 0,
    ) -> PlacementRefused:
        """The node did not start this attempt; it used it and all up to `newest_over` before."""
        return PlacementRefused(
            node=node,
            replica=replica,
            job=replica.split("/", maxsplit=1)[0],
            attempt=attempt,
            reason=reason,
            newest_over=newest_over,
            **self._head(),
        )

    def freshness(self, node: str = "n1", state: Freshness = Freshness.LOST) -> FreshnessChanged:
        """The node's facts became this fresh."""
        return FreshnessChanged(
            node=node, freshness=state, previous=Freshness.STALE, sample_seq=1, age_ms=0, **self._head()
        )

    def recovered(self, node: str = "n1", *running: tuple[str, int]) -> NodeRecovered:
        """An executor started and found these attempts."""
        return NodeRecovered(node=node, running=running, **self._head())

    def run(self, replica: str = "j1/main/0", node: str = "n1", attempt: int = 1) -> list[Fact]:
        """Placed and started."""
        return self.feed(self.placed(replica, node, attempt), self.started(replica, node, attempt))

    def _head(self) -> dict[str, Any]:
        self._seq += 1
        return {"at_ms": self.now_ms, "producer": "test", "boot_id": "b1", "seq": self._seq}


def requests_of(facts: list[Fact]) -> list[tuple[str, int]]:
    """The attempts that these messages request a place for."""
    return [
        (placement_request.replica, placement_request.attempt)
        for fact in facts
        if isinstance(fact, PlacementsRequested | MidPlacementsRequested)
        for placement_request in fact.placement_requests
    ]


def stops_of(facts: list[Fact]) -> list[tuple[str, str, int]]:
    """The attempts that these messages order to stop: node, replica, attempt."""
    return [
        (fact.node, stop.replica, stop.attempt)
        for fact in facts
        if isinstance(fact, StopReplicas)
        for stop in fact.stops
    ]
