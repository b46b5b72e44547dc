"""Facts that a stream discarded before the jobs service received them, or that came while it could not read their job: what the
ledger holds says what they were.
"""

from colo_common.events.effects import FactsMissed, Record, StoreLost, Write
from colo_common.events.requests import HoldEntry, HoldsListed, PendingReplicas
from colo_common.model.partition import WHOLE, Share
from colo_common.model.placement import ZoneShare
from colo_common.ports import Row
from colo_jobs.effects import AskHolds
from tests.support.jobs_world import JobsWorld, a_spec, a_task, stops_of


def a_hold(replica: str, attempt: int = 1, node: str = "n1") -> HoldEntry:
    return HoldEntry(
        node=node, replica=replica, attempt=attempt, zones=(ZoneShare(zone=0, cpu_mcpu=1_000, memory_bytes=1),)
    )


def test_places_and_ends_that_were_missed_come_from_the_ledger() -> None:
    world = JobsWorld()
    world.submit(a_spec(a_task(replicas=4)))
    world.run("j1/main/0")
    world.run("j1/main/1")
    world.feed(FactsMissed(stream="COLO_RUN"))
    assert AskHolds() in world.own
    # Placed while the question was under way: the list does not have it yet.
    world.run("j1/main/2")
    incomplete = HoldsListed(holds=(a_hold("j1/main/3", node="n2"),), asked_at_ms=0)
    assert stops_of(world.feed(incomplete)) == []
    assert [world.replica(f"j1/main/{index}").state for index in range(4)] == [*["Running"] * 3, "Assigned"]
    assert world.replica("j1/main/3").node == "n2"
    # A node that is ordered to stop what has ended there says again how it ended.
    complete = HoldsListed(holds=(a_hold("j1/main/1"), a_hold("j1/main/3", node="n2")), asked_at_ms=5)
    assert stops_of(world.feed(complete)) == [("n1", "j1/main/0", 1)]
    world.feed(world.ended("j1/main/0"))
    assert world.replica("j1/main/0").state == "Succeeded"
    # Once is enough.
    assert world.feed(complete) == []


def test_a_scheduler_that_tells_of_lost_facts_is_asked_what_is_held() -> None:
    world = JobsWorld()
    world.submit(a_spec(a_task(replicas=2)))
    world.run("j1/main/0")
    world.ask(PendingReplicas(compare_holds=False))
    world.ask(PendingReplicas(compare_holds=True, offset=-1))
    assert AskHolds() not in world.own
    page = world.ask(PendingReplicas(compare_holds=True))
    assert [request.replica for request in page.placement_requests] == ["j1/main/1"]
    assert world.own.count(AskHolds()) == 1
    # The stream ends with what was received here: nothing but this question says that an end is missing.
    assert stops_of(world.feed(HoldsListed(holds=(), asked_at_ms=5))) == [("n1", "j1/main/0", 1)]
    world.feed(world.ended("j1/main/0"))
    assert world.replica("j1/main/0").state == "Succeeded"


def test_an_end_that_no_node_told_is_asked_for_again_until_it_is_known() -> None:
    world = JobsWorld()
    world.submit(a_spec(a_task(replicas=2)))
    world.run("j1/main/0")
    world.run("j1/main/1")
    world.feed(FactsMissed(stream="COLO_RUN"))
    listed = HoldsListed(holds=(), asked_at_ms=world.now_ms)
    assert stops_of(world.feed(listed)) == [("n1", "j1/main/0", 1), ("n1", "j1/main/1", 1)]
    world.feed(world.ended("j1/main/1"))
    for _ in range(2):
        world.own.clear()
        asked_at_ms = world.now_ms
        world.at(asked_at_ms + 59_999)
        assert world.own == []
        world.at(asked_at_ms + 60_000)
        assert world.own == [AskHolds()]
        listed = HoldsListed(holds=(), asked_at_ms=world.now_ms)
        assert stops_of(world.feed(listed)) == [("n1", "j1/main/0", 1)]
    world.feed(world.ended("j1/main/0"))
    world.own.clear()
    world.at(world.now_ms + 120_000)
    assert world.own == []
    assert world.core.deadline_ms() == world.job().summary.ended_at_ms + world.policy.retention.ended_ms


