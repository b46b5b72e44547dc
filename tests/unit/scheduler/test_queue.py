"""The queue: order between and within classes, backoff, waking, limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_common.events.job import PlacementRequest
from colo_scheduler.requests.queue import BackoffPolicy, RequestQueue
from colo_scheduler.requests.request_class import class_of
from tests.support.scheduler_story import a_placement_request


def a_queue(*placement_requests: PlacementRequest, limit: int = 100) -> RequestQueue:
    queue = RequestQueue(limit, BackoffPolicy())
    for placement_request in placement_requests:
        queue.add(placement_request)
    return queue


def drained(queue: RequestQueue, quantum: int = 10) -> list[str]:
    """All replicas in the order in which they would be decided."""
    order = []
    while (request := queue.next_class()) is not None:
        order += [placement_request.replica for placement_request in queue.take(request, quantum)]
        queue.placed(request)
        queue.check()
    return order


def rejected(
    queue: RequestQueue, now_ms: int, *, is_unresolvable: bool = False, sooner_ms: int | None = None
) -> int | None:
    """Let the next class find no node; when it is tried again."""
    request = queue.next_class()
    assert request is not None
    queue.put_back(queue.take(request, 100))
    parked = queue.park(request, now_ms, capacity_changes=0, is_unresolvable=is_unresolvable, sooner_ms=sooner_ms)
    return parked.retry_at_ms


def test_higher_priority_goes_first_then_the_older_then_the_smaller_id() -> None:
    queue = a_queue(
        a_placement_request("d/t/0", priority=1, queued_at_ms=1, mcpu=1),
        a_placement_request("c/t/0", priority=5, queued_at_ms=9, mcpu=2),
        a_placement_request("b/t/0", priority=5, queued_at_ms=3, mcpu=3),
        a_placement_request("a/t/0", priority=5, queued_at_ms=9, mcpu=4),
    )
    assert drained(queue) == ["b/t/0", "a/t/0", "c/t/0", "d/t/0"]


def test_equal_requests_are_taken_together_at_most_a_quantum() -> None:
    queue = a_queue(
        *(a_placement_request(f"a/t/{n}", queued_at_ms=n) for n in range(4)),
        a_placement_request("b/t/0", queued_at_ms=1, mcpu=2),
    )
    assert drained(queue, quantum=2) == ["a/t/0", "a/t/1", "b/t/0", "a/t/2", "a/t/3"]


def test_a_newer_attempt_that_is_put_back_replaces_an_older_one_that_was_listed_late() -> None:
    queue = a_queue(a_placement_request("a/t/0", attempt=1))
    queue.delay(a_placement_request("a/t/0", attempt=2, mcpu=2), 100)
    queue.wake_due(100)
    assert ("a/t/0", 2) in queue
    assert ("a/t/0", 1) not in queue
    queue.put_back([a_placement_request("a/t/0", attempt=1)])
    assert drained(queue) == ["a/t/0"]


def test_a_newer_attempt_replaces_the_one_that_waits() -> None:
    queue = a_queue(
        a_placement_request("a/t/0", attempt=1),
        a_placement_request("a/t/0", attempt=3),
        a_placement_request("a/t/0", attempt=2),
    )
    assert len(queue) == 1
    assert ("a/t/0", 3) in queue
    assert ("a/t/0", 1) not in queue


def test_the_next_in_line_is_decided_when_the_first_withdraws() -> None:
    queue = a_queue(a_placement_request("a/t/0", queued_at_ms=1), a_placement_request("a/t/1", queued_at_ms=2))
    queue.remove(("a/t/0", 1))
    assert drained(queue) == ["a/t/1"]


def test_a_newcomer_that_is_now_first_is_decided_first() -> None:
    queue = a_queue(a_placement_request("a/t/0", queued_at_ms=1), a_placement_request("a/t/1", queued_at_ms=3))
    queue.remove(("a/t/0", 1))
    queue.add(a_placement_request("a/t/2", queued_at_ms=2))
    assert drained(queue) == ["a/t/2", "a/t/1"]


@given(
    st.lists(st.tuples(st.sampled_from(("add", "remove", "take")), st.integers(0, 5), st.integers(0, 4)), max_size=40)
)
def test_whoever_waits_unparked_is_decided(steps: list[tuple[str, int, int]]) -> None:
    queue = a_queue()
    for step, number, at_ms in steps:
        if step == "add":
            queue.add(a_placement_request(f"a/t/{number}", queued_at_ms=at_ms, mcpu=1 + number % 2))
        elif step == "remove":
            queue.remove((f"a/t/{number}", 1))
        elif (request := queue.next_class()) is not None:
            queue.take(request, 1)
            queue.placed(request)
        queue.check()
    drained(queue)
    assert len(queue) == 0


def test_a_full_queue_takes_no_more_and_says_so() -> None:
    queue = a_queue(a_placement_request("a/t/0"), limit=1)
    assert not queue.add(a_placement_request("b/t/0"))
    assert queue.add(a_placement_request("a/t/0"))
    assert drained(queue) == ["a/t/0"]


def test_a_rejected_class_waits_twice_as_long_each_time_up_to_the_most() -> None:
    queue = a_queue(a_placement_request())
    waits, now_ms = [], 0
    for _ in range(8):
        retry_at_ms = rejected(queue, now_ms)
        assert retry_at_ms is not None
        assert queue.next_class() is None
        assert queue.deadline_ms() == retry_at_ms
        waits.append(retry_at_ms - now_ms)
        now_ms = retry_at_ms
        queue.wake_due(now_ms - 1)
        assert queue.next_class() is None
        queue.wake_due(now_ms)
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]


def test_a_place_found_begins_the_backoff_anew() -> None:
    queue = a_queue(a_placement_request("a/t/0"), a_placement_request("a/t/1"))
    rejected(queue, 0)
    queue.wake_due(1_000)
    request = queue.next_class()
    assert request is not None
    assert len(queue.take(request, 1)) == 1
    queue.placed(request)
    assert rejected(queue, 1_000) == 2_000


@pytest.mark.parametrize(("sooner_ms", "expected"), [(400, 400), (5_000, 1_000), (0, 1_000), (None, 1_000)])
def test_a_class_returns_when_an_avoided_node_may_be_used_again(sooner_ms: int | None, expected: int) -> None:
    assert rejected(a_queue(a_placement_request()), 0, sooner_ms=sooner_ms) == expected


def test_what_no_node_can_ever_hold_has_no_timer() -> None:
    queue = a_queue(a_placement_request())
    assert rejected(queue, 0, is_unresolvable=True) is None
    assert queue.deadline_ms() is None
    queue.wake_where(lambda _request, parked: parked.is_unresolvable)
    assert drained(queue) == ["job/main/0"]


def test_a_newcomer_is_decided_although_its_class_waits() -> None:
    queue = a_queue(a_placement_request("a/t/0"))
    rejected(queue, 0)
    queue.add(a_placement_request("b/t/0"))
    assert drained(queue) == ["a/t/0", "b/t/0"]


def test_a_delayed_want_comes_back_in_its_time_and_can_be_withdrawn_before() -> None:
    queue = a_queue()
    queue.delay(a_placement_request("a/t/0"), 500)
    queue.delay(a_placement_request("b/t/0"), 700)
    assert (len(queue), queue.deadline_ms()) == (2, 500)
    assert queue.remove(("a/t/0", 1)) is not None
    assert queue.deadline_ms() == 700
    queue.wake_due(700)
    assert drained(queue) == ["b/t/0"]


def test_the_last_want_withdrawn_takes_its_class_along() -> None:
    queue = a_queue(a_placement_request())
    rejected(queue, 0)
    assert queue.remove(("job/main/0", 1)) is not None
    assert queue.remove(("job/main/0", 1)) is None
    assert (len(queue), queue.deadline_ms(), queue.next_class()) == (0, None, None)
    queue.check()


placement_requests = st.builds(
    a_placement_request,
    st.integers(0, 12).map(lambda n: f"j/t/{n}"),
    attempt=st.integers(1, 3),
    mcpu=st.sampled_from([100, 200]),
    priority=st.integers(0, 1),
    queued_at_ms=st.integers(0, 5),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), placement_requests),
        st.tuples(st.sampled_from(["take", "park", "wake", "drop"]), placement_requests),
    )
)


@given(steps)
def test_whatever_happens_each_want_is_in_one_class_and_leaves_once(life: list[tuple[str, PlacementRequest]]) -> None:
    queue = RequestQueue(10, BackoffPolicy())
    kept: dict[str, int] = {}
    now_ms = 0
    for word, placement_request in life:
        now_ms += 500
        if word == "add" and queue.add(placement_request):
            kept[placement_request.replica] = max(placement_request.attempt, kept.get(placement_request.replica, 0))
        elif word == "drop" and queue.remove((placement_request.replica, placement_request.attempt)) is not None:
            assert kept.pop(placement_request.replica) == placement_request.attempt
        elif word == "wake":
            queue.wake_due(now_ms)
        elif word in ("take", "park") and (request := queue.next_class()) is not None:
            taken = queue.take(request, 2)
            assert taken
            assert {class_of(one) for one in taken} == {request}
            if word == "take":
                for one in taken:
                    assert kept.pop(one.replica) == one.attempt
                queue.placed(request)
            else:
                queue.put_back(taken)
                queue.park(request, now_ms, capacity_changes=0, is_unresolvable=False)
        queue.check()
        assert len(queue) == len(kept)
