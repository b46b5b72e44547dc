"""Reads a colocation policy from a file: colo's own form, Koordinator's `slo-controller-config`, openFuyao's ConfigMaps.

A key that nobody owns is refused; a key of another system that is understood and that no service follows is kept with the reason.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from msgspec import structs

from colo_common.model.colocation_policy import (
    KEYS,
    ColocationPolicy,
    PolicyOverride,
    PolicyValues,
    UnfollowedKey,
)
from colo_common.model.duration import parse_duration_ms
from colo_common.model.estimator_rules import LAST, check_history, check_horizon
from colo_common.model.host_applications import (
    HostApplication,
    HostApplicationOverride,
    HostApplications,
    application_of,
    path_of_unit,
    read_host_applications,
)
from colo_common.model.invalid import InvalidInput
from colo_common.model.nearest import hint
from colo_common.model.node_selector import Selector, requirements_of
from colo_common.model.plain_values import mapping_of, text_of
from colo_common.model.plain_yaml import read_documents, read_yaml
from colo_common.model.quantity import parse_bytes, parse_mcpu
from colo_common.model.slo import LATENCY_SLO_MS_MOST, check_latency_slo

__all__ = ["FORMS", "policy_of"]

FORMS: Final = ("colo", "koordinator", "openfuyao")
_API: Final = "colo.io/v1"
_KIND: Final = "ColocationPolicy"
_OWN: Final = ("apiVersion", "kind", "metadata", "match", "defaults", "overrides", "host_applications")
_HOST: Final = ("applications", "overrides")
_HOST_OVERRIDE: Final = ("name", "selector", "applications")
_APPLICATION: Final = ("name", "qos", "band", "unit", "path")
#: Koordinator's list of host applications, a text of JSON beside `colocation-config`.
_HOST_CONFIG: Final = "host-application-config"
_OVERRIDE: Final = ("name", "selector", "values")
_KOORDINATOR: Final = "colocation-config"
_FUYAO: Final = ("colocation-policy.yaml", "node-policy.yaml")
_LIST: Final = "nodeColocationConfig"
_VALUE_SHOWN: Final = 80
_SPAN_MS_MOST: Final = 1 << 53

#: Koordinator's key -> colo's key.
_FROM_KOORDINATOR: Final = {
    "enable": "enabled",
    "cpuReclaimThresholdPercent": "cpu_reclaim_pct",
    "memoryReclaimThresholdPercent": "memory_reclaim_pct",
    "cpuCalculatePolicy": "cpu_policy",
    "memoryCalculatePolicy": "memory_policy",
    "batchCPUThresholdPercent": "batch_cpu_most_pct",
    "batchMemoryThresholdPercent": "batch_memory_most_pct",
    "midReclaimMode": "mid_mode",
    "midCPUThresholdPercent": "mid_cpu_most_pct",
    "midMemoryThresholdPercent": "mid_memory_most_pct",
    "midUnallocatedPercent": "mid_unallocated_pct",
    "midStaticCPUReservedPercent": "mid_static_cpu_pct",
    "midStaticMemoryReservedPercent": "mid_static_memory_pct",
}
#: Koordinator's words of a choice that colo says otherwise: key, word -> colo's word.
_KOORDINATOR_WORDS: Final = {("midReclaimMode", ""): "reclaimable"}
#: What Koordinator takes where its document says nothing (pkg/util/sloconfig/colocation_config.go).
_KOORDINATOR_DEFAULTS: Final = PolicyValues(
    enabled=False,
    cpu_reclaim_pct=60,
    memory_reclaim_pct=65,
    cpu_policy="usage",
    memory_policy="usage",
    mid_mode="reclaimable",
    mid_cpu_most_pct=100,
    mid_memory_most_pct=100,
    mid_unallocated_pct=0,
)
_SETTING: Final = ("overcommit", "a setting of the service, the same for all nodes")
_UNFOLLOWED_KOORDINATOR: Final[Mapping[str, tuple[str, str]]] = {
    "metricAggregateDurationSeconds": ("overcommit", "the newest sample counts, not an average"),
    "metricReportIntervalSeconds": ("collector", "a setting of the agent: period_ms"),
    "metricAggregatePolicy": ("overcommit", "windows are of one and five minutes, an hour and a day"),
    "metricMemoryCollectPolicy": ("collector", "memory is counted without what the kernel can drop"),
    "degradeTimeMinutes": (_SETTING[0], f"{_SETTING[1]}: stale_after_ms"),
    "updateTimeThresholdSeconds": (_SETTING[0], f"{_SETTING[1]}: refresh_ms"),
    "resourceDiffThreshold": (_SETTING[0], f"{_SETTING[1]}: shrink_pct and grow_pct"),
    "extensions": ("overcommit", "extensions of Koordinator are not known here"),
}
_UNFOLLOWED_CONFIGS: Final[Mapping[str, tuple[str, str]]] = {
    "resource-threshold-config": ("executor", "the reflex takes its thresholds from the executor's settings"),
    "resource-qos-config": ("executor", "classes have the executor's own knobs"),
    "cpu-burst-config": ("executor", "burst is the executor's setting"),
    "system-config": ("executor", "nobody writes the node's sysctls"),
    "cpu-normalization-config": ("collector", "a rule of the node, cpu_normalization_pct, or its label of Koordinator"),
    "resource-amplification-config": ("scheduler", "amplification is a rule of the node"),
}
#: Sections of openFuyao's policy beside those that are read: whose they would be.
_UNFOLLOWED_FUYAO: Final[Mapping[str, tuple[str, str]]] = {
    "qosGuarantee": ("executor", "a setting of the agent"),
    "numaAffinity": ("scheduler", "a rule of the node: numa_policy"),
    "rescheduling": ("scheduler", "running work is not moved"),
}
_PREDICTION: Final = "loadPrediction"
#: openFuyao's load prediction is the largest value that the same minutes of the days before had.
_PREDICTOR: Final = "periodic"
#: The one key of a section that is not followed that is.
_LATENCY_SLO: Final = ("qosGuarantee", "onlineLatencySLO")
_EVICTION: Final[Mapping[str, str]] = {
    "cpuPressureThreshold": "cpu_evict_pct",
    "memoryPressureThreshold": "memory_evict_pct",
}
_UNFOLLOWED_EVICTION: Final = ("enabled", "aggressive", "gracePeriodSeconds")


def policy_of(text: str | bytes) -> tuple[str, ColocationPolicy]:
    """The form of the file (one of FORMS) and its policy, validated. Raises InvalidInput with the place and the rule.

    openFuyao's two ConfigMaps may stand in one file, divided by `---`.
    """
    documents = read_documents(text)
    if not documents:
        raise InvalidInput("body", "must be a policy; it is empty", "")
    form, policy = _any_form([mapping_of(each, "body", within="") for each in documents])
    policy.validate()
    return form, policy


def _any_form(documents: list[Mapping[str, Any]]) -> tuple[str, ColocationPolicy]:
    parts: dict[str, Any] = {}
    for document in documents:
        parts |= _parts(document)
    if "own" in parts:
        if len(documents) > 1:
            raise InvalidInput("body", "colo's own form is one document", len(documents))
        return "colo", _own(parts["own"])
    if _KOORDINATOR in parts:
        return "koordinator", _koordinator(parts)
    return "openfuyao", _fuyao(parts)


def _parts(document: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of one document by name: those of a ConfigMap are texts within it."""
    if document.get("kind") == "ConfigMap":
        data = mapping_of(document.get("data"), "data")
        texts = (_HOST_CONFIG, *_UNFOLLOWED_CONFIGS)
        known = (_KOORDINATOR, *_FUYAO, *texts)
        found: dict[str, Any] = {}
        for name, text in mapping_of(data, "data", known).items():
            found[name] = text if name in texts else read_yaml(text_of(text, f"data.{name}"), f"data.{name}")
        if not set(found) & {_KOORDINATOR, *_FUYAO}:
            raise InvalidInput("data", f"must have {_KOORDINATOR}, {' or '.join(_FUYAO)}", sorted(found))
        return found
    if _LIST in document:
        return {_FUYAO[1]: document}
    if document.get("kind") == _KIND:
        version = str(document.get("apiVersion", ""))
        if version == _API:
            return {"own": document}
        if "openfuyao" in version:
            return {_FUYAO[0]: document}
        raise InvalidInput("apiVersion", f"must be {_API}, or one of openFuyao's", version)
    if set(document) & {*_FROM_KOORDINATOR, *_UNFOLLOWED_KOORDINATOR, "nodeConfigs"}:
        return {_KOORDINATOR: document}
    rule = f"must be a policy: apiVersion {_API} and kind {_KIND}, or Koordinator's or openFuyao's ConfigMap"
    raise InvalidInput("body", rule, sorted(map(str, document))[:5])


