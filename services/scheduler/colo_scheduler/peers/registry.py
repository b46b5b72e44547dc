"""The one place that imports the emulations of other systems: rules for zones and CPUs, by name."""

from functools import partial
from types import MappingProxyType
from typing import Final

from colo_common.model.node_rules import NodeRules
from colo_scheduler.numa.own_rule import OwnRule
from colo_scheduler.numa.rule import NumaManager
from colo_scheduler.peers.crane.rule import CraneRule
from colo_scheduler.peers.katalyst.rule import KatalystRule
from colo_scheduler.peers.koordinator.rule import KoordinatorRule
from colo_scheduler.peers.kubelet.options import KubeletOptions
from colo_scheduler.peers.kubelet.rule import KubeletRule, take_by_zone

__all__ = ["NUMA_MANAGERS", "numa_manager"]

_OWN: Final = OwnRule()
_KUBELET: Final = KubeletRule()

NUMA_MANAGERS: Final[MappingProxyType[str, NumaManager]] = MappingProxyType(
    {
        "colo": _OWN,
        "kubelet": _KUBELET,
        "koordinator": KoordinatorRule(),
        "crane": CraneRule(partial(take_by_zone, options=KubeletOptions())),
        "katalyst": KatalystRule(_KUBELET),
    }
)
"""The systems that may hand out zones and CPUs, by the value of `NodeRules.numa_rule`."""


def numa_manager(rules: NodeRules, *, is_prod: bool) -> NumaManager:
    """The system that hands out zones and CPUs on a node of these rules; for batch work always colo."""
    return NUMA_MANAGERS[rules.numa_rule] if is_prod else _OWN
