"""Why a replica waits, as one sentence from the scheduler's report."""

from msgspec import structs

from colo_common.events.placement import PlacementRejected
from colo_common.model.reasons import SENTENCES, Reason
from colo_common.model.shortage import CONDITION, most_text, shortage_text

__all__ = ["sentence_of"]


def sentence_of(event: PlacementRejected) -> str:
    """How many nodes were looked at, the reasons with their counts, and the numbers of the node that came closest.

    Of a request that breaks a rule, the rule: it is not tried, and waits for somebody to withdraw it.
    """
    if event.broken_rule:
        return f"{SENTENCES[Reason.REQUEST_MALFORMED]}: {event.broken_rule}; it waits until the job is cancelled"
    reasons = "; ".join(f"{count.nodes} x {SENTENCES[count.reason]}" for count in event.counts)
    sentence = f"none of {event.nodes} nodes: {reasons}" if reasons else f"none of {event.nodes} nodes"
    if event.nearest is not None:
        miss = structs.asdict(event.nearest)
        if event.never:
            # Why each node refuses it at this moment does not matter then.
            return f"no node could hold it even when empty: {most_text(**miss)}"
        if event.nearest.unit != CONDITION:
            # What is no amount was said by its reason.
            sentence += f"; nearest: {shortage_text(**miss)}"
    return sentence
