"""Policy files: colo's own form, and the documents that users of other systems have already."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from colo_common.model.colocation_policy import KEYS, ColocationPolicy, PolicyValues, differences
from colo_common.model.invalid import InvalidInput
from colo_common.model.policy_file import policy_of
from colo_gateway.policy.replies import keys_shown

GIB = 1 << 30
EXAMPLE = Path(__file__).parents[3] / "examples" / "policy.yaml"

KOORDINATOR = {
    "enable": True,
    "cpuReclaimThresholdPercent": 70,
    "memoryCalculatePolicy": "request",
    "degradeTimeMinutes": 15,
    "nodeConfigs": [
        {"name": "gpu", "nodeSelector": {"matchLabels": {"gpu": "yes"}}, "cpuReclaimThresholdPercent": 50},
        {"name": "rest", "nodeSelector": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}, "enable": False},
    ],
}
FUYAO = """
apiVersion: v1
kind: ConfigMap
metadata: {name: openfuyao-colocation-config}
data:
  colocation-policy.yaml: |
    apiVersion: scheduling.openfuyao.io/v1alpha1
    kind: ColocationPolicy
    metadata: {name: default-colocation-policy}
    spec:
      enabled: true
      resourceSharing: {cpuThreshold: 0.8, memoryThreshold: 0.7}
      qosGuarantee: {onlineLatencySLO: 100ms, cpuBurstRatio: 2.0}
      eviction:
        enabled: true
        aggressive: false
        gracePeriodSeconds: 30
        cpuPressureThreshold: 0.9
        memoryPressureThreshold: 0.85
      numaAffinity: {enabled: true, strategy: "best-effort"}
      loadPrediction: {enabled: true, predictionWindow: "15m", historyDataRange: "7d"}
      rescheduling: {enabled: true, cooldownPeriod: "5m", maxMigratingPods: 10}
---
apiVersion: v1
kind: ConfigMap
data:
  node-policy.yaml: |
    nodeColocationConfig:
      - nodeSelector:
          matchLabels: {workload.type: "mixed"}
        colocationEnabled: true
        maxOfflinePods: 20
        resourceReserve: {cpu: "2", memory: "4Gi"}
