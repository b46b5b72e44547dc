"""How a job waits, in one sentence."""

from collections.abc import Mapping

from msgspec.structs import replace

from colo_common.events.requests import DecisionRecord, JobDetail
from colo_common.events.waiting import JobWait
from colo_common.model.duration import span_text
from colo_common.model.restriction import Restrictions, restriction_text

__all__ = ["wait_of", "wait_sentence"]


def wait_of(
    wait: JobWait, job: JobDetail, decisions: Mapping[str, DecisionRecord], restrictions: Restrictions
) -> JobWait:
    """The wait without its estimate where something that past waits do not show holds the job back."""
    if not wait.replica:
        return wait
    pause = restrictions.pause_of(job.summary.job, job.summary.queue)
    decision = decisions.get(wait.replica)
    if pause is not None:
        return replace(wait, rest_ms=None, why_none=f"its {pause.scope.value} is {restriction_text(pause)}")
    if decision is not None and decision.broken_rule:
        return replace(wait, rest_ms=None, why_none=f"its request breaks a rule: {decision.broken_rule}")
    if decision is not None and decision.never:
        return replace(wait, rest_ms=None, why_none="no node could hold it even when empty")
    return wait


def wait_sentence(wait: JobWait) -> str:
    """Who waits, for how long so far, behind how many, and for how much longer; "" when nothing waits."""
    if not wait.waiting:
        return ""
    if not wait.replica:
        again = "" if wait.retry_in_ms is None else f" in {span_text(wait.retry_in_ms)}"
        return f"{_replicas(wait.waiting)} of it failed and {_tries(wait.waiting)} again{again}"
    more = f" and {_replicas(wait.waiting - 1, 'more ')}" if wait.waiting > 1 else ""
    ahead = f"{wait.ahead} ahead of it in the order" if wait.ahead else "first in the order"
    own = f" ({wait.ahead_in_queue} of its queue)" if wait.ahead else ""
    text = f"{wait.replica}{more} waited {span_text(wait.waited_ms)} so far, {ahead}{own}; {_estimate(wait)}"
    for node, rest_ms in wait.avoid:
        text += f"; not on {node} for another {span_text(rest_ms)}, which refused, evicted or could not start it"
    return text


def _estimate(wait: JobWait) -> str:
    error = f"past estimates were off by {span_text(wait.error_ms)} at the median" if wait.error_ms is not None else ""
    if wait.rest_ms is None:
        return f"no estimate, because {wait.why_none}" + (f" ({error})" if error else "")
    source = f"by the last {wait.placed} placements of class {wait.qos} in queue {wait.queue}"
    return f"about {span_text(wait.rest_ms)} more, {source}; {error or 'no past estimate was measured yet'}"


def _replicas(number: int, which: str = "") -> str:
    return f"{number} {which}replica{'' if number == 1 else 's'}"


def _tries(number: int) -> str:
    return "is tried" if number == 1 else "are tried"