# ---- colo's own form


def _own(document: Mapping[str, Any]) -> ColocationPolicy:
    given = mapping_of(document, "body", _OWN, within="")
    match = given.get("match", "last")
    if match not in ("first", "last"):
        raise InvalidInput("match", "must be first or last: which of several overrides counts", match)
    overrides = []
    for number, each in enumerate(_list(given.get("overrides", []), "overrides")):
        field = f"overrides[{number}]"
        override = mapping_of(each, field, _OVERRIDE)
        overrides.append(
            PolicyOverride(
                name=text_of(override.get("name", ""), f"{field}.name"),
                selector=_selector(override.get("selector", {}), f"{field}.selector"),
                values=_values(override.get("values", {}), f"{field}.values"),
            )
        )
    return ColocationPolicy(
        match=match,
        defaults=_values(given.get("defaults", {}), "defaults"),
        overrides=tuple(overrides),
        host_applications=_host_applications(given["host_applications"]) if "host_applications" in given else None,
    )


def _host_applications(value: object) -> HostApplications:
    field = "host_applications"
    given = mapping_of(value, field, _HOST)
    overrides = []
    for number, each in enumerate(_list(given.get("overrides", []), f"{field}.overrides")):
        where = f"{field}.overrides[{number}]"
        override = mapping_of(each, where, _HOST_OVERRIDE)
        overrides.append(
            HostApplicationOverride(
                name=text_of(override.get("name", ""), f"{where}.name"),
                selector=_selector(override.get("selector", {}), f"{where}.selector"),
                applications=_applications(override.get("applications", []), f"{where}.applications"),
            )
        )
    return HostApplications(
        applications=_applications(given.get("applications", []), f"{field}.applications"), overrides=tuple(overrides)
    )


