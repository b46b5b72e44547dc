"""For how long a group waited, by what each of its threads ran and waited."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_executor.run_queue import some_wait_ns

SPAN = 1_000
Times = list[tuple[int, int]]
TIMES = st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), max_size=8)


@pytest.mark.parametrize(
    ("times", "cpus", "waited"),
    [
        pytest.param([], 4, 0, id="no thread"),
        pytest.param([(0, 0), (0, 0)], 4, 0, id="threads that did nothing"),
        pytest.param([(1_000, 0)], 4, 0, id="it ran and never waited"),
        pytest.param([(200, 300)], 4, 300, id="one thread, whatever CPUs it may use"),
        pytest.param([(200, 300), *[(0, 0)] * 50], 4, 300, id="threads that did nothing do not matter"),
        pytest.param([(500, 500)] * 8, 8, 500, id="eight threads, each on a CPU with a hog"),
        pytest.param([(500, 500)] * 2, 1, 500, id="two that queue behind each other alone: PSI says all of the span"),
        pytest.param([(0, 1_000), *[(50, 0)] * 9], 16, 689, id="a thread that starves among some that hardly run"),
        pytest.param([(2, 1)] * 200, 1, 200 * 1_000 // 1_000, id="many short requests on one CPU: their waits add up"),
        pytest.param([(2, 1)] * 200, 2, 100, id="on two CPUs each has half of them"),
        pytest.param([(2, 1)] * 200, 400, 1, id="on more CPUs than threads each has one"),
        pytest.param([(20, 250)] * 10, 2, 925, id="ten that wait at the same time are taken for one after another"),
        pytest.param([(0, 1_000)], 4, 1_000, id="starved for all of the span"),
        pytest.param([(5, 7_000)], 4, 1_000, id="a wait that began long before the span counts as the span"),
    ],
)
def test_it_is_the_larger_of_the_means_of_threads_and_of_cpus(times: Times, cpus: int, waited: int) -> None:
    assert some_wait_ns(times, SPAN, cpus) == waited


@pytest.mark.parametrize("span", [0, -5])
def test_a_span_that_is_none_has_no_wait(span: int) -> None:
    assert some_wait_ns([(10, 10)], span, 1) == 0


@given(times=TIMES, span=st.integers(1, 10**9), cpus=st.integers(0, 64))
def test_it_is_within_the_span_and_all_waits_and_more_cpus_make_it_no_longer(
    times: Times, span: int, cpus: int
) -> None:
    found = some_wait_ns(times, span, cpus)
    assert 0 <= found <= min(span, sum(wait for _, wait in times))
    assert some_wait_ns(times, span, cpus + 1) <= found


@given(run=st.integers(0, 500), wait=st.integers(0, 500), count=st.integers(1, 8), more=st.integers(0, 8))
def test_threads_that_are_alike_and_have_a_cpu_each_wait_as_one_of_them(
    run: int, wait: int, count: int, more: int
) -> None:
    assert some_wait_ns([(run, wait)] * count, SPAN, count + more) == wait
