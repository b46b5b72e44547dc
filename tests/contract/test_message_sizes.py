"""What is legal fits into the messages of an ordinary NATS: lists are cut by bytes, and nothing of them is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from colo_common.events.effects import Publish, Reply, RequestReceived
from colo_common.events.job import PlacementsRequested
from colo_common.events.placement import ApplyPlacements, PlacementsDecided
from colo_common.events.requests import (
    HoldsReply,
    JobAccepted,
    ListHolds,
    PendingReplicas,
    PendingReply,
    SubmitJob,
)
from colo_common.events.wire import encode, encode_reply
from colo_common.model.job_rules import validate_spec
from colo_common.model.placement import Placement, ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.workload import JobSpec, RunSpec
from colo_scheduler.commit.held import HeldAttempt, order, publish
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.port import Hold, LedgerLoaded, LedgerRows, NodeRow
from tests.support.jobs_world import JobsWorld, a_spec, a_task
from tests.support.run_lengths import LONG, LONGEST, MESSAGE_BYTES, SHORT

ZONES: Final = tuple(ZoneShare(zone=zone, cpu_mcpu=100_000, memory_bytes=1 << 40) for zone in range(8))


def a_held(number: int, run: RunSpec, *, node: str = "n1") -> HeldAttempt:
    """A committed attempt on one of the zones."""
    placement = Placement(
        replica=f"j1/main/{number}",
        job="j1",
        attempt=1,
        node=node,
        zones=ZONES[:1],
        cpu_mcpu=100,
        memory_bytes=1 << 20,
        qos=QosClass.BE,
        band=PriorityBand.BATCH,
        run=run,
    )
    return HeldAttempt(placement, 1)


def sizes_of(published: Sequence[Publish]) -> list[int]:
    return [len(encode(each.fact)) for each in published]


# ---------------------------------------------------------------- places


@pytest.mark.parametrize(
    ("run", "messages"), [(SHORT, 1), (LONG, 13), (LONGEST, 50)], ids=["short", "120 KiB", "720 KiB as JSON"]
)
@pytest.mark.parametrize("again", ["", "recovered:n1"])
def test_places_of_long_commands_are_told_and_ordered_in_more_messages(run: RunSpec, messages: int, again: str) -> None:
    held = [a_held(number, run) for number in range(50)]
    published = order(held, 5, again) if again else publish(held, 5)
    assert max(sizes_of(published)) < MESSAGE_BYTES
    for kind in (PlacementsDecided, ApplyPlacements):
        parts = [each.fact.placements for each in published if isinstance(each.fact, kind)]
        assert len(parts) == messages
        assert sorted(p.replica for part in parts for p in part) == sorted(each.placement.replica for each in held)
    assert len({each.id for each in published}) == len(published)


# ---------------------------------------------------------------- requests for a place


def asked_for(spec: JobSpec) -> tuple[JobsWorld, list[Publish]]:
    """A jobs service that has accepted the job, and its messages that ask for places."""
    validate_spec(spec)
    world = JobsWorld()
    assert isinstance(world.ask(SubmitJob(job="j1", spec=spec)), JobAccepted)
    return world, [each for each in world.published if isinstance(each.fact, PlacementsRequested)]


LABELS: Final = {f"{number:03}{'k' * 250}": "v" * 253 for number in range(64)}
REQUESTED: Final = {
    "long commands": a_spec(a_task(replicas=300, run=LONG)),
    "the longest commands as JSON": a_spec(a_task(replicas=30, run=LONGEST)),
    "many labels": a_spec(a_task(replicas=300, run=SHORT), labels=LABELS),
    "one long task among short ones": a_spec(
        a_task("a", replicas=200, run=SHORT), a_task("b", replicas=3, run=LONGEST), a_task("c", replicas=200, run=SHORT)
    ),
}


@pytest.mark.parametrize("spec", REQUESTED.values(), ids=REQUESTED.keys())
def test_requests_for_places_fit_however_long_a_job_is(spec: JobSpec) -> None:
    world, messages = asked_for(spec)
    assert max(sizes_of(messages)) < MESSAGE_BYTES
    requests = [one.replica for each in messages for one in each.fact.placement_requests]  # type: ignore[attr-defined]
    assert len(requests) == len(set(requests)) == spec.replica_count
    # A scheduler that starts reads the same in pages.
    read: list[str] = []
    while page := next_page(world, len(read)):
        read += page
    assert sorted(read) == sorted(requests)


def next_page(world: JobsWorld, offset: int) -> list[str]:
    reply = world.ask(PendingReplicas(offset=offset, limit=1_000))
    assert isinstance(reply, PendingReply)
    assert len(encode_reply(reply)) < MESSAGE_BYTES
    return [one.replica for one in reply.placement_requests]


# ---------------------------------------------------------------- holds


def test_a_page_of_holds_fits_although_names_are_long_and_zones_many() -> None:
    node, job = "n" * 250, "j" * 63
    holds = [
        Hold(
            placement=Placement(
                replica=f"{job}/{'t' * 63}/{number}",
                job=job,
                attempt=1,
                node=node,
                zones=ZONES,
                cpu_mcpu=800_000,
                memory_bytes=8 << 40,
                qos=QosClass.BE,
                band=PriorityBand.BATCH,
                run=SHORT,
                queue="q" * 63,
                traceparent=f"00-{'a' * 32}-{'b' * 16}-01",
            ),
            generation=1,
        )
        for number in range(1_500)
    ]
    core = SchedulerCore()
    core.handle(LedgerRows(rows=(NodeRow(node=node, revision=1, changes=1, holds=tuple(holds)),)), 0)
    core.handle(LedgerLoaded(), 0)
    read: list[str] = []
    while len(read) < len(holds):
        asked = RequestReceived(request="r1", body=ListHolds(offset=len(read), limit=1_000))
        (reply,) = core.handle(asked, 0)
        assert isinstance(reply, Reply)
        assert isinstance(reply.body, HoldsReply)
        assert len(encode_reply(reply.body)) < MESSAGE_BYTES
        assert reply.body.total == len(holds)
        assert reply.body.holds
        read += [each.replica for each in reply.body.holds]
    assert sorted(read) == sorted(each.placement.replica for each in holds)
