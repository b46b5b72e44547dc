"""Where on the PCI bus the devices of this node are, as the collector reports them: it numbers them, the kernel does not."""

from msgspec import Struct

from colo_common.events.node import NodeTopologyReported

__all__ = ["DeviceAddress", "located_devices"]


class DeviceAddress(Struct, frozen=True, kw_only=True):
    """Number `device` of the kind is at `address` ("0000:3b:00.0")."""

    kind: str
    device: int
    address: str


def located_devices(report: NodeTopologyReported) -> tuple[DeviceAddress, ...]:
    """The devices of the report whose place it has, in its order."""
    return tuple(
        DeviceAddress(kind=one.kind, device=one.device, address=one.address)
        for one in report.topology.devices
        if one.address
    )
