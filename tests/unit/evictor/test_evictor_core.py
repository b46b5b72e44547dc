"""Who must leave, when, and when not."""

import msgspec
from msgspec import structs

from colo_common.events.effects import BusReachable, Conflict, Publish, Record, Wake
from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.eviction import EvictionFinished, EvictionRequested, EvictReplica
from colo_common.events.node import FreshnessChanged, NodeUsageSampled
from colo_common.events.placement import NodeRelease, PlacementsReleased
from colo_common.events.requests import HoldEntry, HoldsListed
from colo_common.model.freshness import Freshness
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand
from colo_common.model.reasons import EndCause, Reason
from colo_evictor.core import Event, EvictorCore
from colo_evictor.policy import EvictorPolicy
from colo_evictor.stored import EvictorRowReloaded, EvictorRowsLoaded, ReloadEvictorRow, StoredNode
from colo_evictor.watched import EvictorRow
from tests.support.builders import a_batch_workload, a_node, a_placement, a_sample, decided

POLICY = EvictorPolicy()
LOW = a_batch_workload("low/main/0", mcpu=2000, gib=4)
HIGH = a_batch_workload("high/main/0", mcpu=2000, gib=8)


def full(seq: int, *, gib: int = 60, workloads: tuple = (LOW, HIGH)) -> NodeUsageSampled:  # type: ignore[type-arg]
    return a_sample(seq=seq, zones=((4000, gib), (4000, gib)), workloads=workloads)


def a_core(policy: EvictorPolicy = POLICY) -> EvictorCore:
    core = EvictorCore(policy)
    core.handle(a_node(), 0)
    core.handle(decided(a_placement("low/main/0"), a_placement("high/main/0", priority=5)), 0)
    return core


def run(core: EvictorCore, event: Event, now_ms: int) -> list[object]:
    effects = core.handle(event, now_ms)
    core.check()
    return [effect.fact if isinstance(effect, Publish) else type(effect) for effect in effects]


def test_nobody_leaves_before_the_level_was_held() -> None:
    core = a_core()
    for second in range(3):
        assert run(core, full(second), second * 1000) == []
    published = run(core, full(3), 3000)
    assert [type(fact) if not isinstance(fact, type) else fact for fact in published] == [
        Record,
        EvictionRequested,
        EvictReplica,
    ]
    requested = published[1]
    assert isinstance(requested, EvictionRequested)
    assert (requested.replica, requested.reason, requested.value_pct, requested.held_ms) == (
        "low/main/0",
        Reason.MEMORY_WATERMARK,
        93,
        3000,
    )
    assert [rank.replica for rank in requested.ranking] == ["low/main/0", "high/main/0"]


def test_a_dip_under_the_lower_mark_ends_the_hold() -> None:
    core = a_core()
    run(core, full(0), 0)
    run(core, full(1, gib=50), 1000)
    assert run(core, full(2), 2000) == []
    assert run(core, full(3), 4000) == []
    assert run(core, full(4), 5000) != []


def test_a_dip_between_the_marks_does_not_end_the_hold() -> None:
    core = a_core()
    run(core, full(0), 0)
    run(core, full(1, gib=58), 1000)
    assert run(core, full(2), 3000) != []


def test_a_gap_between_samples_starts_the_hold_again() -> None:
    core = a_core()
    run(core, full(0), 0)
    assert run(core, full(1), 20_000) == []


def test_one_victim_at_a_time_and_credit_until_it_has_ended() -> None:
    core = a_core()
    for second in range(4):
        run(core, full(second), second * 1000)
    for second in range(4, 12):
        assert run(core, full(second), second * 1000) == []
    ended = ReplicaEnded(node="n1", replica="low/main/0", job="low", attempt=1, cause=EndCause.EVICTED, exit_code=143)
    published = run(core, ended, 12_000)
    assert isinstance(published[1], EvictionFinished)
    assert published[1].took_ms == 9000
    assert run(core, ended, 12_001) == []


def test_stale_facts_end_every_hold() -> None:
    core = a_core()
    run(core, full(0), 0)
    stale = FreshnessChanged(
        node="n1", freshness=Freshness.STALE, previous=Freshness.FRESH, sample_seq=0, age_ms=10_000
    )
    run(core, stale, 1000)
    assert run(core, full(1), 3000) == []


