"""The text of a place in one line: zones, CPUs by number, devices and huge pages."""

from typing import TYPE_CHECKING, Protocol

from colo_cli.output import bytes_text, cpu_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colo_common.model.placement import DeviceShare, ZoneHugePages, ZoneShare

__all__ = ["Held", "holds_text"]

_WHOLE_PCT = 100


class Held(Protocol):
    """What is held: of a placement, or of a reservation's place."""

    @property
    def zones(self) -> "Sequence[ZoneShare]": ...
    @property
    def cpus(self) -> str: ...
    @property
    def devices(self) -> "Sequence[DeviceShare]": ...
    @property
    def huge_pages(self) -> "Sequence[ZoneHugePages]": ...


def holds_text(place: Held) -> str:
    """Zones with CPU and memory, then "CPUs 4-7", "gpu 0", "gpu 1 (50 %, 8Gi)", "512Mi in pages of 2Mi of zone 0"; "nothing"."""
    zones = [
        f"zone {each.zone}: {cpu_text(each.cpu_mcpu)} CPU, {bytes_text(each.memory_bytes)}" for each in place.zones
    ]
    cpus = [f"CPUs {place.cpus}"] if place.cpus else []
    devices = [_device_text(each) for each in place.devices]
    pages = [
        f"{bytes_text(each.total_bytes)} in pages of {bytes_text(each.page_bytes)} of zone {each.zone}"
        for each in place.huge_pages
    ]
    return "; ".join([*zones, *cpus, *devices, *pages]) or "nothing"


def _device_text(share: "DeviceShare") -> str:
    name = f"{share.kind} {share.device}"
    if share.core_pct == _WHOLE_PCT:
        return name
    memory = f", {bytes_text(share.memory_bytes)}" if share.memory_bytes else ""
    return f"{name} ({share.core_pct} %{memory})"
