"""Two evictors that share the nodes: the budget is the cluster's, and victims come with the node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import Struct
from msgspec.structs import replace

from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Conflict, Publish, Record, Wake
from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.eviction import EvictionFinished, EvictionRequested
from colo_common.events.node import NodeUsageSampled
from colo_common.events.registry import event_of
from colo_common.events.undecoded import Undecoded
from colo_common.events.wire import encode
from colo_common.model.partition import PartitionsHeld, partition_of
from colo_common.model.reasons import EndCause
from colo_common.ports import StoreConflict
from colo_common.runtime.sources import sources_of
from colo_evictor.core import Event, EvictorCore
from colo_evictor.policy import EvictorPolicy
from colo_evictor.shell import HEARS_SHARED, read_again
from colo_evictor.stored import BudgetLoaded, BudgetRow, EvictorRowsLoaded
from tests.support.builders import a_batch_workload, a_node, a_placement, a_sample, decided

NODES = {partition_of(name, 2): name for name in ("n1", "n2", "n3", "n4", "n5", "n6")}
VICTIM = a_batch_workload("low/main/0", mcpu=2000, gib=4)


class Instance:
    """An evictor on a store that others write to as well. `late`: its records reach the store when `write` is called."""

    def __init__(
        self, store: MemoryStore, *partitions: int, per_minute: int = 1, known: Sequence[str] = tuple(NODES.values())
    ) -> None:
        self._store = store
        self.core = EvictorCore(EvictorPolicy(cluster_per_minute=per_minute), partitions=2)
        self.published: list[Struct] = []
        self._waiting: list[Struct] = []
        for name in known:
            self.tell(a_node(name), 0)
            self.tell(decided(replace(a_placement(f"{name}/main/0"), node=name)), 0)
        self.holds(*partitions)

    def holds(self, *partitions: int, now_ms: int = 0) -> None:
        self.tell(PartitionsHeld(fences=tuple((one, 1) for one in partitions)), now_ms)
        self.write(now_ms)

    def full(self, node: str, now_ms: int) -> None:
        """A sample of a node whose memory is full."""
        workload = replace(VICTIM, replica=f"{node}/main/0")
        self.tell(
            a_sample(node, seq=1 + now_ms // 1_000, zones=((4000, 60), (4000, 60)), workloads=(workload,)), now_ms
        )

    def tell(self, event: Event, now_ms: int) -> None:
        self._waiting += self.core.handle(event, now_ms)

    def write(self, now_ms: int) -> None:
        """Record and publish as the shell does: what belongs to a refused record is dropped, and the core hears of it."""
        while self._waiting:
            effects, self._waiting = self._waiting, []
            asyncio.run(self._carry_out(effects, now_ms))
            self.core.check()

    async def _carry_out(self, effects: Sequence[Struct], now_ms: int) -> None:
        is_refused = False
        for effect in effects:
            if isinstance(effect, Record):
                is_refused = False
                try:
                    await self._store.write(effect.writes)
                except StoreConflict as error:
                    is_refused = True
                    self.tell(Conflict(kind=error.kind, id=error.id, expected=0, found=0), now_ms)
            elif is_refused:
                continue
            elif isinstance(effect, Publish):
                self.published.append(effect.fact)
            else:
                for event in await read_again(self._store, effect):
                    self.tell(event, now_ms)  # type: ignore[arg-type]

    def victims(self) -> list[str]:
        return [fact.node for fact in self.published if isinstance(fact, EvictionRequested)]


def pressed(instances: Sequence[Instance], until_s: int) -> None:
    """Every node's memory is full, second by second; all decide before the store hears of it."""
    for second in range(until_s + 1):
        for instance in instances:
            for name in NODES.values():
                instance.full(name, second * 1_000)
        for instance in instances:
            instance.write(second * 1_000)


def test_the_gate_that_is_closed_is_named() -> None:
    core = EvictorCore(EvictorPolicy(), partitions=2)
    assert core.problem() == "", "without a share there is nothing to evict"
    core.handle(PartitionsHeld(fences=((0, 1),)), 0)
    assert core.problem() == "nothing is evicted on nodes that came here before their victims and cool-downs are read"
    core.handle(EvictorRowsLoaded(rows=(), partitions=(0,)), 0)
    assert core.problem() == "nothing is evicted before the budget of the cluster is read"
    core.handle(BudgetLoaded(version=0, row=BudgetRow()), 0)
    assert core.problem() == ""


def test_each_evicts_on_its_own_nodes_alone() -> None:
    store = MemoryStore()
    two = [Instance(store, one, per_minute=2) for one in (0, 1)]
    pressed(two, 10)
    assert [instance.victims() for instance in two] == [[NODES[0]], [NODES[1]]]


