"""Explains each replica in one sentence: why it is on its node, or what it waits for."""

from collections.abc import Mapping
from typing import Final

from msgspec import structs

from colo_common.events.placement import ProposedPreemption
from colo_common.events.requests import DecisionRecord, JobDetail, ReplicaDetail
from colo_common.model.lifecycle import REPLICA
from colo_common.model.qos import PriorityBand
from colo_common.model.reasons import SENTENCES, Reason
from colo_common.model.restriction import RestrictionKind, Restrictions, restriction_text
from colo_common.model.shortage import most_text, shortage_text
from colo_gateway.replies import ReplicaExplained

__all__ = ["explain_replicas", "sentence"]

_VICTIMS_SHOWN: Final = 5
_BACKOFF: Final = "Backoff"


def explain_replicas(
    job: JobDetail, decisions: Mapping[str, DecisionRecord], replica: str = "", restrictions: Restrictions | None = None
) -> tuple[ReplicaExplained, ...]:
    """One entry for each replica of the job, or only for `replica`, in the order of the job.

    `restrictions`: what operators forbid now. A replica that waits or is suspended because of it says so first.
    """
    return tuple(
        ReplicaExplained(
            replica=detail.replica,
            state=detail.state,
            sentence=sentence(detail, decisions.get(detail.replica))
            + _forbidden(job, detail, restrictions or Restrictions()),
            decision=decisions.get(detail.replica),
        )
        for detail in job.replicas
        if not replica or detail.replica == replica
    )


def sentence(detail: ReplicaDetail, decision: DecisionRecord | None) -> str:
    """The state of a replica as a sentence, with the numbers of its newest decision."""
    if detail.state == "Pending":
        return _waiting(decision) + _evicted_before(detail)
    where = ""
    if detail.node:
        where = f" on {detail.node}, zone{'s' if len(detail.zones) > 1 else ''} {', '.join(map(str, detail.zones))}"
    if where and detail.state not in REPLICA.terminal and detail.state != _BACKOFF:
        again = f"; attempt {detail.attempt}, evicted {_times(detail.evictions)}" if detail.evictions else ""
        return f"{detail.state.lower()}{where}{_best(decision)}{again}"
    # The replica has ended: the sentence tells its end, not the decision.
    state = "failed, waits for its next try; was" if detail.state == _BACKOFF and where else detail.state.lower()
    ended = f"{', ' if where else ' '}with exit code {detail.exit_code}" if detail.exit_code is not None else ""
    return f"{state}{where}{ended}" + (f": {detail.reason}" if detail.reason else "") + _evicted_before(detail)


def _evicted_before(detail: ReplicaDetail) -> str:
    """ "; evicted twice before", or "" for a replica that never was."""
    return f"; evicted {_times(detail.evictions)} before" if detail.evictions else ""


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _forbidden(job: JobDetail, detail: ReplicaDetail, restrictions: Restrictions) -> str:
    """ "; its job is paused by ana: wrong input", "; suspended on n1, paused by ana", or "" where nothing forbids it."""
    if not len(restrictions) or detail.state in REPLICA.terminal:
        return ""
    pause = restrictions.pause_of(job.summary.job, job.summary.queue)
    is_suspended = restrictions.suspended_with(job.summary.job, job.summary.queue) is not None
    if pause is not None and (is_suspended or detail.state == "Pending"):
        return f"; its {pause.scope.value} is {restriction_text(pause)}"
    if detail.state == "Pending" or not detail.node:
        return ""
    is_batch = job.spec.band is not PriorityBand.PROD
    drain, suspension = restrictions.drain_of(detail.node), restrictions.suspension_of(detail.node)
    if drain is not None and (is_batch or not (drain.batch_only or drain.kind is RestrictionKind.QUIESCE)):
        return f"; must leave: {detail.node} is being {restriction_text(drain)}"
    return f"; suspended: {detail.node} is {restriction_text(suspension)}" if is_batch and suspension else ""


def _waiting(decision: DecisionRecord | None) -> str:
    if decision is None:
        return "waits for its first decision"
    if decision.placement is not None:
        return f"was placed on {decision.placement.node} before and waits for a new place"
    if decision.broken_rule:
        return f"is not tried, {SENTENCES[Reason.REQUEST_MALFORMED]}: {decision.broken_rule}; it waits until the job is cancelled"
    counts = ", ".join(
        f"{count.nodes} {count.reason.value}" + (f" ({count.detail})" if count.detail else "")
        for count in decision.counts
    )
    nearest = decision.nearest
    text = f"0 of {decision.nodes} nodes fit" + (f": {counts}" if counts else "")
    miss = {} if nearest is None else structs.asdict(nearest)
    if decision.never and miss:
        return f"no node could hold it even when empty: {most_text(**miss)}; now {text}"
    if decision.never:
        return text
    return text + (f"; nearest miss: {shortage_text(**miss)}" if miss else "") + _preemption(decision.preemption)


def _preemption(proposal: ProposedPreemption | None) -> str:
    """ "; would fit on node-07 if j1/main/0 and j2/main/3 left (lower priority)", or "" without a proposal."""
    if proposal is None:
        return ""
    names = [victim.replica for victim in proposal.victims]
    shown = names[:_VICTIMS_SHOWN] + ([f"{len(names) - _VICTIMS_SHOWN} more"] if len(names) > _VICTIMS_SHOWN else [])
    victims = " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
    return f"; would fit on {proposal.node} if {victims} left (lower priority)"


def _best(decision: DecisionRecord | None) -> str:
    """Why the scheduler chose this node, with the scores at the replica's own turn; "" without a placement."""
    if decision is None or decision.placement is None:
        return ""
    order = f"; {_ordinal(decision.number)} of {decision.together} decided together" if decision.together > 1 else ""
    if decision.placement.reservation:
        return f": took its place in reservation {decision.placement.reservation}{order}"
    chosen = next((row for row in decision.scores if row.node == decision.placement.node), None)
    if chosen is None:
        return ""
    parts = ", ".join(f"{name} {value}" for name, value in sorted(chosen.scores.items()))
    passing = decision.nodes - sum(count.nodes for count in decision.counts)
    if decision.fitting is None:
        among = f"the first that takes it of {passing} nodes with room, in order of their scores"
        best = f"{among}, with" if passing > 1 else "the only node with room, with"
    else:
        best = (
            f"best of {decision.fitting} fitting nodes with" if decision.fitting > 1 else "the only fitting node, with"
        )
    return f": {best} score {chosen.total} ({parts}){order}"


def _ordinal(number: int) -> str:
    """The ordinal of a number: "1st", "12th", "23rd"."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
