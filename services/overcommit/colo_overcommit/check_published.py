"""What holds of every number that was published: its terms give it, and its zones sum to the node."""

from colo_common.events.node import AllocatableChanged
from colo_common.model.invalid import InvariantBroken
from colo_overcommit.explain import recompute
from colo_overcommit.explain_mid import recompute_mid

__all__ = ["check_published"]


def check_published(last: AllocatableChanged) -> None:
    """Raise InvariantBroken when it does not. A number without terms is of an older version, and explains nothing."""
    if last.explanation.terms and recompute(last.explanation) != last.zones:
        raise InvariantBroken("the explanation does not give the published number", node=last.node)
    if last.explanation.terms and recompute_mid(last.explanation) != last.mid:
        raise InvariantBroken("the explanation does not give the mid tier", node=last.node)
    if last.batch_cpu_mcpu != sum(zone.batch_cpu_mcpu for zone in last.zones):
        raise InvariantBroken("zones do not sum to the node", node=last.node)
