"""Kernel files, what is written to them, and what counts as the same when it is read back."""

import pytest

from colo_common.model.invalid import InvalidInput
from colo_executor.knobs import UNLIMITED, Knob, agrees, file_of, quota_us, text_of, weight_v1, weight_v2


@pytest.mark.parametrize(
    ("mcpu", "quota", "shares"),
    [(1, 1_000, 2), (10, 1_000, 10), (11, 1_100, 11), (1_000, 100_000, 1_024), (64_000, 6_400_000, 65_536)],
    ids=["below the least quota", "the least quota", "above it", "one CPU", "many"],
)
def test_quota_and_shares_of_milli_cpu(mcpu, quota, shares):
    assert (quota_us(mcpu), weight_v1(mcpu)) == (quota, shares)


@pytest.mark.parametrize(("shares", "weight"), [(2, 1), (1_024, 39), (262_144, 10_000), (0, 1), (999_999, 10_000)])
def test_weight_of_shares(shares, weight):
    assert weight_v2(shares) == weight


@pytest.mark.parametrize(
    ("knob", "version", "value", "text"),
    [
        (Knob.CPU_QUOTA, 1, UNLIMITED, "-1"),
        (Knob.CPU_QUOTA, 2, UNLIMITED, "max 100000"),
        (Knob.CPU_QUOTA, 2, 20_000, "20000 100000"),
        (Knob.CPU_WEIGHT, 1, 2, "2"),
        (Knob.CPU_WEIGHT, 2, 2, "1"),
        (Knob.MEMORY_LIMIT, 1, UNLIMITED, "-1"),
        (Knob.MEMORY_LIMIT, 2, UNLIMITED, "max"),
        (Knob.PIDS_LIMIT, 1, UNLIMITED, "max"),
        (Knob.CPUSET_CPUS, 1, "3,0-1", "0-1,3"),
    ],
)
def test_the_text_that_is_written(knob, version, value, text):
    assert text_of(knob, version, value) == text


@pytest.mark.parametrize(
    ("knob", "wrote", "shown", "same"),
    [
        (Knob.CPU_WEIGHT, "2", "2", True),
        (Knob.CPU_WEIGHT, "2", "3", False),
        (Knob.MEMORY_LIMIT, "1000000", "999424", True),
        (Knob.MEMORY_LIMIT, "1000000", "1003520", False),
        (Knob.MEMORY_LIMIT, "-1", "9223372036854771712", True),
        (Knob.MEMORY_LIMIT, "1000000", "4096", False),
    ],
    ids=["equal", "clamped", "rounded down to a page", "above the promise", "unlimited", "far below"],
)
def test_what_counts_as_the_same_after_reading_back(knob, wrote, shown, same):
    assert agrees(knob, 1, wrote, shown) is same


def test_a_knob_that_a_version_lacks_has_no_file():
    assert file_of(Knob.CPU_PERIOD, 2) is None
    assert file_of(Knob.OOM_GROUP, 1) is None
    assert file_of(Knob.CPU_QUOTA, 2) == ("cpu", "cpu.max")


@pytest.mark.parametrize(("knob", "value"), [(Knob.CPU_QUOTA, "max"), (Knob.CPUSET_CPUS, 3), (Knob.CPUSET_CPUS, "1-0")])
def test_a_value_of_the_wrong_kind_is_refused(knob, value):
    with pytest.raises(InvalidInput) as refused:
        text_of(knob, 1, value)
    assert refused.value.field == knob.value
