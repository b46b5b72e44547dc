"""Each estimator on series whose answer can be computed by hand, and what all of them keep to."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.estimator_rules import ESTIMATOR_NAMES, LAST
from colo_common.model.invalid import InvalidInput
from colo_overcommit.core import OvercommitCore
from colo_overcommit.estimators.dsp import DspEstimator
from colo_overcommit.estimators.estimator import ESTIMATORS, Estimator, estimator_of
from colo_overcommit.estimators.outlook import Outlook
from colo_overcommit.estimators.rc_like import WORKS_MOST, RcLikeEstimator, WorkPart
from colo_overcommit.estimators.steps import STEP_MS
from colo_overcommit.explain import recompute
from colo_overcommit.histories import NodeHistory, ZoneHistory, decode_history, encode_history
from colo_overcommit.policy import OvercommitPolicy
from tests.support.builders import a_node, a_sample

_DAY = 24 * 3_600_000 // STEP_MS
#: What does not go by steps of five minutes takes a sample so often.
_EVERY_MS = {"window": 30_000, "pid": 5_000}


def test_a_policy_can_name_every_estimator() -> None:
    assert (LAST, *ESTIMATORS) == ESTIMATOR_NAMES


def fed(name: str, values: list[int]) -> Estimator:
    """An estimator that has seen one value in each step; the last step is not over."""
    estimator = estimator_of(name)
    assert estimator is not None
    for step, value in enumerate(values):
        estimator.add(step * _EVERY_MS.get(name, STEP_MS), value)
    return estimator


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("n-sigma", [1_000] * 24, None),  # the 24th step is not over
        ("n-sigma", [1_000] * 25, 1_000),
        # mean 1500, deviation sqrt(24 * 500^2 / 23) = 510.754: 1500 + 5 * 510.754 = 4053.77
        ("n-sigma", [1_000, 2_000] * 12 + [0], 4_054),
        ("n-sigma", [9_000] * 24 + [1_000] * 25, 1_000),  # older than two hours
        ("n-sigma:2.5", [1_000, 2_000] * 12 + [0], 2_777),
        ("histogram:0.5", [1_000] * 20 + [4_000] * 19 + [0], 1_017),
        ("peak:0", [1_000, 2_000] * 12 + [0], 2_094),  # bucket 49 ends at 200 * (1.05^50 - 1): the histogram's is more
        ("rc-like:0.5", [1_000] * 12 + [2_000] * 12 + [0], 1_500),
        ("histogram", [1_000] * 24, None),
        # bucket 36 ends at 10 * (1.05^37 - 1) / 0.05 = 1016.2
        ("histogram", [1_000] * 25, 1_017),
        ("histogram", [1_000] * 199 + [4_000] + [0], 1_017),  # one of 200 is less than two percent
        ("histogram", [0] * 25, 10),
        # Half of all weight is of the last day: 10 of 288 newest steps are more than two percent of all, 10 of a week ago are not.
        ("histogram", [1_000] * _DAY * 7 + [4_000] * 20 + [0], 4_125),  # bucket 62 ends at 200 * (1.05^63 - 1)
        ("histogram", [4_000] * 20 + [1_000] * _DAY * 7 + [0], 1_017),
        ("peak", [1_000] * 25, 1_017),
        ("peak", [1_000, 2_000] * 12 + [0], 4_054),
        ("periodic", [1_000] * _DAY, None),
        # The day has its highest load in steps 100 to 102; it is expected from 15 minutes before.
        ("periodic", ([1_000] * 100 + [7_000] * 3 + [1_000] * (_DAY - 103)) + [1_000] * 97, 1_000),
        ("periodic", ([1_000] * 100 + [7_000] * 3 + [1_000] * (_DAY - 103)) + [1_000] * 98, 7_000),
        ("periodic", ([1_000] * 100 + [7_000] * 3 + [1_000] * (_DAY - 103)) + [1_000] * 104, 1_000),
        ("periodic", [9_000] * _DAY + [1_000] * _DAY * 8, 1_000),  # eight days ago
        ("dsp", [5_000] * 3 * _DAY, None),  # nothing repeats itself
        ("rc-like", [], None),
        ("rc-like", [1_000, 3_000, 2_000], 3_000),
        # 24 steps are over: 0.99 * 23 = 22.77, so 77 % of the way from the second largest to the largest
        ("rc-like", [1_000] * 23 + [2_000] + [0], 1_770),
        ("rc-like", [9_000] * 24 + [1_000] * 25, 1_000),  # older than two hours
        ("window", [1_000] * 3, None),
        ("window", [1_000, 2_000, 1_000, 2_001], 1_501),  # 1500.25
        ("window", [1_000] * 4 + [2_100], 1_000),  # the mean moved by 275, less than 300
        ("window", [1_000] * 4 + [90_000] * 2, 9_000),  # twice 4000, no more
        ("window", [1_000] * 4 + [90_000] * 40, 90_000),
        ("pid", [], None),
        ("pid", [8_000], 10_000),
        ("pid", [8_000] * 100, 10_000),
        ("pid", [8_000, 8_300, 7_300], 10_000),  # within 5 % above and 10 % below the target
        # ln(1.6 / 0.8) * 0.1 of 10000 up; ln(0.2 / 0.8) * 0.01 down
        ("pid", [8_000, 16_000], 10_694),
        ("pid", [8_000, 2_000], 9_862),
        ("pid", [8_000] + [16_000] * 60, 19_093),  # comes to rest where 5 % above the target begin
    ],
)
def test_what_is_expected(name: str, values: list[int], expected: int | None) -> None:
    assert fed(name, values).expected() == expected


@pytest.mark.parametrize("name", ESTIMATORS)
@given(data=st.lists(st.tuples(st.integers(0, 1 << 50), st.integers(0, 1 << 50)), max_size=60))
def test_any_times_and_values_are_taken(name: str, data: list[tuple[int, int]]) -> None:
    estimator = estimator_of(name)
    assert estimator is not None
    for at_ms, value in data:
        estimator.add(at_ms, value)
        expected = estimator.expected()
        assert expected is None or expected >= 0


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_clock_that_is_set_back_begins_anew(name: str) -> None:
    estimator = fed(name, [5_000 if step % _DAY < 100 else 9_000 for step in range(3 * _DAY)])
    assert estimator.expected() is not None
    estimator.add(0, 1_000)
    # The controller keeps for the first value what it is 80 % of; what is new counts with its largest use.
    assert estimator.expected() == {"pid": 1_250, "rc-like": 1_000}.get(name)


def test_a_day_is_found_in_the_spectrum_and_foretold_for_fifteen_minutes() -> None:
    """The load doubles in the hours 8 to 20, and has noise. It is sought every six hours; an hour without samples ends it."""
    rng = random.Random(7)
    estimator = estimator_of("dsp")
    assert estimator is not None

    def use_of(step: int) -> int:
        return (10_000 if 96 <= step % _DAY < 240 else 5_000) + rng.randrange(500)

    for step in range(4 * _DAY):
        if not 300 <= step < 306:  # half an hour is missing
            estimator.add(step * STEP_MS, use_of(step))
    for step in range(4 * _DAY, 5 * _DAY):
        estimator.add(step * STEP_MS, use_of(step))
        foretold, hour = estimator.expected(), step % _DAY
        assert foretold is not None
        if 0 < hour < 84 or hour > 252:
            assert 5_000 <= foretold < 8_000
        elif 93 <= hour < 228:
            assert 9_500 <= foretold < 14_000
    assert isinstance(estimator, DspEstimator)
    assert (estimator.foretold(Outlook(ahead_steps=144)) or 0) >= 9_500
    estimator.look(Outlook(ahead_steps=144))
    assert (estimator.expected() or 0) >= 9_500
    estimator.add((5 * _DAY + 20) * STEP_MS, 5_000)
    estimator.add((5 * _DAY + 21) * STEP_MS, 5_000)
    assert estimator.expected() is None


def test_workloads_beyond_the_limit_count_together() -> None:
    estimator = RcLikeEstimator()
    parts = [WorkPart(f"w{number}", 10, 1_000, True) for number in range(WORKS_MOST + 3)]
    estimator.add(0, 10 * len(parts) + 5, parts)
    assert estimator.expected() == WORKS_MOST * 1_000 + 3 * 10 + 5
    assert len(estimator.state().works) == WORKS_MOST + 1


def test_the_promise_leaves_what_is_expected_and_says_so() -> None:
    core = OvercommitCore(OvercommitPolicy(estimator="n-sigma"))
    core.handle(a_node(), 0)
    for seq in range(1, 52):
        at_ms = seq * STEP_MS
        zones = ((8_000 if seq % 2 else 4_000, 8), (4_000, 8))
        core.handle(a_sample(seq=seq, zones=zones, at_ms=at_ms), at_ms)
    core.check()
    published = core.nodes["n1"].published
    assert published is not None
    assert recompute(published.explanation) == published.zones
    expected = {(term.zone, term.name): term for term in published.explanation.terms if "expected" in term.name}
    # 6000 + 5 * sqrt(24 * 2000^2 / 23) is more than the 8000 in use, and the calm zone is expected to stay calm.
    assert expected[0, "cpu_online_expected"].value == 16_000
    assert expected[1, "cpu_online_expected"].value == 4_000
    assert "n-sigma" in expected[0, "cpu_online_expected"].source
    assert "max(online_used, online_expected)" in published.explanation.formula
    assert [zone.batch_cpu_mcpu for zone in published.zones] == [0, 16_000 - 4_000 - 500 - 4_000]


def test_an_unknown_estimator_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidInput, match="estimator: is not one; did you mean `n-sigma`"):
        OvercommitPolicy(estimator="n-sigm").validate()


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("n-sigma:many", "the number of n-sigma must be 0 to 20"),
        ("n-sigma:", "the number of n-sigma must be 0 to 20"),
        ("rc-like:nan", "the number of rc-like must be 0.5 to 1"),
        ("histogram:98", "the number of histogram must be 0.5 to 1"),
        ("dsp:3", "dsp takes no number"),
        ("last:3", "last takes no number"),
    ],
)
def test_a_number_that_an_estimator_does_not_take_is_refused(text: str, rule: str) -> None:
    with pytest.raises(InvalidInput, match=f"estimator: {rule}"):
        OvercommitPolicy(estimator=text).validate()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_goes_on_from_its_state_as_if_nothing_had_happened(name: str) -> None:
    """Ten days of steps with a gap; the state passes through its stored form in the middle of a step."""
    whole = estimator_of(name)
    assert whole is not None
    every_ms = _EVERY_MS.get(name, STEP_MS)
    for step in (*range(1_000, 1_900), *range(2_400, 4_000)):
        whole.add(step * every_ms, 1_000 + step * 37 % 911)
    history = NodeHistory(version=1, at_ms=0, zones=(ZoneHistory(zone=0, cpu=whole.state(), memory=whole.state()),))
    value = encode_history(history)
    assert value is not None
    assert len(value) < 40_000, "a node of four zones stays within the limit"
    read = decode_history(value)
    assert read == history
    again = estimator_of(name, read.zones[0].cpu)
    assert again is not None
    assert again.expected() == whole.expected()
    for step in range(3_999, 4_400):
        for each in (whole, again):
            each.add(step * every_ms + 1, 900 + step * 53 % 1_201)
        assert again.expected() == whole.expected()


def test_the_state_of_another_estimator_is_not_taken() -> None:
    other = estimator_of("n-sigma")
    assert other is not None
    for step in range(30):
        other.add(step * STEP_MS, 5_000)
    found = estimator_of("histogram", other.state())
    assert found is not None
    assert found.expected() is None


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"version":2,"at_ms":1}',
        b'{"version":1,"at_ms":-1}',
        b'{"version":1,"at_ms":1,"zones":[{"zone":0,"cpu":{"type":"magic"},"memory":{}}]}',
        b'{"version":1,"at_ms":1,"zones":[{"zone":0,"cpu":{"type":"n-sigma","steps":{"step":1,"largest":-5},"values":[]}}]}',
        b'{"version":1,"at_ms":1' + b" " * 300_000 + b"}",
    ],
)
def test_a_row_that_cannot_be_read_is_no_history(value: bytes) -> None:
    assert decode_history(value) is None
