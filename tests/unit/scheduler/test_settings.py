"""Settings: every limit has a rule, and a broken one is named."""

from pathlib import Path

import pytest

from colo_common.model.colocation_rules import ColocationRule
from colo_common.model.node_selector import Operator, Requirement
from colo_common.runtime.settings import BadSettings, load
from colo_evictor.settings import EvictorSettings
from colo_scheduler.peers.crane.dynamic_loads import DynamicPolicy
from colo_scheduler.settings import SchedulerSettings


def test_the_defaults_are_valid() -> None:
    assert load(SchedulerSettings, "scheduler").policy.quantum == 100


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--policy-quantum=0", "policy_quantum: must be at least 1"),
        ("--policy-commit-tries=-1", "policy_commit_tries: must be at least 0"),
        ("--policy-backoff-first-ms=0", "policy_backoff_first_ms: must be at least 1"),
        ("--policy-backoff-most-ms=10", "policy_backoff_most_ms: must not be below the first"),
        ("--policy-weights-most-free=1001", "policy_weights.most-free: must be a whole number, 0 to 1000"),
        ("--policy-weights-resource-cpu=-1", "policy_weights.resource_cpu: must be a whole number, 0 to 1000"),
        (
            "--policy-dynamic-limits-pct=cpu_usage_avg_10m=65",
            "policy_dynamic_limits_pct.cpu_usage_avg_10m: is nothing that nodes report; known are cpu_usage_avg_5m ",
        ),
        ("--policy-dynamic-limits-pct=cpu_usage_avg_5m=101", "cpu_usage_avg_5m: must be 0 to 100"),
        ("--policy-dynamic-weights=gpu=1", "policy_dynamic_weights.gpu: is nothing that nodes report"),
        ("--policy-dynamic-hot-1m=-1", "policy_dynamic_hot_1m: must be 0 to 1000000"),
        ("--policy-load-score-window-ms=1000", "policy_load_score_window_ms: must be one that nodes report"),
        ("--policy-load-cpu-weight=101", "policy_load_cpu_weight: must be 0 to 100"),
        ("--policy-prod-weights-spread=-1", "policy_prod_weights.spread: must be a whole number, 0 to 1000"),
        ("--policy-evictions-points=101", "policy_evictions_points: must be 0 to 100"),
        ("--policy-load-prod-cpu-pct=101", "policy_load_prod_cpu_pct: must be 0 to 100"),
        ("--policy-load-window-ms=1000", "policy_load_window_ms: must be one that nodes report"),
        ("--policy-tie-rotation=-1", "policy_tie_rotation: must be at least 0"),
    ],
)
def test_a_value_that_breaks_a_rule_is_named(flag: str, says: str) -> None:
    with pytest.raises(BadSettings, match=says):
        load(SchedulerSettings, "scheduler", [flag])


def test_limits_and_weights_of_metrics_are_given_by_name() -> None:
    flags = ["--policy-dynamic-limits-pct=cpu_usage_avg_5m=65,mem_usage_max_avg_1d=80", "--policy-load-usage=p99"]
    policy = load(SchedulerSettings, "scheduler", flags).policy
    assert policy.dynamic.limits_pct == {"cpu_usage_avg_5m": 65, "mem_usage_max_avg_1d": 80}
    assert DynamicPolicy.from_rules(policy.dynamic).limits_ratio == {
        "cpu_usage_avg_5m": 0.65,
        "mem_usage_max_avg_1d": 0.8,
    }
    assert policy.load.usage == "p99"


def test_some_resource_must_count() -> None:
    for flags in (
        ["--policy-load-cpu-weight=0", "--policy-load-memory-weight=0"],
        ["--policy-weights-resource-cpu=0", "--policy-weights-resource-memory=0"],
    ):
        with pytest.raises(BadSettings, match="must be above 0"):
            load(SchedulerSettings, "scheduler", flags)


def test_at_least_one_scorer_must_count() -> None:
    flags = [
        f"--policy-weights-{name}=0"
        for name in ("most-free", "fewest-zones", "spread", "recent-eviction", "soft-taints")
    ]
    with pytest.raises(BadSettings, match="at least one weight must be above 0"):
        load(SchedulerSettings, "scheduler", flags)


def test_rules_of_colocation_come_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "colo.yaml"
    file.write_text(
        """
scheduler:
  policy_colocation: &rules
    - is_colocated: false
    - selector: {labels: {pool: mixed}, requirements: [{key: cores, operator: Gt, values: ["16"]}]}
      batch_replicas_most: 4
evictor:
  policy_colocation: *rules
"""
    )
    closed, mixed = load(SchedulerSettings, "scheduler", file=file).policy.colocation
    assert load(EvictorSettings, "evictor", file=file).policy.colocation == (closed, mixed)
    assert closed == ColocationRule(is_colocated=False)
    assert mixed.selector.requirements == (Requirement(key="cores", operator=Operator.GT, values=("16",)),)
    assert mixed.batch_replicas_most == 4
    file.write_text("scheduler: {policy_colocation: [{selector: {label: {a: b}}}]}")
    with pytest.raises(
        BadSettings, match=r"policy_colocation\[0\].selector.label: there is no such member; did you mean"
    ):
        load(SchedulerSettings, "scheduler", file=file)
    file.write_text("scheduler: {policy_colocation: [{batch_replicas_most: -1}]}")
    with pytest.raises(BadSettings, match=r"policy_colocation\[0\].batch_replicas_most: must not be negative"):
        load(SchedulerSettings, "scheduler", file=file)
    environ = {"COLO_POLICY_COLOCATION": '[{"is_colocated": false}]'}
    for settings, name in ((SchedulerSettings, "scheduler"), (EvictorSettings, "evictor")):
        assert load(settings, name, environ=environ).policy.colocation == (closed,)
