"""A scheduler core with a ledger and a store in memory: reservations told by the words of a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from colo_common.events.effects import Conflict, Effect, Publish, Record, Reply, RequestReceived
from colo_common.events.job import PlacementRequest, PlacementsRequested
from colo_common.events.requests import (
    CreateReservation,
    DeleteReservation,
    GetReservation,
    PlanJob,
    Refusal,
    ReservationDetail,
)
from colo_common.model.constraints import Constraints
from colo_common.model.reservation import (
    DEFAULT_TTL_MS,
    AllocatePolicy,
    ControllerTerm,
    LabelRule,
    ObjectTerm,
    OwnerTerm,
    ReservationSpec,
)
from colo_common.model.workload import JobSpec, ResourceRequest, TaskSpec
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.port import LedgerLoaded, LedgerRows
from colo_scheduler.reservations.rows import (
    KIND,
    AskJobs,
    JobsOver,
    KeptReservation,
    LoadReservations,
    ReservationsLoaded,
    decode_row,
)
from tests.support.builders import GIB
from tests.support.scheduler_explained import delivered, shares
from tests.support.scheduler_story import COMMAND, Bench, Story, a_placement_request, now
from tests.support.scripts import Args

WAKES_MAX = 200


class ReservingBench(Bench):
    """A bench with a store for reservations. A turn that writes rows is followed by the next one a millisecond later."""

    def __init__(self, rows: dict[str, tuple[int, bytes]] | None = None, **more: Any) -> None:
        self.rows = {} if rows is None else rows
        self.asked_jobs: tuple[str, ...] = ()
        super().__init__(**more)

    def restart(self) -> list[Effect]:
        """Another process begins where this one was killed."""
        self.core = SchedulerCore()
        return [*self.load(), *self.wake()]

    def load(self) -> list[Effect]:
        """Read the whole ledger and the rows."""
        nodes = list(now(self.ledger.changes()))
        rows = LedgerRows(rows=now(self.ledger.rows(nodes)))
        kept = tuple(
            KeptReservation(reservation=decode_row(value), version=version)
            for _, (version, value) in sorted(self.rows.items())
        )
        effects = self._settle(self.core.handle(rows, self.now_ms))
        effects += self._settle(self.core.handle(ReservationsLoaded(rows=kept), self.now_ms))
        return [*effects, *self.tell(LedgerLoaded())]

    def wake(self) -> list[Effect]:
        """Wake the core as long as it is due within this moment."""
        effects: list[Effect] = []
        for _ in range(WAKES_MAX):
            due = self.core.deadline_ms()
            if due is None or due > self.now_ms + 1:
                return effects
            self.now_ms = max(self.now_ms, due)
            effects += super().wake()
        raise AssertionError("the core wants to be woken for ever")

    def ask(self, body: Struct) -> Any:
        """The answer to a question, and the Wakes after it."""
        (reply,) = [each for each in self.say(RequestReceived(request="1", body=body)) if isinstance(each, Reply)]
        return reply.body

    def find(self, name: str) -> ReservationDetail:
        """A reservation."""
        detail = self.ask(GetReservation(name=name))
        assert isinstance(detail, ReservationDetail), detail
        return detail

    def _settle(self, effects: list[Effect]) -> list[Effect]:
        """Rows first, as in the service: what is decided with a row falls with it, so nothing else may come beside them."""
        records = [each for each in effects if isinstance(each, Record)]
        if not records:
            self.asked_jobs = next((each.jobs for each in effects if isinstance(each, AskJobs)), self.asked_jobs)
            return super()._settle([each for each in effects if not isinstance(each, AskJobs)])
        assert all(isinstance(each, (Record, Publish, Reply)) for each in effects), effects
        out: list[Effect] = []
        is_written = True
        for each in effects:
            if isinstance(each, Record):
                conflict = self._write(each)
                is_written = conflict is None
                out += self._settle(self.core.handle(conflict, self.now_ms)) if conflict else []
            elif is_written:
                out.append(each)
        return out

    def perform(self, effect: Effect) -> Struct | None:
        """Do one effect of the scheduler's own on ledger and rows."""
        if not isinstance(effect, LoadReservations):
            return super().perform(effect)
        found = {name: self.rows.get(name) for name in effect.names}
        return ReservationsLoaded(
            rows=tuple(
                KeptReservation(reservation=decode_row(row[1]), version=row[0]) for row in found.values() if row
            ),
            missing=tuple(name for name, row in found.items() if row is None),
        )

    def _write(self, record: Record) -> Conflict | None:
        for write in record.writes:
            assert write.kind == KIND
            version = self.rows.get(write.id, (0, b""))[0]
            if version != write.expect:
                return Conflict(kind=write.kind, id=write.id, expected=write.expect, found=version)
            if write.value is None:
                del self.rows[write.id]
            else:
                self.rows[write.id] = (version + 1, write.value)
        return None


def a_reservation(
    name: str = "r1", *, mcpu: int = 4000, gib: int = 8, job: str = "web", **more: Any
) -> ReservationSpec:
    """For a job, of one use unless said otherwise."""
    fields: dict[str, Any] = {"owners": (OwnerTerm(controller=ControllerTerm(name=job)),), **more}
    return ReservationSpec(name=name, request=ResourceRequest(cpu_mcpu=mcpu, memory_bytes=gib * GIB), **fields)