def test_a_victim_that_does_not_end_is_no_longer_credited_after_a_while() -> None:
    core = a_core()
    for second in range(4):
        run(core, full(second), second * 1000)
    due = core.deadline_ms()
    assert due == 3000 + 10_000 + 30_000
    published = run(core, Wake(), due)
    assert isinstance(published[1], EvictionFinished)
    assert published[1].cause is EndCause.LOST
    assert core.deadline_ms() is None


def test_while_the_bus_is_away_a_victim_is_not_overdue_and_its_end_counts_afterwards() -> None:
    core = a_core()
    for second in range(4):
        run(core, full(second), second * 1000)
    run(core, BusReachable(is_reachable=False), 5_000)
    assert core.deadline_ms() is None
    assert run(core, Wake(), 900_000) == []
    run(core, BusReachable(is_reachable=True), 905_000)
    assert core.deadline_ms() == 905_000 + 3_000 + 10_000 + 30_000 - 5_000
    ended = ReplicaEnded(node="n1", replica="low/main/0", job="low", attempt=1, cause=EndCause.EVICTED, exit_code=143)
    published = run(core, ended, 906_000)
    assert isinstance(published[1], EvictionFinished)
    assert published[1].cause is EndCause.EVICTED


def test_the_cluster_budget_stops_evictions() -> None:
    core = a_core(EvictorPolicy(cluster_per_minute=1))
    core.handle(a_node("n2"), 0)
    for second in range(4):
        run(core, full(second), second * 1000)
    other = [
        run(core, a_sample("n2", seq=s, zones=((1, 60), (1, 60)), workloads=(LOW,)), 4000 + s * 1000) for s in range(6)
    ]
    assert other == [[]] * 6
    assert core.budget.refused > 0


def test_starved_batch_work_leaves_a_busy_node_only() -> None:
    starved = a_batch_workload("low/main/0", mcpu=100)
    busy = EvictorCore(POLICY)
    busy.handle(a_node(), 0)
    busy.handle(decided(a_placement("low/main/0", mcpu=4000)), 0)
    idle = EvictorCore(POLICY)
    idle.handle(a_node(), 0)
    idle.handle(decided(a_placement("low/main/0", mcpu=4000)), 0)
    published = []
    for second in range(0, 61, 5):
        published += run(
            busy, a_sample(seq=second, zones=((13_000, 8), (13_000, 8)), workloads=(starved,)), second * 1000
        )
        assert (
            run(idle, a_sample(seq=second, zones=((3_000, 8), (3_000, 8)), workloads=(starved,)), second * 1000) == []
        )
    requested = [fact for fact in published if isinstance(fact, EvictionRequested)]
    assert [(fact.reason, fact.value_pct) for fact in requested] == [(Reason.CPU_SATISFACTION, 2)]


def test_online_work_is_never_a_victim() -> None:
    online = a_sample().workloads
    core = a_core()
    for second in range(10):
        assert run(core, full(second, workloads=online), second * 1000) == []


def test_online_work_is_no_victim_where_an_older_scheduler_lists_its_hold_without_a_band() -> None:
    web = structs.replace(HIGH, replica="web/main/0", workload="web/main/0", band=PriorityBand.PROD)
    listed = HoldEntry(
        node="n1", replica="web/main/0", attempt=1, zones=(ZoneShare(zone=0, cpu_mcpu=1, memory_bytes=1),)
    )
    core = EvictorCore(POLICY)
    core.handle(a_node(), 0)
    core.handle(HoldsListed(holds=(listed,), asked_at_ms=0), 0)
    for second in range(3):
        run(core, full(second, workloads=(web, LOW)), second * 1000)
    _, requested, _ = run(core, full(3, workloads=(web, LOW)), 3000)
    assert isinstance(requested, EvictionRequested)
    assert [rank.replica for rank in requested.ranking] == ["low/main/0"]


