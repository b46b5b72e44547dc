"""Two instances of overcommit publish for a node while one of them alone has lost Redis: the newer holder is believed."""

from __future__ import annotations

from msgspec import structs

from colo_common.events.fact import Fact
from colo_common.events.node import AllocatableChanged, FreshnessChanged
from colo_common.events.replayed import Replayed
from colo_common.model.freshness import Freshness
from colo_scheduler.cluster.node import Node
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.port import LedgerLoaded
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import an_allocatable


def number(mcpu: int, boot: str, fence: int, seq: int = 1) -> AllocatableChanged:
    fact = an_allocatable("n1", [(mcpu, 32 * GIB)])
    return structs.replace(fact, producer="overcommit", boot_id=boot, seq=seq, fence=fence)


def became(state: Freshness, boot: str, fence: int) -> FreshnessChanged:
    return FreshnessChanged(
        node="n1",
        freshness=state,
        previous=Freshness.FRESH,
        sample_seq=1,
        age_ms=0,
        producer="overcommit",
        boot_id=boot,
        seq=2,
        fence=fence,
    )


class Received:
    """A scheduler that hears these facts a second apart."""

    def __init__(self, *facts: Fact | Replayed) -> None:
        self.core = SchedulerCore()
        self.core.handle(LedgerLoaded(), 0)
        self.core.handle(a_node("n1", a_topology(zones_per_socket=1)), 0)
        for second, fact in enumerate(facts, start=1):
            self.core.handle(fact, second * 1_000)  # type: ignore[arg-type]
        self.core.check()

    @property
    def node(self) -> Node:
        found = self.core.cluster.find("n1")
        assert found is not None
        return found

    @property
    def mcpu(self) -> int:
        return self.node.allocatable.batch_cpu_mcpu if self.node.allocatable is not None else 0


def test_a_number_of_the_instance_that_was_replaced_changes_nothing() -> None:
    received = Received(number(4_000, "old", 5), number(2_000, "new", 8), number(4_000, "old", 5, seq=9))
    assert received.mcpu == 2_000
    assert received.core.counts["facts_outdated"] == 1


def test_the_instance_that_was_replaced_makes_no_node_lost() -> None:
    received = Received(number(2_000, "new", 8), became(Freshness.LOST, "old", 5))
    assert received.node.freshness is Freshness.FRESH
    received = Received(number(4_000, "old", 5), became(Freshness.LOST, "new", 8), number(4_000, "old", 5, seq=9))
    assert received.node.freshness is Freshness.LOST


def test_a_replay_brings_them_in_any_order() -> None:
    # The old instance was stored last; each subject is replayed by itself.
    old, new = (
        Replayed(fact=number(4_000, "old", 5), age_ms=1_000),
        Replayed(fact=number(2_000, "new", 8), age_ms=4_000),
    )
    lost = Replayed(fact=became(Freshness.LOST, "old", 5), age_ms=500)
    for facts in ((old, new, lost), (new, old, lost), (lost, old, new), (lost, new, old)):
        received = Received(*facts)
        assert (received.mcpu, received.node.freshness) == (2_000, Freshness.FRESH), facts


def test_facts_of_an_instance_that_is_alone_go_by_their_arrival_as_before() -> None:
    received = Received(number(2_000, "new", 8), number(3_000, "alone", 0))
    assert received.mcpu == 3_000