def test_an_attempt_whose_end_was_lost_while_its_place_was_on_its_way_is_found_when_that_has_come() -> None:
    world = JobsWorld()
    world.submit(a_spec(a_task(replicas=2)))
    missed_at_ms = world.now_ms
    world.feed(FactsMissed(stream="COLO_RUN"))
    assert world.feed(HoldsListed(holds=(), asked_at_ms=world.now_ms)) == []
    # The decision and the start are delivered again after the comparison. The end was lost.
    world.run("j1/main/0")
    world.own.clear()
    world.at(missed_at_ms + 119_999)
    assert world.own == []
    world.at(missed_at_ms + 120_000)
    assert world.own == [AskHolds()]
    assert stops_of(world.feed(HoldsListed(holds=(), asked_at_ms=world.now_ms))) == [("n1", "j1/main/0", 1)]
    world.feed(world.ended("j1/main/0"))
    assert world.replica("j1/main/0").state == "Succeeded"
    # Once more is enough.
    world.own.clear()
    world.at(world.now_ms + 120_000)
    assert world.own == []
    assert world.core.deadline_ms() is None


def test_losses_that_follow_one_another_do_not_put_the_second_comparison_off() -> None:
    world = JobsWorld()
    world.submit(a_spec(a_task(replicas=2)))
    first_ms = world.now_ms
    for _ in range(3):
        world.feed(FactsMissed(stream="COLO_RUN"))
        world.feed(HoldsListed(holds=(), asked_at_ms=world.now_ms))
        world.at(world.now_ms + 50_000)
    world.run("j1/main/0")
    # That of the first loss came in its time, with nothing held; the newest one has one of its own.
    world.own.clear()
    world.at(first_ms + 219_999)
    assert world.own == []
    world.at(first_ms + 220_000)
    assert world.own == [AskHolds()]


def losses(world: JobsWorld) -> list[str]:
    return [row.id for row in world.all_rows().losses]


def test_who_takes_over_before_a_loss_is_made_good_goes_on_with_it() -> None:
    world = JobsWorld()
    world.submit(a_spec(a_task(replicas=3)))
    world.run("j1/main/0")
    world.run("j1/main/1")
    world.feed(FactsMissed(stream="COLO_RUN"))
    world.feed(FactsMissed(stream="COLO_RUN"))
    assert losses(world) == ["missed"]

    def taken_over() -> None:
        world.own.clear()
        world.restart()
        assert AskHolds() in world.own
        assert losses(world) == ["missed"]

    # Before the scheduler answered, before the node did, and before what was on its way must have come.
    taken_over()
    lacking = HoldsListed(holds=(a_hold("j1/main/1"),), asked_at_ms=world.now_ms)
    assert stops_of(world.feed(lacking)) == [("n1", "j1/main/0", 1)]
    taken_over()
    assert stops_of(world.feed(lacking)) == [("n1", "j1/main/0", 1)]
    world.feed(world.ended("j1/main/0"))
    taken_over()
    assert stops_of(world.feed(lacking)) == []
    world.run("j1/main/2")
    world.own.clear()
    world.at(world.now_ms + 120_000)
    assert world.own == [AskHolds()]
    assert losses(world) == ["missed"]
    assert stops_of(world.feed(lacking)) == [("n1", "j1/main/2", 1)]
    world.feed(world.ended("j1/main/2"))
    # The node has answered, which is looked at in its time. Then nothing is left to do, and nobody does it again.
    world.at(world.now_ms + 60_000)
    assert losses(world) == []
    assert world.core.deadline_ms() is None
    world.own.clear()
    world.restart()
    assert AskHolds() not in world.own


def test_a_loss_without_jobs_leaves_no_mark_for_longer_than_something_may_arrive() -> None:
    world = JobsWorld()
    world.feed(FactsMissed(stream="COLO_RUN"))
    world.feed(HoldsListed(holds=(), asked_at_ms=world.now_ms))
    assert losses(world) == ["missed"]
    world.at(world.now_ms + 120_000)
    assert losses(world) == []


def test_a_loss_that_was_noticed_with_another_number_of_partitions_is_made_good() -> None:
    world = JobsWorld()
    world.share = Share(partition=1, partitions=3)
    name = next(name for name in map(str, range(100)) if world.share.owns(name))
    world.restart()
    world.submit(a_spec(a_task()), job=name)
    world.run(f"{name}/main/0")
    world.feed(FactsMissed(stream="COLO_RUN"))
    assert losses(world) == [f"missed-{world.share.name}"]
    world.share = WHOLE
    world.own.clear()
    world.restart()
    assert AskHolds() in world.own
    assert len(losses(world)) == 2
    lacking = HoldsListed(holds=(), asked_at_ms=world.now_ms)
    assert stops_of(world.feed(lacking)) == [("n1", f"{name}/main/0", 1)]
    world.feed(world.ended(f"{name}/main/0"))
    world.at(world.now_ms + 120_000)
    assert losses(world) == []


