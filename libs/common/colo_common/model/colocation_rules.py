"""Whether and how far a node is shared with batch work: rules by node label, after openFuyao's node colocation configuration.

The operator of a node sets `NodeRules` on the node; these rules are the cluster's, and the stricter of both holds.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import NodeRules
from colo_common.model.node_selector import Selector, selects

__all__ = ["ColocationRule", "check_rules", "rule_of", "ruled"]

_RULES_MOST: Final = 1_000
_REPLICAS_MOST: Final = 1 << 53


class ColocationRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rule for the nodes that a selector selects. `batch_replicas_most` is a limit at a time, None: no limit.

    `is_colocated` False admits no batch work.
    """

    selector: Selector = Selector()
    is_colocated: bool = True
    batch_replicas_most: int | None = None


def check_rules(rules: Sequence[ColocationRule], field: str = "colocation") -> None:
    """Raise InvalidInput for the first rule that makes no sense."""
    if len(rules) > _RULES_MOST:
        raise InvalidInput(field, f"must be at most {_RULES_MOST} rules", len(rules))
    for number, rule in enumerate(rules):
        rule.selector.validate(f"{field}[{number}].selector")
        most = rule.batch_replicas_most
        if most is not None and not 0 <= most < _REPLICAS_MOST:
            raise InvalidInput(f"{field}[{number}].batch_replicas_most", "must not be negative", most)


def rule_of(labels: Mapping[str, str], rules: Sequence[ColocationRule]) -> ColocationRule:
    """The last rule that selects the node, so that an exception follows its general rule; without one nothing is limited."""
    found = ColocationRule()
    for rule in rules:
        if selects(rule.selector, labels):
            found = rule
    return found


def ruled(own: NodeRules, labels: Mapping[str, str], rules: Sequence[ColocationRule]) -> NodeRules:
    """The node's own rules, combined with the cluster's rule for nodes with its labels."""
    if not rules:
        return own
    rule = rule_of(labels, rules)
    limits = [most for most in (own.batch_replicas_most, rule.batch_replicas_most) if most is not None]
    return structs.replace(
        own,
        is_colocated=own.is_colocated and rule.is_colocated,
        batch_replicas_most=min(limits, default=None),
    )