def test_two_that_decide_at_once_never_spend_the_same_part_of_the_budget() -> None:
    store = MemoryStore()
    two = [Instance(store, one) for one in (0, 1)]
    pressed(two, 30)
    assert [instance.victims() for instance in two] == [[NODES[0]], []]
    assert two[1].core.conflicts == 1
    # The refused one is as it was: nobody is on its way there.
    assert not two[1].core.nodes[NODES[1]].terminating
    assert len(two[1].core.budget) == 1


@pytest.mark.parametrize("ahead_ms", [3_600_000, -3_600_000], ids=["ahead", "behind"])
def test_the_budget_is_the_clusters_whatever_the_wall_clocks_of_its_instances(ahead_ms: int) -> None:
    store = MemoryStore()
    first, second = Instance(store, 0), Instance(store, 1)
    for at_ms in range(4_000_000, 4_030_000, 1_000):
        first.full(NODES[0], at_ms)
        first.write(at_ms)
        second.full(NODES[1], at_ms + ahead_ms)
        second.write(at_ms + ahead_ms)
    assert first.victims() == [NODES[0]]
    assert second.victims() == []
    for at_ms in range(4_030_000, 4_100_000, 1_000):
        second.full(NODES[1], at_ms + ahead_ms)
        second.write(at_ms + ahead_ms)
    assert second.victims() == [NODES[1]], "when the minute is over"


def test_one_instance_alone_is_bound_by_the_budget_over_all_its_partitions() -> None:
    one = Instance(MemoryStore(), 0, 1)
    pressed([one], 30)
    assert len(one.victims()) == 1


def test_a_victim_comes_with_its_node_and_is_finished_by_whoever_has_it_then() -> None:
    store = MemoryStore()
    first, second = Instance(store, 0), Instance(store, 1)
    node = NODES[0]
    pressed([first], 5)
    assert first.victims() == [node]
    # It ends while its evictor is dead and nobody acts for the node.
    ended = ReplicaEnded(
        node=node, replica=f"{node}/main/0", job=node, attempt=1, cause=EndCause.EVICTED, exit_code=143
    )
    second.tell(ended, 6_000)
    second.write(6_000)
    assert second.published == []
    second.holds(0, 1)
    (finished,) = second.published
    assert isinstance(finished, EvictionFinished)
    assert (finished.node, finished.cause) == (node, EndCause.EVICTED)
    # The first one, which knows nothing of it, is refused when it writes.
    first.tell(ended, 7_000)
    first.write(7_000)
    assert [type(fact) for fact in first.published].count(EvictionFinished) == 0
    assert first.core.conflicts == 1


def test_a_victim_that_ended_while_no_evictor_lived_is_finished_by_its_end() -> None:
    store = MemoryStore()
    node = NODES[0]
    before = Instance(store, 0)
    pressed([before], 5)
    (victim,) = before.core.nodes[node].terminating.values()
    # The one that starts reads what has ended in the last minutes, before it knows the node and has its victims.
    (ends,) = [source for source in sources_of("evictor", HEARS_SHARED) if source.since_s]
    assert ends.subject == event_of(ReplicaEnded).subject.wildcard()
    assert ends.since_s * 1_000 >= victim.due_ms - victim.requested_at_ms
    assert ends.since_most > 0
    after = Instance(store, known=())
    after.tell(
        ReplicaEnded(
            node=node, replica=victim.replica, job=node, attempt=1, cause=EndCause.EVICTED, exit_code=143, at_ms=7_000
        ),
        30_000,
    )
    after.holds(0, 1, now_ms=30_001)
    for at_ms in (60_000, 120_000):
        after.tell(Wake(), at_ms)
        after.write(at_ms)
    (finished,) = [fact for fact in after.published if isinstance(fact, EvictionFinished)]
    assert (finished.node, finished.cause) == (node, EndCause.EVICTED)
    assert after.core.nodes[node].terminating == {}


def test_the_hold_of_a_node_that_comes_begins_with_the_last_sample_before_it_came() -> None:
    store = MemoryStore()
    second = Instance(store, 1)
    node = NODES[0]
    for at_ms in range(0, 6_000, 1_000):
        workload = replace(VICTIM, replica=f"{node}/main/0")
        sample = a_sample(node, seq=1 + at_ms // 1_000, zones=((4000, 60), (4000, 60)), workloads=(workload,))
        second.tell(Undecoded.of(event_of(NodeUsageSampled).subject.of(node=node), encode(sample)), at_ms)
        second.write(at_ms)
    assert second.core.nodes[node].seen == {}
    second.tell(PartitionsHeld(fences=((0, 2), (1, 1))), 5_500)
    second.write(5_500)
    assert second.core.nodes[node].sample_seq == 6
    assert second.victims() == []
    hold_ms = second.core.policy.memory_hold_ms
    for at_ms in (5_000 + hold_ms - 1_000, 5_000 + hold_ms):
        assert second.victims() == []
        second.full(node, at_ms)
        second.write(at_ms)
    assert second.victims() == [node]
