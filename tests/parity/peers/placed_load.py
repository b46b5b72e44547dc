"""What each placed pod adds to a node's report, after Koordinator's LoadAware (plugins/loadaware/pod_assign_cache.go).

Koordinator's reports name every pod with its usage; a pod in the report counts with what its estimate exceeds that by, while the
report does not cover a whole interval of it. Colo's reports name no pod, and its newcomers count in full until a report shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from colo_common.model.qos import PriorityBand
from colo_common.model.resource_list import ResourceList
from colo_scheduler.load.usage import LoadPolicy, NodeLoad, Sums, WorkloadRequest, add, estimate_of


class PodUsage(Struct, frozen=True, kw_only=True):
    """What the report says of one pod. Without any usage it counts as not reported. `is_prod`: the report calls it prod."""

    name: str
    usage: ResourceList
    is_prod: bool = False


class Placed(Struct, frozen=True, kw_only=True):
    """A pod that was given a place at `placed_at_ms`; `started_at_ms` is when it had initialised, None before.

    The last three are its own wishes, heard when `Estimation` allows them.
    """

    name: str
    workload: WorkloadRequest
    placed_at_ms: int
    started_at_ms: int | None = None
    factors_pct: Mapping[str, int] = {}
    estimated_after_placed_ms: int | None = None
    estimated_after_started_ms: int | None = None


class Estimation(Struct, frozen=True, kw_only=True):
    """How long pods are estimated although usage is reported (None: they are not), and whether they may wish for themselves."""

    after_placed_ms: int | None = None
    after_started_ms: int | None = None
    allow_own: bool = False


PLAIN = Estimation()


def with_own_factors(policy: LoadPolicy, factors_pct: Mapping[str, int], *, is_allowed: bool) -> LoadPolicy:
    """The policy with a pod's own scaling factors in place of its own, where pods may bring them."""
    return replace(policy, factors_pct={**policy.factors_pct, **factors_pct}) if is_allowed else policy


def estimation_until_ms(placed: Placed, rules: Estimation) -> int | None:
    """Until when the pod is estimated although it reports, None when it is not.

    From its start when the time after the start is above 0 and it has started, else from its placement when that time is.
    """
    after_placed, after_started = rules.after_placed_ms, rules.after_started_ms
    if rules.allow_own:
        after_placed = _own_or(placed.estimated_after_placed_ms, after_placed)
        after_started = _own_or(placed.estimated_after_started_ms, after_started)
    if after_started and after_started > 0 and placed.started_at_ms is not None:
        return placed.started_at_ms + after_started
    if after_placed and after_placed > 0:
        return placed.placed_at_ms + after_placed
    return None


def _own_or(own_ms: int | None, policy_ms: int | None) -> int | None:
    """A pod's own time; one below 0 says as little as none."""
    return own_ms if own_ms is not None and own_ms >= 0 else policy_ms


def needs_estimation(placed: Placed, report: PodUsage | None, load: NodeLoad, rules: Estimation = PLAIN) -> bool:
    """Whether the report does not say yet what the pod uses: not in it, in it for part of an interval, or told to wait."""
    if report is None or load.updated_at_ms is None:
        return True
    if load.updated_at_ms - load.report_interval_ms < placed.placed_at_ms:
        return True
    until_ms = estimation_until_ms(placed, rules)
    return until_ms is not None and until_ms > load.updated_at_ms


class Contribution(NamedTuple):
    """What one placed pod adds to its node.

    `delta` and `prod_delta` come on top of measured usage; `full` replaces measured usage where there is none; `prod_usage` is
    what the report says of it, when it and the report both call it prod.
    """

    delta: ResourceList
    full: ResourceList
    prod_usage: ResourceList
    prod_delta: ResourceList


def contribution_of(
    placed: Placed, report: PodUsage | None, load: NodeLoad, policy: LoadPolicy, rules: Estimation = PLAIN
) -> Contribution:
    """What a placed pod adds; `report` is what the node says of it, None when nothing."""
    estimate = estimate_of(placed.workload, with_own_factors(policy, placed.factors_pct, is_allowed=rules.allow_own))
    is_prod = placed.workload.band is PriorityBand.PROD
    reported: ResourceList = report.usage if report is not None else {}
    delta = _above(estimate, reported) if needs_estimation(placed, report, load, rules) else {}
    if not is_prod:
        return Contribution(delta, estimate, {}, {})
    if report is not None and report.is_prod:
        return Contribution(delta, estimate, reported, delta)
    # A prod pod that the report takes for something else is not in the prod usage, so all of it is estimated.
    return Contribution(delta, estimate, {}, estimate)


def _above(estimate: ResourceList, reported: ResourceList) -> dict[str, int]:
    return {resource: max(0, amount - reported.get(resource, 0)) for resource, amount in estimate.items()}


def reports_of(reported: Sequence[PodUsage]) -> Mapping[str, PodUsage]:
    """The report of each pod by name; those without any usage count as not reported."""
    return {report.name: report for report in reported if report.usage}


def sums_of(
    load: NodeLoad | None,
    reported: Sequence[PodUsage],
    placed: Iterable[Placed],
    policy: LoadPolicy,
    rules: Estimation = PLAIN,
) -> Sums:
    """What all placed pods contribute to a report that says this of its pods; nothing without a report."""
    sums = Sums({}, {}, {})
    reports = reports_of(reported)
    for entry in placed if load is not None else ():
        part = contribution_of(entry, reports.get(entry.name), load, policy, rules)
        add(sums.delta, part.delta)
        add(sums.full, part.full)
        add(sums.prod, part.prod_usage)
        add(sums.prod, part.prod_delta)
    return sums