def _applications(value: object, field: str) -> tuple[HostApplication, ...]:
    found = []
    for number, each in enumerate(_list(value, field)):
        where = f"{field}[{number}]"
        given = mapping_of(each, where, _APPLICATION)
        words = {name: text_of(given.get(name, ""), f"{where}.{name}") for name in _APPLICATION}
        if bool(words["unit"]) == bool(words["path"]):
            raise InvalidInput(f"{where}.unit", "unit or path must be given, and not both", words["unit"])
        path = words["path"] or path_of_unit(words["unit"], f"{where}.unit")
        found.append(application_of(words["name"], words["qos"], words["band"], path, where))
    return tuple(found)


def _values(value: object, field: str) -> PolicyValues:
    given = mapping_of(value, field)
    for name in given:
        if name not in KEYS:
            raise InvalidInput(f"{field}.{name}", f"no service owns this key; {hint(name, KEYS, 'keys')}", given[name])
    return PolicyValues(**{name: _typed(name, each, f"{field}.{name}") for name, each in given.items()})


def _typed(name: str, value: object, field: str) -> Any:
    """The value in the type and unit of its key: "2" of CPU and "4Gi" of memory are read as in a job."""
    kind = KEYS[name].kind
    if kind == "flag":
        if not isinstance(value, bool):
            raise InvalidInput(field, "must be true or false", value)
        return value
    if kind == "choice":
        return text_of(value, field)
    if kind == "bytes" and isinstance(value, str):
        return parse_bytes(value, field)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(field, f"must be a whole number ({kind})", value)
    return value


def _selector(value: object, field: str) -> Selector:
    given = mapping_of(value, field, ("labels", "requirements"))
    labels = mapping_of(given.get("labels", {}), f"{field}.labels")
    return Selector(
        labels={key: text_of(each, f"{field}.labels.{key}") for key, each in labels.items()},
        requirements=requirements_of(given.get("requirements"), f"{field}.requirements"),
    )


