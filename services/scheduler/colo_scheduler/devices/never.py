"""Whether a request can ever get its devices on the empty machine.

A fleet has few kinds of machines, so an answer is computed once for each kind and request.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import structs

from colo_common.model.constraints import Constraints, CpuPolicy, DeviceRequest, DeviceScope, JointDevices, NumaPolicy
from colo_common.model.node_rules import NodeRules
from colo_common.model.reasons import Reason
from colo_scheduler.devices.choose import DeviceLocality, NoDevices, choose_devices
from colo_scheduler.devices.inventory import DeviceInventory
from colo_scheduler.devices.layout import DeviceLayout

__all__ = ["NOTHING_ASKED", "DeviceAsk", "ask_of", "locality_of", "never_holds"]

_KINDS_REMEMBERED: Final = 4_096


class DeviceAsk(NamedTuple):
    """All that a request wants of devices. `is_in_one_zone`: all of them in one zone."""

    requests: tuple[DeviceRequest, ...] = ()
    joint: JointDevices | None = None
    is_in_one_zone: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether only kinds and counts are asked for, and shares: nothing about which devices, or how they lie."""
        return self.joint is None and not any(
            request.labels or request.partition is not None or request.scope is not DeviceScope.NODE
            for request in self.requests
        )


NOTHING_ASKED: Final = DeviceAsk()


def ask_of(place: Constraints) -> DeviceAsk:
    """The device requests of the constraints."""
    if not place.devices:
        return NOTHING_ASKED
    in_one = place.numa_policy is NumaPolicy.SINGLE_NUMA_NODE or place.cpu_policy is CpuPolicy.NUMA
    return DeviceAsk(place.devices, place.joint_devices, in_one)


def locality_of(joint: JointDevices | None, rules: NodeRules) -> DeviceLocality:
    """How a node chooses devices: those that belong together are sought together."""
    return DeviceLocality(joint=joint, is_joint_sought=True, packs=rules.device_allocate == "most-allocated")


@lru_cache(maxsize=_KINDS_REMEMBERED)
def never_holds(layout: DeviceLayout, ask: DeviceAsk) -> NoDevices | None:
    """Why a machine of this layout can never give the requested devices; None when the empty machine could.

    The reason is DEVICE_UNKNOWN where the machine lacks the kind, else DEVICE_LAYOUT. A request of kinds and counts only, without
    GPU partitions, has no other answer: counting finds its shortage (DEVICE_SHORT).
    """
    for request in ask.requests:
        if request.kind not in layout.kinds:
            return NoDevices(
                reason=Reason.DEVICE_UNKNOWN,
                kind=request.kind,
                detail="the node has none",
                need=max(1, request.count),
                have=0,
                unit=request.kind,
            )
    if ask.is_plain and not layout.is_honored:
        return None
    inventory = DeviceInventory(layout.devices)
    locality = DeviceLocality(joint=ask.joint, is_joint_sought=True)
    found = choose_devices(inventory, ask.requests, locality=locality, partitions=layout.partitions)
    if not isinstance(found, NoDevices) and ask.is_in_one_zone:
        for zone in layout.zones:
            found = choose_devices(
                inventory, ask.requests, (zone,), only_in_zones=True, locality=locality, partitions=layout.partitions
            )
            if not isinstance(found, NoDevices):
                break
    if not isinstance(found, NoDevices):
        return None
    return found if found.reason is Reason.DEVICE_UNKNOWN else structs.replace(found, reason=Reason.DEVICE_LAYOUT)
