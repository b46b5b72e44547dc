"""Nodes that left for good are forgotten, here and in the ledger; what still holds something, or may come back soon, is not."""

import pytest

from colo_common.events.enforcement import NodeRecovered
from colo_common.events.job import PlacementsRequested, ReplicasWithdrawn
from colo_common.events.node import FreshnessChanged
from colo_common.model.freshness import Freshness
from colo_common.model.invalid import InvariantBroken
from colo_common.model.node_selector import Selector
from colo_common.model.qos import QosClass
from colo_common.model.reasons import Reason
from colo_scheduler.cluster.labels import LabelColumns
from colo_scheduler.ledger.memory import MemoryLedger
from colo_scheduler.ledger.port import Hold, LedgerRows, NodeCommit
from colo_scheduler.placement.filters import judge
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.requests.request_class import class_of
from tests.support.builders import GIB, a_node, a_placement
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable, now

HOUR_MS = 3_600_000
ZONES = ((8_000, 32 * GIB), (8_000, 32 * GIB))


def a_bench(*nodes: str, ledger: MemoryLedger | None = None, forget_node_ms: int = HOUR_MS) -> Bench:
    bench = Bench(SchedulerPolicy(ledger_refresh_ms=0), ledger, forget_node_ms=forget_node_ms)
    bench.say(*(fact for name in nodes for fact in (a_node(name), an_allocatable(name, ZONES))))
    return bench


def lose(bench: Bench, *names: str, freshness: Freshness = Freshness.LOST) -> None:
    bench.say(
        *(
            FreshnessChanged(
                node=name, freshness=freshness, previous=Freshness.STALE, sample_seq=1, age_ms=1, at_ms=bench.now_ms
            )
            for name in names
        )
    )


def at(bench: Bench, now_ms: int) -> None:
    """Time passes until then; the core is woken whenever it wants to be."""
    while (due_ms := bench.core.deadline_ms()) is not None and due_ms <= now_ms:
        bench.now_ms = max(bench.now_ms, due_ms)
        bench.wake()
    bench.now_ms = now_ms


def placement_request(bench: Bench, *replicas: str) -> None:
    bench.say(PlacementsRequested(placement_requests=tuple(a_placement_request(replica) for replica in replicas)))


def end(bench: Bench, *replicas: str) -> None:
    bench.say(ReplicasWithdrawn(attempts=tuple((replica, 1) for replica in replicas), reason=Reason.CANCELLED))


def test_a_node_that_is_lost_for_long_is_forgotten_and_the_others_stay() -> None:
    bench = a_bench("n1", "n2", "n3")
    lose(bench, "n1")
    at(bench, HOUR_MS - 1)
    assert sorted(bench.core.cluster.rows) == ["n1", "n2", "n3"]
    at(bench, HOUR_MS)
    assert bench.core.cluster.rows == {"n2": 1, "n3": 2}
    assert bench.core.counts["nodes_forgotten"] == 1
    bench.core.check()


def test_a_new_node_gets_the_row_of_one_that_left_and_the_others_keep_theirs() -> None:
    bench = a_bench("n1", "n2", "n3")
    lose(bench, "n2")
    at(bench, HOUR_MS)
    bench.say(a_node("n0"))
    bench.say(an_allocatable("n0", ZONES, at_ms=bench.now_ms))
    assert bench.core.cluster.rows == {"n1": 0, "n0": 1, "n3": 2}
    bench.core.check()


