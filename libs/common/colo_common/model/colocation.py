"""Whether a node takes batch work and online work, by the operator's label and rules; openFuyao labels its nodes so as well."""

from collections.abc import Mapping
from typing import Final

from colo_common.model.node_rules import NodeRules

__all__ = ["COLOCATION_LABEL", "admits_batch", "admits_online"]

COLOCATION_LABEL: Final = "colo.io/colocation"
"""Values: "true" (as without the label: batch and online work), "false" (online work only), "offline" (batch work only)."""


def admits_batch(labels: Mapping[str, str], rules: NodeRules) -> bool:
    """Whether the node takes batch work: not when its rules or its label withdraw it."""
    return rules.is_colocated and labels.get(COLOCATION_LABEL, "true").lower() != "false"


def admits_online(labels: Mapping[str, str]) -> bool:
    """Whether the node takes new online work. Online work that runs there already leaves only by an operator's drain."""
    return labels.get(COLOCATION_LABEL, "true").lower() != "offline"