def _list(value: object, field: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidInput(field, "must be a list", value)
    return value


def _kubernetes_selector(value: object, field: str) -> Selector:
    """The selector of Kubernetes: matchLabels and matchExpressions."""
    given = mapping_of(value, field, ("matchLabels", "matchExpressions"))
    return _selector({"labels": given.get("matchLabels") or {}, "requirements": given.get("matchExpressions")}, field)


# ---- Koordinator's form


def _koordinator(parts: Mapping[str, Any]) -> ColocationPolicy:
    """`colocation-config`: of several nodeConfigs the first that selects a node counts. A key that it lacks has
    Koordinator's default.
    """
    document = mapping_of(parts[_KOORDINATOR], _KOORDINATOR)
    unfollowed = [
        UnfollowedKey(key=name, value=_shown(parts[name]), owner=owner, why=why)
        for name, (owner, why) in _UNFOLLOWED_CONFIGS.items()
        if name in parts
    ]
    known = (*_FROM_KOORDINATOR, *_UNFOLLOWED_KOORDINATOR)
    given = mapping_of(document, _KOORDINATOR, (*known, "nodeConfigs"))
    defaults = _koordinator_values(given, _KOORDINATOR, unfollowed).over(_KOORDINATOR_DEFAULTS)
    overrides = []
    for number, each in enumerate(_list(given.get("nodeConfigs") or [], "nodeConfigs")):
        field = f"nodeConfigs[{number}]"
        config = mapping_of(each, field, (*known, "name", "nodeSelector"))
        overrides.append(
            PolicyOverride(
                name=text_of(config.get("name", ""), f"{field}.name"),
                selector=_kubernetes_selector(config.get("nodeSelector") or {}, f"{field}.nodeSelector"),
                values=_koordinator_values(config, field, unfollowed),
            )
        )
    host = parts.get(_HOST_CONFIG)
    return ColocationPolicy(
        match="first",
        defaults=defaults,
        overrides=tuple(overrides),
        unfollowed=tuple(unfollowed),
        host_applications=None if host is None else read_host_applications(text_of(host, _HOST_CONFIG), _HOST_CONFIG),
    )


def _koordinator_values(given: Mapping[str, Any], field: str, unfollowed: list[UnfollowedKey]) -> PolicyValues:
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in _UNFOLLOWED_KOORDINATOR:
            owner, why = _UNFOLLOWED_KOORDINATOR[name]
            unfollowed.append(UnfollowedKey(key=f"{field}.{name}", value=_shown(value), owner=owner, why=why))
        elif name in _FROM_KOORDINATOR and value is not None:
            own = _FROM_KOORDINATOR[name]
            found[own] = _KOORDINATOR_WORDS.get((name, str(value)), _typed(own, value, f"{field}.{name}"))
    if found.get("cpu_policy") == "request":
        rule = (
            "must be usage or maxUsageRequest; Koordinator has no policy request for CPU and takes usage without a word"
        )
        raise InvalidInput(f"{field}.cpuCalculatePolicy", rule, "request")
    if found.get("mid_mode", "reclaimable") not in ("reclaimable", "static"):
        rule = "must be static, or absent for what online work gives back"
        raise InvalidInput(f"{field}.midReclaimMode", rule, found["mid_mode"])
    for name, own in _FROM_KOORDINATOR.items():
        if KEYS[own].kind == "pct" and not 0 <= found.get(own, 0) <= 100:
            rule = "must be 0 to 100: above it more would be promised than the machine has"
            raise InvalidInput(f"{field}.{name}", rule, found[own])
    return PolicyValues(**found)


# ---- openFuyao's form


def _fuyao(parts: Mapping[str, Any]) -> ColocationPolicy:
    """`ColocationPolicy` and `nodeColocationConfig`; of several entries of the latter the first that selects a node counts."""
    unfollowed: list[UnfollowedKey] = []
    defaults = _fuyao_defaults(parts.get(_FUYAO[0]) or {}, unfollowed)
    document = mapping_of(parts.get(_FUYAO[1]) or {}, _FUYAO[1], (_LIST,), within="")
    overrides = []
    for number, each in enumerate(_list(document.get(_LIST) or [], _LIST)):
        field = f"{_LIST}[{number}]"
        given = mapping_of(
            each, field, ("name", "nodeSelector", "colocationEnabled", "maxOfflinePods", "resourceReserve")
        )
        reserve = mapping_of(given.get("resourceReserve") or {}, f"{field}.resourceReserve", ("cpu", "memory"))
        values = PolicyValues(
            enabled=_optional(given, "colocationEnabled", "enabled", field),
            batch_replicas_most=_optional(given, "maxOfflinePods", "batch_replicas_most", field),
        )
        if "cpu" in reserve:
            mcpu = parse_mcpu(reserve["cpu"], f"{field}.resourceReserve.cpu")
            values = structs.replace(values, online_reserve_cpu_mcpu=mcpu)
        if "memory" in reserve:
            size = parse_bytes(reserve["memory"], f"{field}.resourceReserve.memory")
            values = structs.replace(values, online_reserve_memory_bytes=size)
        overrides.append(
            PolicyOverride(
                name=text_of(given.get("name", ""), f"{field}.name"),
                selector=_kubernetes_selector(given.get("nodeSelector") or {}, f"{field}.nodeSelector"),
                values=values,
            )
        )
    return ColocationPolicy(match="first", defaults=defaults, overrides=tuple(overrides), unfollowed=tuple(unfollowed))


def _fuyao_defaults(document: Mapping[str, Any], unfollowed: list[UnfollowedKey]) -> PolicyValues:
    given = mapping_of(document, _FUYAO[0], ("apiVersion", "kind", "metadata", "spec"), within="")
    known = ("enabled", "resourceSharing", "eviction", _PREDICTION, *_UNFOLLOWED_FUYAO)
    spec = mapping_of(given.get("spec") or {}, "spec", known)
    found: dict[str, Any] = {}
    if "enabled" in spec:
        found["enabled"] = _typed("enabled", spec["enabled"], "spec.enabled")
    sharing = mapping_of(spec.get("resourceSharing") or {}, "spec.resourceSharing", ("cpuThreshold", "memoryThreshold"))
    for resource in ("cpu", "memory"):
        name = f"{resource}Threshold"
        if name in sharing:
            found[f"{resource}_reclaim_pct"] = _percent(sharing[name], f"spec.resourceSharing.{name}")
    eviction = mapping_of(spec.get("eviction") or {}, "spec.eviction", (*_EVICTION, *_UNFOLLOWED_EVICTION))
    for name, value in eviction.items():
        if name in _EVICTION:
            found[_EVICTION[name]] = _percent(value, f"spec.eviction.{name}")
        else:
            why = "evictions follow the evictor's settings"
            unfollowed.append(UnfollowedKey(key=f"spec.eviction.{name}", value=_shown(value), owner="evictor", why=why))
    found |= _load_prediction(spec.get(_PREDICTION) or {}, unfollowed)
    for section, whose in _UNFOLLOWED_FUYAO.items():
        for name, value in mapping_of(spec.get(section) or {}, f"spec.{section}").items():
            if (section, name) == _LATENCY_SLO:
                found["online_latency_slo_ms"] = _latency_slo_ms(value, f"spec.{section}.{name}")
                continue
            owner, why = whose
            unfollowed.append(UnfollowedKey(key=f"spec.{section}.{name}", value=_shown(value), owner=owner, why=why))
    return PolicyValues(**found)


def _load_prediction(value: object, unfollowed: list[UnfollowedKey]) -> dict[str, Any]:
    """The estimator, and how far it looks ahead and back. Where it is not enabled the newest use counts, and the rest is idle."""
    field = f"spec.{_PREDICTION}"
    given = mapping_of(value, field, ("enabled", "predictionWindow", "historyDataRange"))
    if not given:
        return {}
    found: dict[str, Any] = {"estimator": _PREDICTOR}
    for name, own, check in (
        ("predictionWindow", "estimator_horizon_ms", check_horizon),
        ("historyDataRange", "estimator_history_ms", check_history),
    ):
        if name in given:
            place = f"{field}.{name}"
            found[own] = parse_duration_ms(text_of(given[name], place), place, max_ms=_SPAN_MS_MOST)
            check(found[own], place)
    if _typed("enabled", given.get("enabled", True), f"{field}.enabled"):
        return found
    why = "enabled is false there: nothing is foretold"
    for name in ("predictionWindow", "historyDataRange"):
        if name in given:
            unfollowed.append(
                UnfollowedKey(key=f"{field}.{name}", value=_shown(given[name]), owner="overcommit", why=why)
            )
    return {"estimator": LAST}


def _percent(value: object, field: str) -> int:
    """A share from 0 to 1 as whole percent, rounded down. Decimal, because 0.29 * 100 is below 29 in binary."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput(field, "must be a share from 0 to 1", value)
    try:
        share = Decimal(str(value))
    except InvalidOperation as error:
        raise InvalidInput(field, "must be a share from 0 to 1", value) from error
    if not (share.is_finite() and 0 <= share <= 1):
        raise InvalidInput(field, "must be a share from 0 to 1", value)
    return int(share * 100)


def _latency_slo_ms(value: object, field: str) -> int:
    """A time with its unit. A bare number is refused: as seconds, which it is elsewhere, it would rarely be what was meant."""
    if not isinstance(value, str) or value.strip().replace(".", "", 1).isdigit():
        raise InvalidInput(field, 'must be a time with its unit, such as "100ms"', value)
    slo_ms = parse_duration_ms(value, field, max_ms=LATENCY_SLO_MS_MOST)
    check_latency_slo(slo_ms, field)
    return slo_ms


def _optional(given: Mapping[str, Any], name: str, own: str, field: str) -> Any:
    return _typed(own, given[name], f"{field}.{name}") if name in given else None


def _shown(value: object) -> str:
    return " ".join(str(value).split())[:_VALUE_SHOWN]