def test_a_vacant_row_is_counted_by_no_reason_and_takes_no_work() -> None:
    bench = a_bench("n1", "n2", "n3")
    lose(bench, "n2")
    at(bench, HOUR_MS)
    for name in ("n1", "n3"):
        bench.say(an_allocatable(name, ZONES, at_ms=bench.now_ms))
    view = bench.core.cluster.view(bench.now_ms)
    assert (view.count, view.node_count) == (3, 2)
    for asked, counts in (
        (a_placement_request("j/t/0", mcpu=10), {}),
        (a_placement_request("j/t/1", mcpu=900_000), {Reason.BATCH_CPU_SHORT: 2}),
        (a_placement_request("j/t/2", qos=QosClass.SYSTEM), {Reason.QOS_NOT_ADMITTED: 2}),
    ):
        filtered = judge(view, class_of(asked))
        assert {each.reason: each.nodes for each in filtered.counts} == counts
        assert filtered.rows.tolist() == ([] if counts else [0, 2])
    bench.core.check()


def test_a_node_that_came_back_in_time_is_not_forgotten() -> None:
    bench = a_bench("n1")
    lose(bench, "n1")
    at(bench, HOUR_MS - 1)
    lose(bench, "n1", freshness=Freshness.FRESH)
    at(bench, 3 * HOUR_MS)
    assert bench.core.cluster.find("n1") is not None
    lose(bench, "n1")
    at(bench, 4 * HOUR_MS)
    assert bench.core.cluster.find("n1") is None


def test_what_holds_something_is_forgotten_once_it_holds_nothing_and_its_ledger_row_with_it() -> None:
    bench = a_bench("n1")
    placement_request(bench, "j/t/0")
    lose(bench, "n1")
    at(bench, 2 * HOUR_MS)
    assert bench.core.cluster.find("n1") is not None
    end(bench, "j/t/0")
    at(bench, 2 * HOUR_MS + 60_000)
    assert bench.core.cluster.find("n1") is None
    assert dict(now(bench.ledger.changes())) == {}
    assert now(bench.ledger.floor()) == 2


def test_zero_means_that_no_node_is_ever_forgotten() -> None:
    bench = a_bench("n1", forget_node_ms=0)
    lose(bench, "n1")
    assert bench.core.deadline_ms() is None


def test_a_later_node_of_the_same_name_gets_higher_revisions_at_the_first_try() -> None:
    bench = a_bench("n1")
    placement_request(bench, "j/t/0")
    end(bench, "j/t/0")
    lose(bench, "n1")
    at(bench, HOUR_MS)
    again = a_bench("n1", ledger=bench.ledger)  # type: ignore[arg-type]
    placement_request(again, "j/t/1")
    assert again.core.commits.held["j/t/1", 1].generation == 3
    assert again.core.counts["commits_refused_ledger-conflict"] == 0
    # The counter of its row is known: the next refresh reads nothing.
    changes = tuple(now(bench.ledger.changes()).items())
    assert again.core.commits.changed_nodes(changes, now(bench.ledger.floor())) == []


def test_who_forgot_a_node_while_another_scheduler_did_not_lets_that_one_find_it_out() -> None:
    ledger = MemoryLedger()
    one, two = a_bench("n1", ledger=ledger), a_bench("n1", ledger=ledger)
    placement_request(one, "j/t/0")
    two.load()
    end(one, "j/t/0")
    lose(one, "n1")
    at(one, HOUR_MS)
    assert ("j/t/0", 1) in two.core.commits.held
    changes, floor = tuple(now(ledger.changes()).items()), now(ledger.floor())
    assert two.core.commits.changed_nodes(changes, floor) == ["n1"]
    two.load()
    two.tell(now_rows(ledger, "n1"))
    assert two.core.commits.held == {}
    assert two.core.commits.changed_nodes(changes, floor) == []
    # Its own next decision there begins at the floor, and so do those on nodes that never had a row.
    two.say(a_node("n0"))
    two.say(an_allocatable("n0", ZONES))
    placement_request(two, *(f"k/t/{number}" for number in range(12)))
    assert {held.generation for held in two.core.commits.held.values()} == {3}
    assert two.core.counts["commits_refused_ledger-conflict"] == 0


def now_rows(ledger: MemoryLedger, *nodes: str) -> LedgerRows:
    return LedgerRows(rows=now(ledger.rows(nodes)))


