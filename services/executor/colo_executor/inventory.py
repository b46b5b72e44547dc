"""The devices and huge pages of a machine, and whether a placement's shares are free on it.

The scheduler decides the shares; this check of the node prevents two placements from holding the same share.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from colo_common.model.placement import DeviceShare, Placement
from colo_common.model.reasons import Reason
from colo_common.model.topology import NodeTopology

__all__ = ["MachineInventory", "ShareRefused", "check_shares", "malformed_share", "inventory_of"]

_WHOLE_PCT: Final = 100


class ShareRefused(Exception):
    """The placement cannot have its devices or huge pages on this node; nothing was changed."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class MachineInventory(Struct, frozen=True, kw_only=True):
    """`huge_pages` has the reserved bytes by zone and page size, `devices` the memory (0: not known) by kind and number.

    `devices` None: the devices of the machine are not known. `limits_huge_pages` False: the kernel cannot limit huge pages.
    """

    huge_pages: Mapping[tuple[int, int], int] = {}
    devices: Mapping[tuple[str, int], int] | None = None
    limits_huge_pages: bool = True


def inventory_of(topology: NodeTopology) -> MachineInventory:
    """The devices and huge pages of a topology. An unhealthy device counts."""
    return MachineInventory(
        huge_pages={
            (zone.zone, pages.page_bytes): pages.total_bytes for zone in topology.zones for pages in zone.huge_pages
        },
        devices={(device.kind, device.device): device.memory_bytes for device in topology.devices},
    )


def malformed_share(placement: Placement) -> str:
    """Empty when the shares of devices and huge pages are well formed, else one sentence that names the field and the rule."""
    devices = [(share.kind, share.device) for share in placement.devices]
    for share in placement.devices:
        name = _name(share)
        if not share.kind or devices.count((share.kind, share.device)) > 1:
            return f"devices: {name} must have a kind and appear once"
        if not 0 <= share.core_pct <= _WHOLE_PCT:
            return f"devices: core_pct of {name} must be from 0 to {_WHOLE_PCT} (got {share.core_pct})"
    sizes = [(pages.zone, pages.page_bytes) for pages in placement.huge_pages]
    for pages in placement.huge_pages:
        if sizes.count((pages.zone, pages.page_bytes)) > 1:
            return f"huge_pages: zone {pages.zone} must appear once for pages of {pages.page_bytes} bytes"
        if pages.page_bytes < 1 or pages.total_bytes < 1 or pages.total_bytes % pages.page_bytes:
            amounts = f"{pages.total_bytes} of {pages.page_bytes}"
            return f"huge_pages: total_bytes must be a multiple of page_bytes, and at least one page (got {amounts})"
    return ""


def check_shares(placement: Placement, held: Iterable[Placement], inventory: MachineInventory) -> None:
    """Raise ShareRefused when the machine lacks devices or huge pages of the placement, or the `held` placements have them."""
    others = tuple(held)
    for share in placement.devices:
        _check_device(share, others, inventory)
    if placement.huge_pages and not inventory.limits_huge_pages:
        detail = "huge_pages: this node cannot limit them (the hugetlb controller is lacking), so none can be given"
        raise ShareRefused(Reason.RUNTIME_ABSENT, detail)
    for pages in placement.huge_pages:
        taken = sum(
            each.total_bytes
            for other in others
            for each in other.huge_pages
            if (each.zone, each.page_bytes) == (pages.zone, pages.page_bytes)
        )
        left_bytes = inventory.huge_pages.get((pages.zone, pages.page_bytes), 0) - taken
        if pages.total_bytes > left_bytes:
            left = f"zone {pages.zone} has {max(left_bytes, 0)} bytes left in pages of {pages.page_bytes}"
            raise ShareRefused(Reason.HUGE_PAGES_SHORT, f"huge_pages: {left}, {pages.total_bytes} are asked for")


def _check_device(share: DeviceShare, others: Iterable[Placement], inventory: MachineInventory) -> None:
    key, name = (share.kind, share.device), _name(share)
    if inventory.devices is not None and key not in inventory.devices:
        kinds = {kind for kind, _ in inventory.devices}
        reason = Reason.DEVICE_SHORT if share.kind in kinds else Reason.DEVICE_UNKNOWN
        raise ShareRefused(reason, f"devices: this node has no {name}")
    taken = [(each, other.replica) for other in others for each in other.devices if (each.kind, each.device) == key]
    owners = ", ".join(sorted({owner for _, owner in taken}))
    left_pct = _WHOLE_PCT - sum(each.core_pct for each, _ in taken)
    if share.core_pct > left_pct:
        detail = f"devices: {name} has {max(left_pct, 0)} % left, {share.core_pct} % are asked for"
        raise ShareRefused(Reason.DEVICE_SHORT, f"{detail}; the rest is held by {owners}")
    total_bytes = 0 if inventory.devices is None else inventory.devices[key]
    left_bytes = total_bytes - sum(each.memory_bytes for each, _ in taken)
    if total_bytes and share.memory_bytes > left_bytes:
        detail = f"devices: {name} has {max(left_bytes, 0)} bytes of memory left, {share.memory_bytes} are asked for"
        raise ShareRefused(Reason.DEVICE_SHORT, detail)


def _name(share: DeviceShare) -> str:
    return f"{share.kind[:63]} {share.device}"