def a_claim(
    replica: str = "web/main/0", *, reservation: str = "", labels: Sequence[tuple[str, str]] = (), **more: Any
) -> PlacementRequest:
    """A want that may own a reservation."""
    placement_request = a_placement_request(replica, **more)
    constraints = structs.replace(placement_request.constraints, reservation=reservation)
    return structs.replace(placement_request, constraints=constraints, labels=tuple(labels))


class ReserveStory(Story):
    """The words of a scheduler's conversation file, and those about reservations."""

    def __init__(self) -> None:
        super().__init__()
        self.bench: ReservingBench = ReservingBench()

    def do_start(self, args: Args) -> str:
        """start: a scheduler process begins and reads ledger and rows; an earlier one is gone."""
        args.only()
        return delivered(self.bench.restart())

    def do_reserve(self, args: Args) -> str:
        """reserve NAME cpu=4000 gib=8 job= replica= label=k:v once=1 policy=default ttl=86400000 order=0 over=0: hold a place.

        over=1: over a running owner; over=2: over several."""
        args.only("cpu", "gib", "job", "replica", "label", "once", "policy", "ttl", "order", "over")
        owners: list[OwnerTerm] = []
        if job := args.text("job", ""):
            owners.append(OwnerTerm(controller=ControllerTerm(name=job)))
        if replica := args.text("replica", ""):
            owners.append(OwnerTerm(object=ObjectTerm(name=replica)))
        if label := args.text("label", ""):
            key, _, value = label.partition(":")
            owners.append(OwnerTerm(labels=(LabelRule(key=key, values=(value,)),)))
        spec = ReservationSpec(
            name=args.word(0),
            request=ResourceRequest(cpu_mcpu=args.number("cpu", 4000), memory_bytes=args.number("gib", 8) * GIB),
            owners=tuple(owners),
            allocate_once=args.number("once", 1) == 1,
            policy=AllocatePolicy(args.text("policy", "default")),
            ttl_ms=args.number("ttl", DEFAULT_TTL_MS),
            order=args.number("order", 0),
            pre_allocates=args.number("over", 0) > 0,
            pre_allocates_several=args.number("over", 0) == 2,
        )
        return self._asked(CreateReservation(spec=spec))

    def do_unreserve(self, args: Args) -> str:
        """unreserve NAME."""
        return self._asked(DeleteReservation(name=args.word(0)))

    def do_reservation(self, args: Args) -> str:
        """reservation NAME: what is known of it."""
        detail = self.bench.ask(GetReservation(name=args.word(0)))
        if isinstance(detail, Refusal):
            return f"refused: {detail}"
        assert isinstance(detail, ReservationDetail)
        reason = f" ({detail.reason})" if detail.reason else ""
        lines = [f"{detail.phase}{reason}" + (f" on {detail.node}" if detail.node else "")]
        lines += [f"  left {shares(detail.left.zones)}"] if detail.left.zones else []
        lines += [f"  used by {use.replica}#{use.attempt}" for use in detail.owners]
        lines += [f"  {count.nodes} {count.reason.value}" for count in detail.counts]
        return "\n".join(lines)

    def do_claim(self, args: Args) -> str:
        """claim REPLICA... cpu=1000 gib=1 attempt=1 reservation= label=k:v: want places that may be reserved."""
        args.only("cpu", "gib", "attempt", "reservation", "label")
        key, _, value = args.text("label", "").partition(":")
        placement_requests = [
            a_claim(
                replica,
                reservation=args.text("reservation", ""),
                labels=((key, value),) if key else (),
                attempt=args.number("attempt", 1),
                mcpu=args.number("cpu", 1000),
                memory_bytes=args.number("gib", 1) * GIB,
                queued_at_ms=self.bench.now_ms,
            )
            for replica in args.words
        ]
        return delivered(self.bench.say(PlacementsRequested(placement_requests=tuple(placement_requests))))

    def do_plan(self, args: Args) -> str:
        """plan JOB replicas=1 cpu=1000 gib=1 reservation=: where it would go."""
        args.only("replicas", "cpu", "gib", "reservation")
        task = TaskSpec(
            name="main",
            replicas=args.number("replicas", 1),
            request=ResourceRequest(cpu_mcpu=args.number("cpu", 1000), memory_bytes=args.number("gib", 1) * GIB),
            run=COMMAND,
            constraints=Constraints(reservation=args.text("reservation", "")),
        )
        answer = self.bench.ask(PlanJob(spec=JobSpec(name=args.word(0), tasks=(task,))))
        lines = [
            f"{place.replica} on {place.node} {shares(place.zones)}"
            + (f" out of {place.reservation}" if place.reservation else "")
            for place in answer.places
        ]
        lines += [f"{count.nodes} {count.reason.value}" for task in answer.tasks for count in task.counts]
        return "\n".join(["fits" if answer.fits else "does not fit", *lines])

    def do_jobs_over(self, args: Args) -> str:
        """jobs-over JOB...: the jobs service says that these have ended."""
        return delivered(self.bench.say(JobsOver(jobs=tuple(args.words))))

    def _asked(self, body: Struct) -> str:
        effects = self.bench.say(RequestReceived(request="1", body=body))
        refusals = [each.body for each in effects if isinstance(each, Reply) and isinstance(each.body, Refusal)]
        others = delivered([each for each in effects if not isinstance(each, Reply)])
        return "\n".join([*(f"refused: {refusal}" for refusal in refusals), others]).strip()
