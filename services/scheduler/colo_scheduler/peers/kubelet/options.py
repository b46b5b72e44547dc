"""The options of the kubelet's static policy."""

from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import NodeRules

__all__ = ["KubeletOptions", "kubelet_options"]


class KubeletOptions(Struct, frozen=True, kw_only=True):
    """The options of the kubelet's static policy, each with the name the kubelet has for it."""

    is_full_pcpus_only: bool = False
    """full-pcpus-only: whole cores or nothing."""
    is_across_numa: bool = False
    """distribute-cpus-across-numa: the same number from each zone instead of packing."""
    is_across_cores: bool = False
    """distribute-cpus-across-cores: not with the first two."""
    is_by_socket: bool = False
    """align-by-socket: zones of one socket count as one place."""
    is_by_l3: bool = False
    """prefer-align-cpus-by-uncorecache: packing looks for whole, then partial last-level caches before cores."""

    def validate(self, field: str = "kubelet") -> None:
        """Raise InvalidInput for options that exclude each other."""
        if self.is_across_cores and (self.is_full_pcpus_only or self.is_across_numa):
            rule = "distribute-cpus-across-cores excludes full-pcpus-only and distribute-cpus-across-numa"
            raise InvalidInput(f"{field}.is_across_cores", rule, self)


def kubelet_options(rules: NodeRules) -> KubeletOptions:
    """The options that a node's rules list."""
    listed = rules.kubelet_options
    return KubeletOptions(
        is_full_pcpus_only="full-pcpus-only" in listed,
        is_across_numa="distribute-cpus-across-numa" in listed,
        is_across_cores="distribute-cpus-across-cores" in listed,
        is_by_socket="align-by-socket" in listed,
        is_by_l3="prefer-align-cpus-by-uncorecache" in listed,
    )
