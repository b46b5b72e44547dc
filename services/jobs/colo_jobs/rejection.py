"""Why a replica waits, as one sentence from the scheduler's report."""

from colo_common.events.placement import PlacementRejected
from colo_common.model.reasons import SENTENCES

__all__ = ["sentence_of"]


def sentence_of(event: PlacementRejected) -> str:
    """How many nodes were looked at, the reasons with their counts, and the numbers of the node that came closest."""
    reasons = "; ".join(f"{count.nodes} x {SENTENCES[count.reason]}" for count in event.counts)
    sentence = f"none of {event.nodes} nodes: {reasons}" if reasons else f"none of {event.nodes} nodes"
    if event.nearest is not None:
        near = event.nearest
        zone = f" zone {near.zone}" if near.zone is not None else ""
        sentence += f"; nearest {near.node}{zone}: needs {near.need} {near.unit}, has {near.have}"
    return sentence
