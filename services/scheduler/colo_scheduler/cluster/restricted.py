"""The restrictions of operators on a node, as bits of a number: which work the node does not take."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from colo_common.model.reasons import Reason
from colo_common.model.restriction import Restriction, RestrictionKind, Restrictions, RestrictionScope

__all__ = ["BATCH_BITS", "PROD_BITS", "restricted_bits", "restriction_behind"]

_QUIESCED: Final = 1
_PAUSED: Final = 2
_DRAINED_OF_BATCH: Final = 4
_DRAINED: Final = 8
_CORDONED: Final = 16

PROD_BITS: Final[Mapping[Reason, int]] = MappingProxyType(
    {Reason.NODE_DRAINED: _DRAINED, Reason.NODE_CORDONED: _CORDONED}
)
"""The bits that close a node to online work, by the reason that is given for them."""
BATCH_BITS: Final[Mapping[Reason, int]] = MappingProxyType(
    {
        Reason.BATCH_QUIESCED: _QUIESCED,
        Reason.NODE_PAUSED: _PAUSED,
        Reason.NODE_DRAINED: _DRAINED_OF_BATCH | _DRAINED,
        Reason.NODE_CORDONED: _CORDONED,
    }
)
"""The bits that close a node to batch work."""
_KINDS: Final = {
    Reason.NODE_PAUSED: RestrictionKind.PAUSE,
    Reason.NODE_DRAINED: RestrictionKind.DRAIN,
    Reason.NODE_CORDONED: RestrictionKind.CORDON,
}


def restricted_bits(restrictions: Restrictions, node: str) -> int:
    """The bits of a node; 0 when nothing is forbidden there."""
    if not len(restrictions):
        return 0
    bits = _QUIESCED if restrictions.quiesce is not None else 0
    for restriction in restrictions.on_node(node):
        match restriction.kind:
            case RestrictionKind.CORDON:
                bits |= _CORDONED
            case RestrictionKind.DRAIN:
                bits |= _DRAINED_OF_BATCH if restriction.batch_only else _DRAINED
            case RestrictionKind.PAUSE:
                bits |= _PAUSED
            case RestrictionKind.QUIESCE:
                pass
    return bits


def restriction_behind(restrictions: Restrictions, reason: Reason, node: str = "") -> tuple[Restriction, ...]:
    """The restrictions for which nodes are refused with this reason, all of them or only those of one node."""
    if reason is Reason.BATCH_QUIESCED:
        return (restrictions.quiesce,) if restrictions.quiesce is not None else ()
    kind = _KINDS.get(reason)
    return tuple(
        [
            each
            for each in restrictions
            if each.kind is kind and each.scope is RestrictionScope.NODE and node in ("", each.target)
        ]
    )
