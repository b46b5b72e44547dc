"""Settings: every limit has a rule, and a broken one is named."""

import pytest

from colo_common.runtime.settings import BadSettings, load
from colo_scheduler.settings import Settings


def test_the_defaults_are_valid() -> None:
    assert load(Settings, "scheduler").policy.quantum == 100


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--policy-quantum=0", "policy_quantum: must be at least 1"),
        ("--policy-commit-tries=-1", "policy_commit_tries: must be at least 0"),
        ("--policy-backoff-first-ms=0", "policy_backoff_first_ms: must be at least 1"),
        ("--policy-backoff-most-ms=10", "policy_backoff_most_ms: must not be below the first"),
        ("--policy-weights-most-free=1001", "policy_weights.most-free: must be a whole number, 0 to 1000"),
        ("--policy-weights-dynamic-load=1", "policy_weights.dynamic-load: must be 0: nothing is heard yet to score by"),
        ("--policy-prod-weights-spread=-1", "policy_prod_weights.spread: must be a whole number, 0 to 1000"),
        ("--policy-evictions-points=101", "policy_evictions_points: must be 0 to 100"),
        ("--policy-load-prod-cpu-pct=101", "policy_load_prod_cpu_pct: must be 0 to 100"),
        ("--policy-load-window-ms=1000", "policy_load_window_ms: must be one that nodes report"),
        ("--policy-tie-rotation=-1", "policy_tie_rotation: must be at least 0"),
    ],
)
def test_a_value_that_breaks_a_rule_is_named(flag: str, says: str) -> None:
    with pytest.raises(BadSettings, match=says):
        load(Settings, "scheduler", [flag])


def test_at_least_one_scorer_must_count() -> None:
    flags = [
        f"--policy-weights-{name}=0"
        for name in ("most-free", "fewest-zones", "spread", "recent-eviction", "soft-taints")
    ]
    with pytest.raises(BadSettings, match="at least one weight must be above 0"):
        load(Settings, "scheduler", flags)