def test_a_restart_remembers_victims_and_cool_down() -> None:
    core = a_core()
    for second in range(3):
        run(core, full(second), second * 1000)
    effects = core.handle(full(3), 3000)
    row = next(effect for effect in effects if isinstance(effect, Record)).writes[0]
    assert row.value is not None
    stored = StoredNode(node=row.id, version=1, row=msgspec.json.decode(row.value, type=EvictorRow))
    again = EvictorCore(POLICY)
    again.handle(EvictorRowsLoaded(rows=(stored,)), 3500)
    again.handle(a_node(), 3500)
    assert again.nodes["n1"].terminating.keys() == {"low/main/0#1"}
    # The clock may have been set meanwhile: the cool-down is whole again.
    assert again.nodes["n1"].cool_until_ms == 7500
    for second in range(4, 10):
        assert run(again, full(second), second * 1000) == []


def restarted(*rows: StoredNode) -> EvictorCore:
    core = EvictorCore(EvictorPolicy(cluster_per_minute=1), needs_holds=True)
    core.handle(EvictorRowsLoaded(rows=rows), 0)
    core.handle(a_node(), 0)
    return core


def test_nobody_leaves_after_a_restart_before_it_is_known_what_is_held_and_then_the_right_one() -> None:
    core = restarted()
    # By use alone "high" would leave, because nobody knows priorities yet.
    for second in range(5):
        assert run(core, full(second), second * 1000) == []
    assert core.problem() == "nothing is evicted before the scheduler has listed what is held"
    holds = (
        HoldEntry.of(a_placement("low/main/0")),
        HoldEntry.of(a_placement("high/main/0", priority=5)),
        HoldEntry.of(a_placement("reservation:r/hold/0"), is_reservation=True),
    )
    assert run(core, HoldsListed(holds=holds, asked_at_ms=5000), 5000) == []
    assert core.problem() == ""
    _, requested, _ = run(core, full(5), 5000)
    assert isinstance(requested, EvictionRequested)
    assert [(rank.replica, rank.priority) for rank in requested.ranking] == [("low/main/0", 0), ("high/main/0", 5)]
    assert list(core.nodes["n1"].placed.holds) == ["low/main/0#1", "high/main/0#1"], "a reservation is no replica"


def test_a_list_of_holds_takes_and_drops_what_events_missed() -> None:
    core = a_core()
    old = HoldsListed(holds=(HoldEntry.of(a_placement("low/main/0")),), asked_at_ms=30_000)
    core.handle(old, 30_000)
    assert len(core.nodes["n1"].placed) == 2, "the scheduler may not have known so young a hold"
    core.handle(structs.replace(old, asked_at_ms=90_000), 90_000)
    assert list(core.nodes["n1"].placed.holds) == ["low/main/0#1"]
    core.handle(PlacementsReleased(nodes=(NodeRelease(node="n1", attempts=(("low/main/0", 1),)),)), 90_001)
    core.handle(structs.replace(old, asked_at_ms=89_999), 90_002)
    assert len(core.nodes["n1"].placed) == 0, "what was released after the question does not come back"


def test_a_restart_remembers_the_budget_of_the_cluster() -> None:
    core = restarted(StoredNode(node="n2", version=1, row=EvictorRow(evicted_ms=(0,))))
    core.handle(HoldsListed(holds=(), asked_at_ms=1), 1)
    for second in range(60):
        found = run(core, full(second), second * 1000)
        assert found == [], second
    assert core.budget.refused > 0
    assert run(core, full(60), 60_000) != []


def test_a_conflict_takes_the_row_of_the_other_writer_and_never_its_version_alone() -> None:
    core, other = a_core(), a_core()
    for second in range(4):
        written = run(other, full(second), second * 1000)
    assert EvictReplica in map(type, written)
    assert core.handle(Conflict(kind="evictor-node", id="n1", expected=0, found=1), 0) == [ReloadEvictorRow(node="n1")]
    stored = StoredNode(node="n1", version=1, row=other.nodes["n1"].row())
    assert core.handle(EvictorRowReloaded(node="n1", stored=stored), 0) == []
    # The other's victim is on its way out here too: nobody else is ordered to leave, and its end is finished under its eviction.
    for second in range(4):
        assert run(core, full(second), second * 1000) == []
    ended = ReplicaEnded(node="n1", replica="low/main/0", job="low", attempt=1, cause=EndCause.EVICTED, exit_code=None)
    record, finished = core.handle(ended, 5_000)
    assert isinstance(record, Record)
    assert [write.expect for write in record.writes] == [1]
    assert isinstance(finished, Publish)
    assert finished.id == f"evictor:finished:{stored.row.terminating[0].eviction}"
    assert core.conflicts == 1
