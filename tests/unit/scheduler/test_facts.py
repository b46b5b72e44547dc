"""What is known of nodes: when facts lapse, and the log by which verdicts are kept up to date."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from colo_scheduler.cluster.node import NodeFacts
from colo_scheduler.placement.filters import PASSES, Shape, StaticFilterCache

EITHER = Shape(has_command=True, has_work=True)


def facts_of(count: int, max_age_ms: int = 0) -> NodeFacts:
    facts = NodeFacts(count, 1, max_age_ms)
    for row in range(count):
        write(facts, row)
    return facts


def write(facts: NodeFacts, row: int, *, settled: bool = True, may_grow: bool = True, at_ms: int = 0) -> None:
    facts.write(row, known=True, settled=settled, simulated=False, may_grow=may_grow, at_ms=at_ms, mid=False)


@given(
    st.integers(0, 20),
    st.lists(
        st.one_of(
            st.tuples(st.just("look"), st.integers(0, 60)),
            st.tuples(st.just("say"), st.integers(0, 3), st.booleans(), st.integers(0, 60)),
        ),
        max_size=20,
    ),
)
def test_a_fact_is_fresh_while_it_is_not_older_than_the_limit(max_age_ms: int, steps: list[tuple[object, ...]]) -> None:
    facts, static_filters = facts_of(4, max_age_ms), StaticFilterCache()
    reported = [(True, 0)] * 4
    now_ms = 0
    for step in steps:
        match step:
            case ("look", int(now_ms)):
                facts.look(now_ms)
            case ("say", int(row), bool(may_grow), int(at_ms)):
                reported[row] = (may_grow, at_ms)
                write(facts, row, may_grow=may_grow, at_ms=at_ms)
        facts.look(now_ms)
        expected = [grow and (max_age_ms == 0 or now_ms - at_ms <= max_age_ms) for grow, at_ms in reported]
        assert facts.fresh.tolist() == expected
        # The verdicts, which look only at what the log names, follow.
        assert static_filters.of(EITHER, facts, 4).passing.tolist() == expected


def test_only_rows_that_changed_are_looked_at_again() -> None:
    facts = facts_of(50)
    position = facts.log_end
    write(facts, 7, settled=False)
    write(facts, 3)
    assert facts.changed_since(position).tolist() == [7]  # type: ignore[union-attr]


def test_a_log_that_was_cut_makes_everybody_look_at_all_rows() -> None:
    facts, static_filters = facts_of(2), StaticFilterCache()
    static_filters.of(EITHER, facts, 2)
    position = facts.log_end
    for number in range(20):
        write(facts, 0, settled=number % 2 == 0)
    assert facts.changed_since(position) is None
    assert static_filters.of(EITHER, facts, 2).passing.tolist() == [False, True]


def test_verdicts_that_were_given_away_do_not_change_any_more() -> None:
    facts, static_filters = facts_of(3), StaticFilterCache()
    before = static_filters.of(EITHER, facts, 3)
    write(facts, 1, settled=False)
    after = static_filters.of(EITHER, facts, 3)
    assert before.codes.tolist() == [PASSES] * 3
    assert after.passing.tolist() == [True, False, True]
    assert sum(after.numbers) == 3
    assert np.shares_memory(static_filters.of(EITHER, facts, 3).codes, after.codes)
