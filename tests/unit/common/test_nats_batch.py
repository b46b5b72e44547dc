"""The faster way to store many messages is learned from calls of few, and never a batch for few."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from colo_common.adapters.nats_batch import BATCH_LEAST, BatchChoice

SIZES = (1, 20, 1, 24, 2, 17)
Took = Callable[[int, bool], float]


def synced_each(size: int, is_batch: bool) -> float:
    """Seconds that a server takes that syncs for each message."""
    return 0.000_5 + (0.006 + 0.000_02 * size if is_batch else 0.000_3 * size)


def synced_seldom(size: int, is_batch: bool) -> float:
    return 0.000_3 + (0.003 + 0.000_02 * size if is_batch else 0.000_02 * size)


def call(choice: BatchChoice, took_s: Took, size: int) -> bool:
    """Whether the call was a batch."""
    is_batch = choice.is_batch("S", size, 0.0)
    choice.learn(size, is_batch, took_s(size, is_batch))
    return is_batch


def learned(took_s: Took) -> BatchChoice:
    choice = BatchChoice()
    assert not any(call(choice, took_s, size) for size in SIZES)
    return choice


def test_nothing_known_is_no_batch() -> None:
    assert not BatchChoice().is_batch("S", 1_000, 0.0)


@pytest.mark.parametrize(("size", "is_batch"), [(BATCH_LEAST - 1, False), (BATCH_LEAST, True), (1_000, True)])
def test_a_server_that_syncs_each_message_gets_batches_of_many(size: int, is_batch: bool) -> None:
    choice = learned(synced_each)
    assert [call(choice, synced_each, size) for _ in range(100)] == [is_batch] * 100


@pytest.mark.parametrize("size", [BATCH_LEAST, 200, 1_000])
def test_a_server_that_syncs_seldom_gets_single_messages(size: int) -> None:
    choice = learned(synced_seldom)
    assert not any(call(choice, synced_seldom, size) for _ in range(1_000))


def test_one_batch_that_stalled_ends_no_batches() -> None:
    choice = learned(synced_each)
    choice.learn(100, True, 30.0)
    assert call(choice, synced_each, 100)


def test_a_disk_where_files_became_slow_gets_single_messages_and_a_batch_now_and_then() -> None:
    choice = learned(synced_each)
    ways = [call(choice, lambda size, is_batch: 0.2 if is_batch else synced_each(size, False), 100) for _ in range(500)]
    assert ways[0]
    assert 0 < sum(ways[50:]) < 50


def test_a_server_that_began_to_sync_each_message_is_noticed() -> None:
    choice = learned(synced_seldom)
    for _ in range(5):
        for size in SIZES:
            call(choice, synced_each, size)
    assert call(choice, synced_each, 100)


def test_a_stream_that_refused_a_batch_gets_none_for_a_while() -> None:
    choice = learned(synced_each)
    choice.refuse("S", 10.0)
    assert not choice.is_batch("S", 100, 69.0)
    assert choice.is_batch("T", 100, 69.0)
    assert choice.is_batch("S", 100, 70.0)


def test_another_server_is_learned_anew() -> None:
    choice = learned(synced_each)
    choice.refuse("S", 0.0)
    choice.forget()
    assert not choice.is_batch("S", 100, 1.0)
    assert not any(call(choice, synced_each, size) for size in SIZES)
    assert choice.is_batch("S", 100, 1.0)
