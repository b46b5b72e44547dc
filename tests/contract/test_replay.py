"""What a stream keeps is read once more: an emptied store gets its jobs back from it, an emptied ledger its holds."""

from __future__ import annotations

from msgspec import structs

from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.clock import SystemClock
from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Publish, Write
from colo_common.events.fact import Fact
from colo_common.events.job import JobStateChanged, JobSubmitted, QueueChanged
from colo_common.events.placement import NodeRelease, PlacementsDecided, PlacementsReleased
from colo_common.model.partition import WHOLE
from colo_common.ports import Outgoing
from colo_common.runtime.stamp import Stamp
from colo_jobs.effects import JobsLost
from colo_jobs.records import MARK_KIND, MARK_USED, mark_id
from colo_jobs.shell import JobsShell
from colo_scheduler.ledger.rebuild import REBUILT_FROM, FactsOfHolds
from tests.support.builders import a_placement
from tests.support.jobs_world import a_spec
from tests.support.servers import made_streams
from tests.support.waiting import LIMIT_S


def published(producer: str, *facts: Fact) -> list[Outgoing]:
    stamp = Stamp(producer, "b1", SystemClock())
    return [stamp.outgoing(Publish(fact=fact, id=f"replayed:{producer}:{number}")) for number, fact in enumerate(facts)]


async def test_an_empty_store_that_was_never_marked_finds_the_unfinished_jobs_of_the_stream(nats_url: str) -> None:
    await made_streams(nats_url)
    bus = NatsBus(nats_url, name="contract")
    bus.start()
    await bus.connected(LIMIT_S)
    name = "replayed"
    ended = JobStateChanged(
        job=f"{name}-a", queue="q", state="Completed", previous="Running", transition="J14", version=2
    )
    counts = QueueChanged(queue="q", waiting=0, running=0, capacity=1)
    # More than are fetched at once.
    many = [JobSubmitted(job=f"{name}-{number}", spec=structs.replace(a_spec(), name=name)) for number in range(600)]
    await bus.publish(
        published(
            "jobs", JobSubmitted(job=f"{name}-a", spec=structs.replace(a_spec(), name=name)), *many, counts, ended
        )
    )
    store = MemoryStore()
    _, lost = await JobsShell(store, SystemClock(), replay=bus.replay).load()
    assert isinstance(lost, JobsLost)
    assert {job.job for job in lost.jobs if job.spec.name == name} == {job.job for job in many}
    assert (lost.mark_version, await store.load(MARK_KIND)) == (0, ())
    await bus.close()


async def test_only_the_newest_facts_are_read_however_long_ago_they_were_stored(nats_url: str) -> None:
    await made_streams(nats_url)
    bus = NatsBus(nats_url, name="contract")
    bus.start()
    await bus.connected(LIMIT_S)
    names = [f"newest-{number}" for number in range(50)]
    for job in names:
        await bus.publish(published(job, JobSubmitted(job=job, spec=a_spec())))
    found: list[Fact] = []
    count = await bus.replay.facts((JobSubmitted,), found.append, newest_ms=0)
    jobs = [fact.job for fact in found if isinstance(fact, JobSubmitted)]
    assert jobs == names[-count:]
    assert 0 < count < len(names)
    del found[:]
    await bus.replay.facts((JobSubmitted, JobStateChanged), found.append, newest_ms=60_000)
    assert [fact.job for fact in found if isinstance(fact, JobSubmitted)][-len(names) :] == names
    await bus.close()


async def test_a_store_in_use_that_lacks_what_was_accepted_last_finds_it_in_the_stream(nats_url: str) -> None:
    await made_streams(nats_url)
    bus = NatsBus(nats_url, name="contract")
    bus.start()
    await bus.connected(LIMIT_S)
    accepted = JobSubmitted(job="in-use-a", spec=a_spec())
    await bus.publish(published("in-use", accepted))
    store = MemoryStore()
    await store.write([Write(kind=MARK_KIND, id=mark_id(WHOLE), value=MARK_USED, expect=0)])
    shell = JobsShell(store, SystemClock(), replay=bus.replay)
    _, lost, *_ = await shell.load()
    assert isinstance(lost, JobsLost)
    assert lost.mark_version is None
    assert "in-use-a" in {job.job for job in lost.jobs}
    # Its end is heard as well: nothing comes back that has ended, and was forgotten since.
    ended = JobStateChanged(
        job="in-use-a", queue="q", state="Completed", previous="Running", transition="J14", version=2
    )
    await bus.publish(published("in-use-end", ended))
    again = [event for event in await shell.load() if isinstance(event, JobsLost)]
    assert "in-use-a" not in {job.job for event in again for job in event.jobs}
    await bus.close()


async def test_a_ledger_without_rows_finds_what_was_decided_and_not_released(nats_url: str) -> None:
    await made_streams(nats_url)
    bus = NatsBus(nats_url, name="contract")
    bus.start()
    await bus.connected(LIMIT_S)
    places = [a_placement(f"holds/t/{number}", node=f"holds-{number % 2}") for number in range(4)]
    released = NodeRelease(node="holds-0", attempts=(("holds/t/2", 1),))
    await bus.publish(
        published(
            "scheduler",
            PlacementsDecided(placements=tuple(places[:3])),
            PlacementsReleased(nodes=(released,)),
            # A scheduler that starts publishes decisions once more: what was released meanwhile holds nothing again.
            PlacementsDecided(placements=tuple(places[2:])),
        )
    )
    facts = FactsOfHolds()
    await bus.replay.facts(REBUILT_FROM, facts.take)
    rows = {row.node: [hold.attempt for hold in row.holds] for row in facts.lost() if row.node.startswith("holds-")}
    assert rows == {"holds-0": [("holds/t/0", 1)], "holds-1": [("holds/t/1", 1), ("holds/t/3", 1)]}
    await bus.close()
