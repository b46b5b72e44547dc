"""Whether and how far a node is shared with offline work: rules by node label, after openFuyao's node colocation configuration."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import NodeRules
from colo_common.model.qos import QosClass
from colo_scheduler.eligibility.selector import Selector, selects

__all__ = [
    "NO_LIMIT",
    "ColocationRule",
    "check_rules",
    "is_offline",
    "offline_limit",
    "rule_of",
    "takes_offline",
    "takes_offline_rows",
]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

NO_LIMIT: Final = 1 << 53
"""The column value of a rule without `offline_max`."""
_RULES_MAX: Final = 1_000


class ColocationRule(Struct, frozen=True, kw_only=True):
    """What holds for the nodes that a selector selects.

    offline_max: the most offline replicas at a time (None: no such limit). reserved_*: kept for online work, on top of what the
    overcommit service holds back.
    """

    selector: Selector = Selector()
    is_enabled: bool = True
    offline_max: int | None = None
    reserved_cpu_mcpu: int = 0
    reserved_memory_bytes: int = 0

    @property
    def offline_limit(self) -> int:
        """How many offline replicas the node may hold: 0 when it is not shared."""
        if not self.is_enabled:
            return 0
        return NO_LIMIT if self.offline_max is None else self.offline_max


def check_rules(rules: Sequence[ColocationRule], field: str = "colocation") -> None:
    """Raise InvalidInput for the first rule that makes no sense."""
    if len(rules) > _RULES_MAX:
        raise InvalidInput(field, f"must be at most {_RULES_MAX} rules", len(rules))
    for number, rule in enumerate(rules):
        rule.selector.validate(f"{field}[{number}].selector")
        if rule.offline_max is not None and not 0 <= rule.offline_max < NO_LIMIT:
            raise InvalidInput(f"{field}[{number}].offline_max", "must not be negative", rule.offline_max)
        for name in ("reserved_cpu_mcpu", "reserved_memory_bytes"):
            if getattr(rule, name) < 0:
                raise InvalidInput(f"{field}[{number}].{name}", "must not be negative", getattr(rule, name))


def rule_of(labels: Mapping[str, str], rules: Sequence[ColocationRule]) -> ColocationRule:
    """The last rule that selects the node, so that an exception follows what it is an exception from; all open without one."""
    found = ColocationRule()
    for rule in rules:
        if selects(rule.selector, labels):
            found = rule
    return found


def is_offline(qos: QosClass) -> bool:
    """Whether work counts as offline."""
    return qos is QosClass.BE


def offline_limit(rules: NodeRules, rule: ColocationRule | None = None) -> int:
    """How many offline replicas a node may hold by its own rules and by the rule that selects it, whichever is lower."""
    own = ColocationRule(is_enabled=rules.is_colocated, offline_max=rules.batch_replicas_most).offline_limit
    return own if rule is None else min(own, rule.offline_limit)


def takes_offline(qos: QosClass, offline_held: int, limit: int) -> bool:
    """Whether one more replica of that class may come: online work always, offline work while the node holds fewer than `limit`."""
    return not is_offline(qos) or offline_held < limit


def takes_offline_rows(qos: QosClass, offline_held: IntArray, offline_limit: IntArray) -> BoolArray:
    """`takes_offline` of every row; both columns int64, shape (nodes,), the second from `offline_limit`."""
    if not is_offline(qos):
        return np.ones(offline_held.shape, dtype=np.bool_)
    passes: BoolArray = offline_held < offline_limit
    return passes
