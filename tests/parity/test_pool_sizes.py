"""Sizes of pools that want more, or less, than there is."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.invalid import InvalidInput
from tests.parity.peers.pool_sizes import overlap_reclaim, regulate_pool_sizes

sizes = st.integers(0, 60)
shared = st.dictionaries(st.sampled_from(["share", "batch", "flink", "bmq"]), sizes, max_size=4)
isolated = st.dictionaries(st.sampled_from(["iso1", "iso2"]), sizes, max_size=2)


@given(shared, isolated, st.integers(0, 200), st.booleans())
def test_sizes_fit_and_nobody_gets_less_than_it_wants_without_need(
    expandable: dict[str, int], unexpandable: dict[str, int], available: int, allow_expand: bool
) -> None:
    found = regulate_pool_sizes(expandable, unexpandable, available, allow_expand=allow_expand)
    wanted = {**expandable, **unexpandable}
    total = sum(wanted.values())
    assert found.sizes.keys() == wanted.keys()
    assert found.is_throttled == (total > available)
    if not found.is_throttled:
        assert all(found.sizes[name] >= wanted[name] for name in wanted)
        assert all(found.sizes[name] == wanted[name] for name in unexpandable)
        grows = allow_expand and sum(expandable.values()) > 0
        assert sum(found.sizes.values()) == (available if grows else total)
        return
    eager = [name for name in wanted if wanted[name] > 0]
    if 0 < available < len(eager):
        assert all(size == available for size in found.sizes.values())
        return
    assert sum(found.sizes.values()) == available
    for name in eager:
        # Proportional to within the rounding: never above the share rounded up, at least 1 while there is one for everybody.
        assert found.sizes[name] <= -(-wanted[name] * available // total)
        assert found.sizes[name] >= min(1, available)


@given(shared, isolated, st.integers(0, 200))
def test_the_order_of_the_pools_does_not_matter(
    expandable: dict[str, int], unexpandable: dict[str, int], available: int
) -> None:
    found = regulate_pool_sizes(expandable, unexpandable, available, allow_expand=True)
    backwards = dict(reversed(expandable.items())), dict(reversed(unexpandable.items()))
    assert found == regulate_pool_sizes(*backwards, available, allow_expand=True)


def plain_scale(pools: dict[str, int], target: int) -> dict[str, int] | None:
    """Shares rounded up; then one after the other the pool that got the most for what it wants gives one back."""
    found = {name: -(-pools[name] * target // sum(pools.values())) for name in pools}
    while sum(found.values()) > target:
        givers = [name for name in found if found[name] > 1]
        if not givers:
            return None
        found[min(givers, key=lambda name: (-Fraction(found[name], pools[name]), -found[name], name))] -= 1
    return found


@given(shared, st.integers(0, 200))
def test_scaling_is_what_a_plain_search_does(pools: dict[str, int], available: int) -> None:
    found = regulate_pool_sizes(pools, {}, available, allow_expand=True)
    if sum(pools.values()) == 0:
        assert found.sizes == pools
        return
    assert found.sizes == (plain_scale(pools, available) or dict.fromkeys(pools, available))


def test_the_pool_with_the_largest_ratio_gives_first() -> None:
    grown = regulate_pool_sizes({"share": 1, "batch": 2, "flink": 3}, {"iso": 4}, 24, allow_expand=True)
    # Rounded up 4, 7 and 10 make one too many: 4 of 1 is the largest ratio.
    assert grown.sizes == {"share": 3, "batch": 7, "flink": 10, "iso": 4}
    found = regulate_pool_sizes({"a": 10, "b": 1, "c": 1}, {}, 4, allow_expand=False)
    # Rounded up 4, 1 and 1 make 6; only a is above 1.
    assert found.sizes == {"a": 2, "b": 1, "c": 1}


def test_pools_that_want_nothing_share_nothing() -> None:
    assert regulate_pool_sizes({"a": 0}, {"iso": 2}, 8, allow_expand=True).sizes == {"a": 0, "iso": 2}


@given(shared, st.integers(0, 300))
def test_overlap_sums_to_what_is_required_and_stays_inside_the_pools(pools: dict[str, int], required: int) -> None:
    total = sum(pools.values())
    if required > total:
        with pytest.raises(InvalidInput, match="required"):
            overlap_reclaim(pools, required)
        return
    found = overlap_reclaim(pools, required)
    assert sum(found.values()) == required
    for name, size in found.items():
        assert 1 <= size <= pools[name]
        assert size <= Fraction(required * pools[name], total) + 1


@pytest.mark.parametrize(("required", "wanted"), [(2, {"share": 1, "bmq": 1}), (4, {"share": 2, "bmq": 2}), (0, {})])
def test_the_largest_pool_gives_first(required: int, wanted: dict[str, int]) -> None:
    assert overlap_reclaim({"flink": 7, "share": 9, "bmq": 8}, required) == wanted


def test_numbers_without_meaning_are_refused_by_name() -> None:
    for expandable, unexpandable, available, field in (
        ({"a": -1}, {}, 4, "expandable.a"),
        ({}, {"b": -1}, 4, "unexpandable.b"),
        ({}, {}, -4, "pools.available"),
        ({"a": 1}, {"a": 1}, 4, "unexpandable.a"),
    ):
        with pytest.raises(InvalidInput) as caught:
            regulate_pool_sizes(expandable, unexpandable, available, allow_expand=True)
        assert caught.value.field == field
    with pytest.raises(InvalidInput, match=r"shared\.a"):
        overlap_reclaim({"a": -1}, 0)
