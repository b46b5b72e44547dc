"""Orders to stop of partitions of the jobs: each has terms of its own, and those of another number of partitions are over."""

import pytest

from colo_common.events.effects import Effect
from colo_common.events.job import ReplicaStop, StopReplicas
from colo_common.model.invalid import InvalidInput
from colo_common.model.reasons import Reason
from colo_executor.core import Executor, ExecutorPolicy
from colo_executor.local import Adopted, RememberTerm
from colo_executor.order_terms import OrderTerms

NODE = "n1"
NOW_MS = 1_000_000


def stop(executor: Executor, generation: int, partition: int = 0, partitions: int = 1) -> list[Effect]:
    order = ReplicaStop(replica="job/main/0", attempt=1, grace_ms=0, reason=Reason.CANCELLED)
    fact = StopReplicas(
        at_ms=NOW_MS,
        node=NODE,
        generation=generation,
        stops=(order,),
        partition=partition,
        partitions=partitions,
    )
    return executor.handle(fact, NOW_MS)


def terms(effects: list[Effect]) -> list[tuple[str, int]]:
    return [(effect.order, effect.generation) for effect in effects if isinstance(effect, RememberTerm)]


def test_each_partition_has_its_own_terms() -> None:
    executor = Executor(NODE, ExecutorPolicy())
    assert terms(stop(executor, 500, 1, 4)) == [("stop-1-of-4", 500)]
    assert terms(stop(executor, 300, 2, 4)) == [("stop-2-of-4", 300)]
    assert terms(stop(executor, 300, 2, 4)) == []
    with pytest.raises(InvalidInput, match="must be at least 500: its sender was replaced"):
        stop(executor, 499, 1, 4)


@pytest.mark.parametrize(("before", "after"), [((0, 1), (2, 4)), ((3, 4), (0, 1)), ((3, 4), (1, 2))])
def test_who_has_another_number_of_partitions_was_replaced_by_whoever_came_later(
    before: tuple[int, int], after: tuple[int, int]
) -> None:
    executor = Executor(NODE, ExecutorPolicy())
    stop(executor, 500, *before)
    with pytest.raises(InvalidInput, match="must be at least 500"):
        stop(executor, 400, *after)
    assert len(terms(stop(executor, 600, *after))) == 1
    with pytest.raises(InvalidInput, match="must be at least 600"):
        stop(executor, 550, *before)


def test_the_next_executor_goes_on_with_what_was_remembered() -> None:
    executor = Executor(NODE, ExecutorPolicy())
    executor.handle(Adopted(terms=(("stop-1-of-4", 500), ("evict", 700))), NOW_MS)
    with pytest.raises(InvalidInput, match="must be at least 500"):
        stop(executor, 400)
    assert terms(stop(executor, 501, 0, 4)) == [("stop-0-of-4", 501)]
    assert OrderTerms((("stop", 3), ("stop-0-of-2", 5), ("stop-1-of-2", 4), ("evict", 1))).items() == [
        ("evict", 1),
        ("stop-0-of-2", 5),
        ("stop-1-of-2", 4),
    ]


@pytest.mark.parametrize(
    ("partition", "partitions", "field"),
    [(4, 4, "partition"), (0, 300, "partitions"), (1, 1, "partitions"), (0, 0, "partitions")],
)
def test_a_partition_that_cannot_be_is_refused(partition: int, partitions: int, field: str) -> None:
    executor = Executor(NODE, ExecutorPolicy())
    with pytest.raises(InvalidInput) as refused:
        stop(executor, 500, partition, partitions)
    assert refused.value.field == field
    assert terms(stop(executor, 100)) == [("stop", 100)]
