"""Renders a PlacementRejected as one sentence for a job's story."""

from msgspec import structs

from colo_common.events.placement import PlacementRejected
from colo_common.model.reasons import SENTENCES, Reason
from colo_common.model.shortage import CONDITION, most_text, shortage_text

__all__ = ["sentence_of"]


def sentence_of(event: PlacementRejected) -> str:
    """The sentence with the number of nodes, the reasons with their counts, and the numbers of the nearest node.

    For a request that breaks a rule the sentence is the rule: the replica is not tried and waits until its job is cancelled.
    """
    if event.broken_rule:
        return f"{SENTENCES[Reason.REQUEST_MALFORMED]}: {event.broken_rule}; it waits until the job is cancelled"
    reasons = "; ".join(f"{count.nodes} x {SENTENCES[count.reason]}" for count in event.counts)
    sentence = f"none of {event.nodes} nodes: {reasons}" if reasons else f"none of {event.nodes} nodes"
    if event.nearest is not None:
        miss = structs.asdict(event.nearest)
        if event.never:
            # The reasons of the moment do not matter when even an empty node is too small.
            return f"no node could hold it even when empty: {most_text(**miss)}"
        if event.nearest.unit != CONDITION:
            # A condition has no amount, and its reason is in the sentence already.
            sentence += f"; nearest: {shortage_text(**miss)}"
    return sentence