def test_a_loss_is_the_business_of_its_own_partition_and_of_no_other_one() -> None:
    world = JobsWorld(share=Share(partition=1, partitions=3))
    world.feed(FactsMissed(stream="COLO_RUN"))
    world.share = Share(partition=2, partitions=3)
    world.restart()
    assert AskHolds() not in world.own[1:]
    world.at(world.now_ms + 120_000)
    assert [row.id for row in world.of_kind("jobs-store")] == [f"missed-{Share(1, 3).name}"]


def test_a_store_that_loses_its_rows_is_told_again_of_what_is_missed() -> None:
    world = JobsWorld()
    world.feed(FactsMissed(stream="COLO_RUN"))
    (row,) = world.of_kind("jobs-store")
    effects = world.core.handle(StoreLost(), world.now_ms)
    assert effects == [
        Record(writes=(Write(kind="jobs-store", id="missed", value=row.value, expect=row.version, puts_back=True),))
    ]
    world.at(world.now_ms + 120_000)
    assert losses(world) == []
    assert world.core.handle(StoreLost(), world.now_ms) == []


MISSED = "job-missed"


def rolled_back(world: JobsWorld, *jobs: str) -> dict[str, Row]:
    """An older version on the same store, which cannot read these jobs; their rows as they were."""
    rows = {job: world.rows["job", job] for job in jobs}
    for job, row in rows.items():
        value = row.value.replace(b'"schema":1', b'"schema":9')
        world.rows["job", job] = Row(id=job, value=value, version=row.version)
    world.restart()
    return rows


def rolled_forward(world: JobsWorld, rows: dict[str, Row]) -> None:
    world.rows |= {("job", job): row for job, row in rows.items()}
    world.own.clear()
    world.restart()


def marks(world: JobsWorld) -> list[str]:
    return [row.id for row in world.of_kind(MISSED)]


def test_ends_that_came_while_a_newer_version_was_rolled_back_are_asked_for_when_it_is_back() -> None:
    world = JobsWorld()
    for job in ("newer", "other"):
        world.submit(a_spec(a_task(replicas=3)), job=job)
        world.run(f"{job}/main/0")
        world.run(f"{job}/main/1")
    rows = rolled_back(world, "newer")
    assert marks(world) == ["newer"]
    # The service and the ledger hear of an end and of a place; the rows stay as they are.
    ended, placed = world.ended("newer/main/0"), world.placed("newer/main/2", node="n2")
    assert stops_of(world.feed(ended, placed)) == []
    # Once more, as after a crash: marked once.
    world.restart()
    assert marks(world) == ["newer"]
    rolled_forward(world, rows)
    assert world.replica("newer/main/0").state == "Running"
    assert AskHolds() in world.own
    holds = (a_hold("newer/main/1"), a_hold("newer/main/2", node="n2"), a_hold("other/main/1"))
    assert stops_of(world.feed(HoldsListed(holds=holds[1:2], asked_at_ms=0))) == []
    assert marks(world) == ["newer"]
    # What the ledger says of a job that could be read all the while is not doubted.
    assert stops_of(world.feed(HoldsListed(holds=holds, asked_at_ms=5))) == [("n1", "newer/main/0", 1)]
    assert world.replica("newer/main/2").state == "Assigned"
    assert marks(world) == []
    world.feed(ended)
    assert world.replica("newer/main/0").state == "Succeeded"
    # And once more when all that was on its way has come.
    world.at(world.now_ms + 120_000)
    assert world.own[-1] == AskHolds()
    world.feed(HoldsListed(holds=(*holds, a_hold("other/main/0")), asked_at_ms=world.now_ms))
    world.own.clear()
    world.restart()
    assert AskHolds() not in world.own


def test_a_mark_stays_while_its_job_cannot_be_read_and_goes_with_it() -> None:
    world = JobsWorld()
    names = [f"job-{number:03d}" for number in range(450)]
    for name in names:
        world.submit(job=name)
    rows = rolled_back(world, *names)
    assert marks(world) == names
    # One of them can be read again, one is deleted by hand.
    del world.rows["job", "job-000"]
    rolled_forward(world, {"job-449": rows["job-449"]})
    assert marks(world) == names[1:]
    world.feed(HoldsListed(holds=(), asked_at_ms=5))
    assert marks(world) == names[1:-1]


def test_a_start_that_finds_no_marks_asks_nobody() -> None:
    world = JobsWorld()
    world.submit()
    world.run()
    world.restart()
    assert AskHolds() not in world.own
