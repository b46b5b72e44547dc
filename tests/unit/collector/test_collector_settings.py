"""What an operator may set, from every source, and what is refused with the name of the key."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_collector.rules import labelled_rules
from colo_collector.settings import CollectorSettings
from colo_common.events.subjects import encode_node
from colo_common.model.constraints import CpuBind, NumaPolicy, Taint
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_name import node_name
from colo_common.model.node_rules import NodeRules
from colo_common.runtime.settings import load


def test_the_defaults_are_valid_and_name_this_host() -> None:
    settings = load(CollectorSettings, "collector")
    assert settings.node == node_name(socket.gethostname())
    assert (settings.period_ms, settings.root, settings.subtree) == (1_000, "/", "colo")
    assert [(one.signal, one.above_pct, one.below_pct) for one in settings.policy().thresholds] == [
        ("cpu_some", 60, 40),
        ("memory_full", 10, 5),
        ("io_full", 40, 20),
    ]


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("Node-1", "node-1"),
        ("my_host", "my-host"),
        ("a..b", "a.b"),
        ("-x-", "x"),
        ("x.-y-.z", "x.y.z"),
        ("", "node"),
        ("___", "node"),
        ("ünï", "n"),
        ("n" * 300, "n" * 253),
    ],
)
def test_a_host_name_becomes_a_node_name(host: str, name: str) -> None:
    assert node_name(host) == name


@given(st.text(max_size=300))
def test_every_host_name_becomes_one_that_a_subject_takes(host: str) -> None:
    name = node_name(host)
    assert encode_node(name) == name.replace(".", "_")
    assert node_name(name) == name


def test_the_environment_and_flags_set_what_the_core_and_the_machine_use() -> None:
    environ = {
        "COLO_NODE": "n7",
        "COLO_COLLECTOR_ONLINE_GROUPS": "web=/web:LSR,db=/db",
        "COLO_COLLECTOR_LABELS": "rack=r1,pool=a",
        "COLO_COLLECTOR_IO_FULL_ABOVE_PCT": "0",
    }
    settings = load(CollectorSettings, "collector", ["--period-ms", "500", "--subtree=tier"], environ)
    assert (settings.node, settings.period_ms, settings.subtree) == ("n7", 500, "tier")
    assert settings.labels == {"rack": "r1", "pool": "a"}
    assert [one.name for one in settings.listed_groups()] == ["web", "db"]
    assert [one.signal for one in settings.policy().thresholds] == ["cpu_some", "memory_full"]


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        (["--node", "Not A Name"], "node"),
        (["--period-ms", "99"], "period_ms"),
        (["--period-ms", "60001"], "period_ms"),
        (["--root", "host"], "root"),
        (["--root", "/host/../etc"], "root"),
        (["--labels", "=x"], "labels"),
        (["--labels", f"a={'x' * 254}"], "labels"),
        (["--subtree", "a/b"], "subtree"),
        (["--taints", "spot"], "taints[0]"),
        (["--taints", "a=b:NoSchedule,spot:Never"], "taints[1]"),
        (["--taints", "a=b:NoSchedule,a=c:NoSchedule"], "taints[1]"),
        (["--taints", "a b:NoSchedule"], "taints[0]"),
        (["--rules-reserved-cpus", "4-2"], "rules_reserved_cpus"),
        (["--rules-amplification-pct", "99"], "rules.amplification_pct"),
        (["--rules-numa-policy", "some"], "--rules-numa-policy"),
        (["--rules-reserved-mcpu=-1"], "--rules-reserved-mcpu"),
        (["--online-groups", "web=/colo-online/x"], "online_groups[0]"),
        (["--online-groups", "web"], "online_groups[0]"),
        (["--online-groups", "batch=/colo"], "online_groups[0]"),
        (["--pressure-window-ms", "10"], "window_ms"),
        (["--cpu-some-below-pct", "60"], "thresholds.cpu_some.below_pct"),
        (["--cpu-some-above-pct", "101"], "thresholds.cpu_some.above_pct"),
    ],
)
def test_a_setting_that_breaks_its_rule_is_refused_by_its_name(flags: list[str], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(CollectorSettings, "collector", flags)
    assert str(caught.value).startswith(f"{field}:")


def test_the_operators_words_about_the_node_come_from_the_environment() -> None:
    environ = {
        "COLO_COLLECTOR_TAINTS": "team=films:NoSchedule, spot:NoExecute",
        "COLO_COLLECTOR_RULES_RESERVED_CPUS": "0-1,8",
        "COLO_RULES_RESERVED_MEMORY_BYTES": "1073741824",
        "COLO_COLLECTOR_RULES_NUMA_POLICY": "single-numa-node",
        "COLO_COLLECTOR_RULES_CPU_BIND": "full-pcpus",
        "COLO_COLLECTOR_RULES_NUMA_ALLOCATE": "most-allocated",
        "COLO_COLLECTOR_RULES_NUMA_RULE": "koordinator",
        "COLO_COLLECTOR_RULES_BATCH_REPLICAS_MOST": "50",
        "COLO_COLLECTOR_RULES_IS_COLOCATED": "no",
        "COLO_ONLINE": "off",
    }
    settings = load(CollectorSettings, "collector", [], environ)
    assert settings.node_taints() == (
        Taint(key="team", value="films", effect="NoSchedule"),
        Taint(key="spot", effect="NoExecute"),
    )
    assert settings.rules == NodeRules(
        reserved_cpus="0-1,8",
        reserved_memory_bytes=1 << 30,
        numa_policy=NumaPolicy.SINGLE_NUMA_NODE,
        cpu_bind=CpuBind.FULL_PCPUS,
        numa_allocate="most-allocated",
        numa_rule="koordinator",
        batch_replicas_most=50,
        is_colocated=False,
    )
    assert settings.online is False


def test_a_node_of_a_kubelet_has_the_options_of_that_kubelet() -> None:
    environ = {
        "COLO_COLLECTOR_RULES_NUMA_RULE": "kubelet",
        "COLO_COLLECTOR_RULES_NUMA_POLICY": "restricted",
        "COLO_COLLECTOR_RULES_NUMA_CLOSEST": "yes",
        "COLO_COLLECTOR_RULES_KUBELET_OPTIONS": "full-pcpus-only,distribute-cpus-across-numa",
    }
    assert load(CollectorSettings, "collector", [], environ).rules == NodeRules(
        numa_rule="kubelet",
        numa_policy=NumaPolicy.RESTRICTED,
        numa_closest=True,
        kubelet_options=("full-pcpus-only", "distribute-cpus-across-numa"),
    )
    with pytest.raises(InvalidInput, match=r"rules\.kubelet_options: must be among align-by-socket"):
        load(CollectorSettings, "collector", [], environ | {"COLO_COLLECTOR_RULES_KUBELET_OPTIONS": "fast"})
    with pytest.raises(InvalidInput, match=r"rules\.cpu_bind: must be default where numa_rule is kubelet"):
        load(CollectorSettings, "collector", [], environ | {"COLO_COLLECTOR_RULES_CPU_BIND": "full-pcpus"})


@pytest.mark.parametrize(
    ("label", "rule", "pct", "says"),
    [
        ("1.20", 100, 120, ""),
        ("1.209", 100, 120, ""),
        ("5", 100, 500, ""),
        ("1.20", 150, 150, ""),
        ("", 100, 100, ""),
        ("0.99", 100, 100, "not a ratio from 1.00 to 5.00"),
        ("5.01", 100, 100, "not a ratio from 1.00 to 5.00"),
        ("fast", 100, 100, "not a ratio from 1.00 to 5.00"),
        ("1e1", 100, 100, "not a ratio from 1.00 to 5.00"),
    ],
)
def test_koordinators_label_is_the_ratio_where_the_operator_set_none(label, rule, pct, says) -> None:
    assumed: list[str] = []
    labels = {"node.koordinator.sh/cpu-normalization-ratio": label} if label else {}
    rules = labelled_rules(NodeRules(cpu_normalization_pct=rule), labels, assumed)
    assert rules.cpu_normalization_pct == pct
    assert [says in each for each in assumed] == ([True] if says else [])
