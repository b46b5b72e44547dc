"""The faster way to store many messages is learned, tried again seldom, and never a batch for few."""

from __future__ import annotations

from collections.abc import Callable

from colo_common.adapters.nats_batch import BATCH_LEAST, BatchChoice


def synced_each(size: int, is_batch: bool) -> float:
    """Seconds that a server takes that syncs for each message."""
    return 0.006 + 0.000_02 * size if is_batch else 0.001 * size


def synced_seldom(size: int, is_batch: bool) -> float:
    return 0.003 + 0.000_02 * size if is_batch else 0.000_02 * size


def calls(choice: BatchChoice, took_s: Callable[[int, bool], float], size: int, count: int) -> list[bool]:
    """The ways of so many calls."""
    ways = []
    for _ in range(count):
        way = choice.is_batch("S", size, 0.0)
        choice.learn("S", size, way, took_s(size, way))
        ways.append(way)
    return ways


def test_both_ways_are_tried_twice_first() -> None:
    assert calls(BatchChoice(), synced_each, 100, 4) == [False, False, True, True]


def test_few_messages_are_never_a_batch() -> None:
    assert not any(calls(BatchChoice(), synced_each, BATCH_LEAST - 1, 100))


def test_a_server_that_syncs_each_message_gets_batches() -> None:
    ways = calls(BatchChoice(), synced_each, 100, 511)
    assert all(ways[2:])


def test_a_server_that_syncs_seldom_gets_single_messages() -> None:
    ways = calls(BatchChoice(), synced_seldom, 100, 300)
    assert sum(ways) <= 2 + 300 // 32


def test_a_way_that_became_faster_is_found_again() -> None:
    choice = BatchChoice()
    calls(choice, synced_seldom, 500, 10)
    ways = calls(choice, synced_each, 500, 600)
    assert all(ways[-50:])


def test_where_fewer_messages_are_much_faster_as_a_batch_more_are_not_tried_one_by_one() -> None:
    choice = BatchChoice()
    calls(choice, synced_each, 100, 4)
    assert all(calls(choice, synced_each, 200, 300))


def test_a_stream_that_refused_a_batch_gets_none_for_a_while() -> None:
    choice = BatchChoice()
    calls(choice, synced_each, 100, 10)
    choice.refuse("S", 10.0)
    assert not choice.is_batch("S", 100, 69.0)
    assert choice.is_batch("S", 100, 70.0)


def test_another_server_is_learned_anew_and_streams_apart() -> None:
    choice = BatchChoice()
    calls(choice, synced_each, 100, 10)
    choice.refuse("S", 0.0)
    assert not choice.is_batch("T", 100, 0.0)
    choice.forget()
    assert calls(choice, synced_each, 100, 4) == [False, False, True, True]