"""


def own(**document: object) -> str:
    return json.dumps({"apiVersion": "colo.io/v1", "kind": "ColocationPolicy", **document})


def test_the_example_says_what_its_comments_say() -> None:
    form, policy = policy_of(EXAMPLE.read_bytes())
    assert (form, policy.match) == ("colo", "last")
    database = policy.values_of({"workload": "database"})
    assert (database.cpu_reclaim_pct, database.memory_reclaim_pct) == (50, 85)
    assert database.online_reserve_memory_bytes == 16 * GIB
    assert policy.values_of({"workload": "database", "tier": "payment"}).enabled is False
    assert policy.values_of({}) == policy.defaults


def test_koordinators_config_means_here_what_it_means_there() -> None:
    config_map = {"kind": "ConfigMap", "data": {"colocation-config": json.dumps(KOORDINATOR), "cpu-burst-config": "{}"}}
    form, policy = policy_of(json.dumps(config_map))
    assert form == "koordinator"
    # What it does not give is Koordinator's default, and the first match counts.
    assert policy.defaults == PolicyValues(
        enabled=True,
        cpu_reclaim_pct=70,
        memory_reclaim_pct=65,
        cpu_policy="usage",
        memory_policy="request",
        mid_mode="reclaimable",
        mid_cpu_most_pct=100,
        mid_memory_most_pct=100,
        mid_unallocated_pct=0,
    )
    gpu = policy.values_of({"gpu": "yes"})
    assert (gpu.enabled, gpu.cpu_reclaim_pct) == (True, 50)
    assert policy.values_of({"gpu": "no"}).enabled is False
    assert [(each.key, each.owner) for each in policy.unfollowed] == [
        ("cpu-burst-config", "executor"),
        ("colocation-config.degradeTimeMinutes", "overcommit"),
    ]
    assert policy_of(json.dumps(KOORDINATOR))[1].defaults == policy.defaults


def test_openfuyaos_config_maps_are_taken_as_they_are() -> None:
    form, policy = policy_of(FUYAO)
    assert (form, policy.match) == ("openfuyao", "first")
    assert policy.defaults == PolicyValues(
        enabled=True,
        cpu_reclaim_pct=80,
        memory_reclaim_pct=70,
        cpu_evict_pct=90,
        memory_evict_pct=85,
        online_latency_slo_ms=100,
        estimator="periodic",
        estimator_horizon_ms=900_000,
        estimator_history_ms=7 * 86_400_000,
    )
    mixed = policy.values_of({"workload.type": "mixed"})
    assert (mixed.online_reserve_cpu_mcpu, mixed.online_reserve_memory_bytes) == (2_000, 4 * GIB)
    assert mixed.batch_replicas_most == 20
    owners = {each.key.split(".")[1]: each.owner for each in policy.unfollowed}
    assert owners == {
        "eviction": "evictor",
        "qosGuarantee": "executor",
        "numaAffinity": "scheduler",
        "rescheduling": "scheduler",
    }
    assert not any("LatencySLO" in each.key for each in policy.unfollowed)
    assert all(each.why for each in policy.unfollowed)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("", "body: must be a policy; it is empty"),
        ("{a: 1}", "body: must be a policy: apiVersion colo.io/v1 and kind ColocationPolicy"),
        ("{kind: ColocationPolicy, apiVersion: v2}", "apiVersion: must be colo.io/v1"),
        (own(defaults={"cpu_reclame_pct": 1}), "no service owns this key; did you mean `cpu_reclaim_pct`?"),
        (own(defaults={"cpu_reclaim_pct": 101}), "defaults.cpu_reclaim_pct: must be 0 to 100"),
        (own(defaults={"cpu_reclaim_pct": "75%"}), "defaults.cpu_reclaim_pct: must be a whole number (pct)"),
        (own(defaults={"enabled": 1}), "defaults.enabled: must be true or false"),
        (own(defaults={"ramp_ms": -1}), "defaults.ramp_ms: must not be negative"),
        (own(defaults={"cpu_policy": "guess"}), "defaults.cpu_policy: must be one of usage, request, maxUsageRequest"),
        (own(match="any"), "match: must be first or last"),
        (own(overrides=[{"values": {"x": 1}}]), "overrides[0].values.x: no service owns this key"),
        (own(overrides=[{"selector": {"label": {}}}]), "overrides[0].selector.label: is not a key here"),
        (
            own(defaults={"cpu_reclaim_pct": 88, "cpu_evict_pct": 90}),
            "defaults.cpu_reclaim_pct: must be at most cpu_evict_pct - 5 = 85",
        ),
        (
            own(defaults={"cpu_evict_pct": 80}, overrides=[{"values": {"cpu_reclaim_pct": 80}}]),
            "overrides[0].cpu_reclaim_pct: must be at most cpu_evict_pct - 5 = 75",
        ),
        ('{"enable": true, "cpuReclaimThreshold": 1}', "cpuReclaimThreshold: is not a key here; did you mean"),
        ('{"enable": true, "cpuReclaimThresholdPercent": 120}', "above it more would be promised than the machine has"),
        ('{"enable": true, "cpuCalculatePolicy": "request"}', "Koordinator has no policy request for CPU"),
        ("{kind: ConfigMap, data: {foo: bar}}", "data.foo: is not a key here"),
        (FUYAO.replace("cpuThreshold: 0.8", "cpuThreshold: 80"), "cpuThreshold: must be a share from 0 to 1"),
        (own(defaults={"online_latency_slo_ms": 0}), "defaults.online_latency_slo_ms: must be 1 to 3600000"),
        (own(defaults={"online_latency_slo_ms": "100ms"}), "online_latency_slo_ms: must be a whole number (ms)"),
        (FUYAO.replace("100ms", "100"), "spec.qosGuarantee.onlineLatencySLO: must be a time with its unit"),
        (FUYAO.replace("100ms", '"0.5"'), "spec.qosGuarantee.onlineLatencySLO: must be a time with its unit"),
        (FUYAO.replace("100ms", "fast"), "spec.qosGuarantee.onlineLatencySLO: must be a time such as"),
        (FUYAO.replace("100ms", "0ms"), "spec.qosGuarantee.onlineLatencySLO: must be 1 to 3600000"),
        (FUYAO.replace("maxOfflinePods", "maxOfline"), "nodeColocationConfig[0].maxOfline: is not a key here"),
        (
            FUYAO.replace('"15m"', '"15"'),
            "spec.loadPrediction.predictionWindow: must be 5m to 12h: a step of an estimator is five minutes",
        ),
        (
            FUYAO.replace('"7d"', '"30d"'),
            "spec.loadPrediction.historyDataRange: must be 2 to 7 whole days: a day has to come back to be known, and",
        ),
        (FUYAO.replace("historyDataRange", "history"), "spec.loadPrediction.history: is not a key here"),
        (
            own(defaults={"estimator_horizon_ms": 900_000}),
            "defaults.estimator_horizon_ms: needs the estimator periodic or dsp in the same document",
        ),
        (own(defaults={"estimator": "n-sigma:99"}), "defaults.estimator: the number of n-sigma must be 0 to 20"),
        (FUYAO.replace("rescheduling:", "resched:"), "spec.resched: is not a key here; did you mean `rescheduling`?"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(text: str, refusal: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        policy_of(text)
    assert refusal in str(refused.value)


def test_load_prediction_that_is_not_enabled_is_no_estimator_and_the_rest_is_idle() -> None:
    _, policy = policy_of(FUYAO.replace("loadPrediction: {enabled: true", "loadPrediction: {enabled: false"))
    assert policy.defaults.estimator == "last"
    assert policy.defaults.estimator_horizon_ms is None
    idle = [each.key for each in policy.unfollowed if "loadPrediction" in each.key]
    assert idle == ["spec.loadPrediction.predictionWindow", "spec.loadPrediction.historyDataRange"]


def test_every_key_is_a_value_and_has_an_owner() -> None:
    assert tuple(KEYS) == PolicyValues.__struct_fields__
    assert {key.owner for key in KEYS.values()} <= {"overcommit", "scheduler", "evictor", "collector"}


def test_shares_of_a_hundred_are_not_lost_in_binary() -> None:
    assert policy_of(FUYAO.replace("0.8,", "0.29,"))[1].defaults.cpu_reclaim_pct == 29


def test_differences_name_the_place() -> None:
    old = ColocationPolicy(defaults=PolicyValues(cpu_reclaim_pct=75, ramp_ms=1))
    new = ColocationPolicy(defaults=PolicyValues(cpu_reclaim_pct=70, enabled=False))
    assert differences(old, new) == [
        ("defaults.cpu_reclaim_pct", "75", "70"),
        ("defaults.ramp_ms", "1", "-"),
        ("defaults.enabled", "-", "false"),
    ]
    assert differences(new, new) == []


def test_the_mid_tier_of_koordinator_is_in_force_and_is_what_online_work_gives_back_by_default() -> None:
    document = {
        "enable": True,
        "midCPUThresholdPercent": 45,
        "midUnallocatedPercent": 50,
        "nodeConfigs": [
            {"name": "fixed", "midReclaimMode": "static", "midStaticCPUReservedPercent": 20},
            {"name": "back", "midReclaimMode": "", "midMemoryThresholdPercent": 65},
        ],
    }
    _, policy = policy_of(json.dumps(document))
    given = policy.defaults
    assert (given.mid_mode, given.mid_cpu_most_pct, given.mid_memory_most_pct) == ("reclaimable", 45, 100)
    assert given.mid_unallocated_pct == 50
    assert policy.overrides[0].values == PolicyValues(mid_mode="static", mid_static_cpu_pct=20)
    assert policy.overrides[1].values == PolicyValues(mid_mode="reclaimable", mid_memory_most_pct=65)
    assert policy.unfollowed == ()
    for name, value, rule in (
        ("midReclaimMode", "dynamic", "must be static, or absent"),
        ("midReclaimMode", "off", "must be static, or absent"),
        ("midCPUThresholdPercent", 101, "must be 0 to 100"),
        ("midUnallocatedPercent", "half", "must be a whole number"),
    ):
        with pytest.raises(InvalidInput, match=rule):
            policy_of(json.dumps({name: value}))


def test_host_applications_are_units_and_groups_by_node_labels() -> None:
    applications = "[{name: nginx, unit: nginx.service}, {name: jobs, qos: BE, band: free, path: /batch/jobs}]"
    override = (
        "{name: edge, selector: {labels: {pool: edge}}, applications: [{name: web, qos: LSR, unit: web-blue.slice}]}"
    )
    text = (
        "apiVersion: colo.io/v1\nkind: ColocationPolicy\n"
        f"host_applications: {{applications: {applications}, overrides: [{override}]}}"
    )
    _, policy = policy_of(text)
    assert policy.host_applications is not None
    assert [one.text() for one in policy.host_applications.of({}, policy.match)] == [
        "nginx=/system.slice/nginx.service:LS prod",
        "jobs=/batch/jobs:BE free",
    ]
    edge = policy.host_applications.of({"pool": "edge"}, policy.match)
    assert [one.text() for one in edge] == ["web=/web.slice/web-blue.slice:LSR prod"]
    assert differences(ColocationPolicy(), policy)[0] == (
        "host_applications.applications[0]",
        "-",
        "nginx=/system.slice/nginx.service:LS prod",
    )
    assert {(key.key, key.owner, key.in_force) for key in keys_shown(policy)} >= {
        ("host_applications.overrides[0].applications[0]", "collector", True)
    }


@pytest.mark.parametrize(
    ("entry", "field", "rule"),
    [
        ("{name: a}", ".unit", "unit or path"),
        ("{name: a, unit: a.service, path: /a}", ".unit", "unit or path"),
        ("{name: a, unit: a.timer}", ".unit", ".service or .slice"),
        ("{name: a, unit: a--b.slice}", ".unit", "no empty part"),
        ("{name: a, qos: best, path: /a}", ".qos", "must be one of"),
        ("{name: a, qos: BE, band: prod, path: /a}", ".band", "may only have"),
        ("{name: a, path: a}", "", "below the root"),
        ("{name: a b, path: /a}", "", "the name must be"),
        ("{name: a, path: /a, cpu: 1}", ".cpu", ""),
    ],
)
def test_a_host_application_that_breaks_a_rule_is_named(entry: str, field: str, rule: str) -> None:
    text = f"apiVersion: colo.io/v1\nkind: ColocationPolicy\nhost_applications: {{applications: [{entry}]}}"
    with pytest.raises(InvalidInput) as caught:
        policy_of(text)
    assert caught.value.field == f"host_applications.applications[0]{field}"
    assert rule in caught.value.rule


def test_koordinators_list_of_host_applications_is_taken_from_its_config_map() -> None:
    host = '{"applications":[{"name":"yarn","qos":"BE","priority":"koord-batch"}]}'
    data = {"colocation-config": '{"enable":true}', "host-application-config": host}
    _, policy = policy_of(json.dumps({"kind": "ConfigMap", "data": data}))
    assert policy.host_applications is not None
    assert [one.text() for one in policy.host_applications.of({})] == ["yarn=/host-best-effort/yarn:BE batch"]
    assert not policy.unfollowed
