"""What workloads say of themselves: a metric of their own, its slowdown against their baseline, and how often it broke its SLO.

Utilisation may be high and nobody hurt, or low and somebody; the workload's own metric decides. Values are in thousandths.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct, structs

from colo_collector.latency_slo import SetLatencySlo
from colo_common.events.node import BusinessMetric, SloViolations
from colo_common.model.invalid import InvalidInput
from colo_common.model.sketch import Sketch

__all__ = ["VALUE_MAX", "BusinessWatch", "MetricRule", "parse_business_metrics", "values_of"]

WINDOWS_MS: Final = (300_000, 600_000, 1_800_000)
_STEP_MS: Final = 30_000
_STEPS_MAX: Final = WINDOWS_MS[-1] // _STEP_MS
_OWN_BASELINE_LEAST: Final = 20
"""Values after which a workload without a declared baseline has one of its own: the median of half an hour."""
_RULES_MAX: Final = 100
_LINES_MAX: Final = 100_000
VALUE_MAX: Final = 1e12
_WORKLOAD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./#-]{0,252}", re.ASCII)
_METRIC: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]{0,199}", re.ASCII)
_SAMPLE: Final = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{.*\})?\s+(\S+)(?:\s.*)?", re.ASCII)
_KEYS: Final = frozenset({"metric", "kind", "worse", "baseline", "slo"})
_PUSH: Final = re.compile(r"push:(any|[0-9a-f]{64})", re.ASCII)


class MetricRule(Struct, frozen=True, kw_only=True):
    """One workload's metric: where it is scraped, which way is worse, its baseline and its SLO (None: none).

    `has_default_slo`: its SLO is that of latencies which declare none. `workload` is its name in the sample, its replica, or
    "namespace/name" of a pod. With `url` "" the workload says its values
    itself, and `push` is the SHA-256 of the token by which it may ("any": whoever the bus lets in).
    """

    workload: str
    url: str
    metric: str
    worse: Literal["higher", "lower"] = "higher"
    baseline_milli: int | None = None
    slo_milli: int | None = None
    push: str = ""
    has_default_slo: bool = False


def parse_business_metrics(
    texts: Sequence[str], online_latency_slo_ms: int, field: str = "business_metrics"
) -> tuple[MetricRule, ...]:
    """The rules of texts such as "web=http://127.0.0.1:9100/metrics;metric=p99_ms;baseline=40;slo=100", or "web=push:SHA256;...".

    `worse=lower` is for what should be high; `kind=other` for what is no latency and has no SLO unless one is given: the SLO of a
    latency is `online_latency_slo_ms` (seed 004's onlineLatencySLO), in milliseconds, or seconds for a metric named `*_seconds`.
    Raises InvalidInput that names the entry.
    """
    if len(texts) > _RULES_MAX:
        raise InvalidInput(field, f"may be at most {_RULES_MAX}", len(texts))
    found: list[MetricRule] = []
    for index, text in enumerate(texts):
        where = f"{field}[{index}]"
        name, equals, rest = text.partition("=")
        url, *options = rest.split(";")
        is_scraped, pushed = url.startswith(("http://", "https://")), _PUSH.fullmatch(url)
        if not equals or not _WORKLOAD.fullmatch(name) or not (is_scraped or pushed):
            rule = 'must read "workload=http://...;metric=NAME" or "workload=push:SHA256;metric=NAME" and options'
            raise InvalidInput(where, rule, text)
        if any(name == other.workload for other in found):
            raise InvalidInput(where, "a workload may come once", name)
        known: dict[str, str] = {}
        for option in options:
            key, _, value = option.partition("=")
            if key not in _KEYS or key in known:
                raise InvalidInput(where, f"options are {' '.join(sorted(_KEYS))}, each once", option)
            known[key] = value
        push = "" if pushed is None else pushed[1]
        found.append(_rule(name, "" if push else url, push, known, online_latency_slo_ms, where))
    return tuple(found)


def _rule(name: str, url: str, push: str, known: Mapping[str, str], slo_ms: int, where: str) -> MetricRule:
    metric = known.get("metric", "")
    if not _METRIC.fullmatch(metric):
        raise InvalidInput(f"{where}.metric", "must be the name of a metric", metric)
    worse, kind = known.get("worse", "higher"), known.get("kind", "latency")
    if worse not in ("higher", "lower"):
        raise InvalidInput(f"{where}.worse", "must be higher or lower", worse)
    if kind not in ("latency", "other") or (kind == "latency" and worse == "lower" and "kind" in known):
        raise InvalidInput(f"{where}.kind", "must be latency or other; a latency is worse when it is higher", kind)
    slo = _milli(known.get("slo"), f"{where}.slo")
    has_default_slo = slo is None and kind == "latency" and worse == "higher"
    return MetricRule(
        workload=name,
        url=url,
        metric=metric,
        worse="higher" if worse == "higher" else "lower",
        baseline_milli=_milli(known.get("baseline"), f"{where}.baseline"),
        slo_milli=_slo_milli(metric, slo_ms) if has_default_slo else slo,
        push=push,
        has_default_slo=has_default_slo,
    )


def _slo_milli(metric: str, slo_ms: int) -> int:
    """The SLO in thousandths of the metric's unit."""
    return slo_ms if metric.endswith("_seconds") else slo_ms * 1_000


def _milli(text: str | None, field: str) -> int | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError as error:
        raise InvalidInput(field, "must be a number", text) from error
    if not 0 < value <= VALUE_MAX:
        raise InvalidInput(field, "must be above 0 and at most 1e12", text)
    return max(round(value * 1_000), 1)


def values_of(text: str, metric: str) -> tuple[float, ...]:
    """The finite values of a metric in an OpenMetrics or Prometheus text, of all its series; lines of another form are skipped."""
    found = []
    for number, line in enumerate(text.split("\n")):
        if number >= _LINES_MAX:
            break
        if not line.startswith(metric):
            continue
        match = _SAMPLE.fullmatch(line.rstrip("\r"))
        if match is None or match[1] != metric:
            continue
        try:
            value = float(match[2])
        except ValueError:
            continue
        if math.isfinite(value) and 0 <= value <= VALUE_MAX:
            found.append(value)
    return tuple(found)


class _Step(Struct, kw_only=True):
    began_ms: int
    samples: int
    above: int
    sketch: Sketch


class _Watched(Struct, kw_only=True):
    rule: MetricRule
    value_milli: int = 0
    at_ms: int | None = None
    steps: deque[_Step]
    slo_revision: int = 0
    slo_since_ms: int = 0
    own_baseline_milli: int | None = None


class BusinessWatch:
    """The metrics of one machine's workloads over half an hour. Time is a monotonic clock's."""

    def __init__(self, rules: Sequence[MetricRule]) -> None:
        self._watched = {rule.workload: _Watched(rule=rule, steps=deque(maxlen=_STEPS_MAX)) for rule in rules}

    def set_latency_slo(self, slo: SetLatencySlo) -> None:
        """Judge the latencies that declare no SLO by this one from now on, and again what came in the last half hour.

        What came before is known within four percent (`Sketch.above`).
        """
        for watched in self._watched.values():
            if not watched.rule.has_default_slo:
                continue
            slo_milli = _slo_milli(watched.rule.metric, slo.slo_ms)
            watched.slo_revision, watched.slo_since_ms = slo.revision, slo.since_ms
            if slo_milli == watched.rule.slo_milli:
                continue
            watched.rule = structs.replace(watched.rule, slo_milli=slo_milli)
            for step in watched.steps:
                step.above = step.sketch.above(slo_milli)

    def take(self, workload: str, values: Sequence[float], now_ms: int) -> bool:
        """Take what was scraped: of several series the worst one. False when there was none."""
        watched = self._watched[workload]
        if not values:
            return False
        rule = watched.rule
        worst = max(values) if rule.worse == "higher" else min(values)
        _add(watched, (worst,), now_ms)
        watched.value_milli, watched.at_ms = round(worst * 1_000), now_ms
        return True

    def take_pushed(self, workload: str, values: Sequence[float], age_ms: int, now_ms: int) -> BusinessMetric:
        """Take what the workload sent: each value counts, and the last one, so old, is its newest unless a newer one is known."""
        watched = self._watched[workload]
        _add(watched, values, now_ms)
        at_ms = now_ms - age_ms
        if watched.at_ms is None or at_ms >= watched.at_ms:
            watched.value_milli, watched.at_ms = round(values[-1] * 1_000), at_ms
        return self._metric(watched, now_ms)

    def metrics(self, now_ms: int) -> dict[str, BusinessMetric]:
        """What is known of each workload now, with its age."""
        return {name: self._metric(one, now_ms) for name, one in self._watched.items() if one.at_ms is not None}

    def _metric(self, watched: _Watched, now_ms: int) -> BusinessMetric:
        rule, at_ms = watched.rule, watched.at_ms or 0
        baseline = rule.baseline_milli
        is_own = baseline is None
        if baseline is None:
            baseline = watched.own_baseline_milli
        return BusinessMetric(
            metric=rule.metric,
            value_milli=watched.value_milli,
            age_ms=max(now_ms - at_ms, 0),
            baseline_milli=baseline,
            slowdown_pct=_slowdown_pct(rule, watched.value_milli, baseline),
            slo_milli=rule.slo_milli,
            violations=() if rule.slo_milli is None else self._violations(watched, now_ms),
            is_own_baseline=is_own and baseline is not None,
            breaks_slo=_breaks(rule, watched.value_milli),
            is_pushed=rule.push != "",
            slo_revision=watched.slo_revision,
            slo_since_ms=watched.slo_since_ms,
        )

    def _violations(self, watched: _Watched, now_ms: int) -> tuple[SloViolations, ...]:
        found = []
        for window_ms in WINDOWS_MS:
            steps = [step for step in watched.steps if now_ms - step.began_ms <= window_ms]
            samples, above = sum(step.samples for step in steps), sum(step.above for step in steps)
            found.append(SloViolations(window_ms=window_ms, samples=samples, above=above))
        return tuple(found)


def _add(watched: _Watched, values: Sequence[float], now_ms: int) -> None:
    """Count the values. The own baseline is computed once a step, and as soon as there are enough values for one."""
    rule = watched.rule
    is_new = not watched.steps or now_ms - watched.steps[-1].began_ms >= _STEP_MS
    if is_new:
        watched.steps.append(_Step(began_ms=now_ms, samples=0, above=0, sketch=Sketch()))
    step = watched.steps[-1]
    for one in values:
        value = round(one * 1_000)
        step.samples += 1
        step.above += _breaks(rule, value)
        step.sketch.add(value)
    if rule.baseline_milli is None and (is_new or watched.own_baseline_milli is None):
        own = Sketch.merged(each.sketch for each in watched.steps)
        watched.own_baseline_milli = own.quantiles((50,))[0] if own.count >= _OWN_BASELINE_LEAST else None


def _breaks(rule: MetricRule, value: int) -> bool:
    if rule.slo_milli is None:
        return False
    return value > rule.slo_milli if rule.worse == "higher" else value < rule.slo_milli


def _slowdown_pct(rule: MetricRule, value: int, baseline: int | None) -> int | None:
    """100 is as the baseline, 150 half as slow again; at most 1,000,000. None without a baseline, or where it would be endless."""
    if not baseline or (rule.worse == "lower" and not value):
        return None
    pct = value * 100 // baseline if rule.worse == "higher" else baseline * 100 // value
    return min(pct, 1_000_000)