def test_rows_of_nodes_that_nobody_remembers_are_forgotten_too() -> None:
    ledger = MemoryLedger()
    placement = a_placement("j/t/0", node="old")
    reservation = Hold(placement=placement, generation=1)
    now(ledger.commit([NodeCommit(node="old", expect=0, holds=(reservation,))]))
    now(ledger.release([("j/t/0", 1)]))
    bench = a_bench("n1", ledger=ledger)
    assert bench.core.commits.unmet == {"old": (1, 2)}
    at(bench, HOUR_MS)
    assert bench.core.commits.unmet == {}
    assert dict(now(ledger.changes())) == {}


def test_a_node_of_which_only_an_executor_ever_spoke_is_forgotten() -> None:
    bench = a_bench()
    bench.say(NodeRecovered(node="n9", running=()))
    assert bench.core.cluster.find("n9") is not None
    at(bench, HOUR_MS)
    assert bench.core.cluster.find("n9") is None


def test_a_node_that_was_lost_long_before_the_start_is_given_time_to_be_heard() -> None:
    bench = Bench(SchedulerPolicy(ledger_refresh_ms=0), forget_node_ms=HOUR_MS)
    bench.now_ms = 10 * HOUR_MS
    bench.say(a_node("n1"))
    bench.say(an_allocatable("n1", ZONES, at_ms=HOUR_MS, freshness=Freshness.LOST))
    at(bench, bench.now_ms + 59_999)
    assert bench.core.cluster.find("n1") is not None
    at(bench, bench.now_ms + 1)
    assert bench.core.cluster.find("n1") is None


def test_many_that_are_due_at_once_are_forgotten_in_steps() -> None:
    names = [f"n{number}" for number in range(250)]
    bench = a_bench(*names)
    lose(bench, *names)
    at(bench, HOUR_MS)
    assert len(bench.core.cluster.rows) == 50
    at(bench, HOUR_MS + 1)
    assert bench.core.cluster.rows == {}
    bench.say(a_node("n0"))
    bench.say(an_allocatable("n0", ZONES, at_ms=bench.now_ms))
    placement_request(bench, "j/t/0")
    assert bench.core.commits.held["j/t/0", 1].placement.node == "n0"


def test_a_node_that_comes_and_goes_leaves_no_trail_of_timers() -> None:
    bench = a_bench("n1")
    for number in range(300):
        bench.now_ms = number
        lose(bench, "n1", freshness=Freshness.LOST if number % 2 else Freshness.FRESH)
    assert len(bench.core._forgetting._heap) < 100


def test_a_node_that_holds_something_cannot_be_taken_out_of_the_rows() -> None:
    bench = a_bench("n1")
    placement_request(bench, "j/t/0")
    with pytest.raises(InvariantBroken, match="holds something"):
        bench.core.cluster.forget(bench.core.cluster.node("n1"))


def test_what_a_node_says_again_wakes_nobody() -> None:
    bench = a_bench("n1")
    before = bench.core.cluster.capacity_changes
    bench.say(a_node("n1", at_ms=5))
    assert bench.core.cluster.capacity_changes == before
    bench.say(a_node("n1", labels={"disk": "ssd"}, at_ms=6))
    assert bench.core.cluster.capacity_changes == before + 1


def test_label_values_of_nodes_that_left_are_not_kept() -> None:
    labels = LabelColumns()
    labels.write(0, {"zone": "a", "name": "stays"})
    for number in range(5_000):
        labels.write(1, {"name": f"n{number}", f"key-{number % 500}": "x"})
        labels.forget(1)
    assert sum(len(column.numbers) for column in labels._columns.values()) < 2_000
    assert labels.selected(Selector(labels={"name": "stays", "zone": "a"}), 2).tolist() == [True, False]
    labels.write(1, {"name": "stays"})
    assert labels.selected(Selector(labels={"name": "stays"}), 2).tolist() == [True, True]
