"""The text of a place in one line: zones, CPUs by number, devices and huge pages."""

from typing import Any

from colo_cli.output import bytes_text, cpu_text

__all__ = ["holds_text"]

_WHOLE_PCT = 100


def holds_text(place: dict[str, Any]) -> str:
    """Zones with CPU and memory, then "CPUs 4-7", "gpu 0", "gpu 1 (50 %, 8Gi)", "512Mi in pages of 2Mi of zone 0"; "nothing".

    `place` has the fields of a placement or of a reservation's place as JSON; an absent field is empty.
    """
    zones = [
        f"zone {each['zone']}: {cpu_text(each['cpu_mcpu'])} CPU, {bytes_text(each['memory_bytes'])}"
        for each in place["zones"]
    ]
    cpus = [f"CPUs {place['cpus']}"] if place.get("cpus") else []
    devices = [_device_text(each) for each in place.get("devices", [])]
    pages = [
        f"{bytes_text(each['total_bytes'])} in pages of {bytes_text(each['page_bytes'])} of zone {each['zone']}"
        for each in place.get("huge_pages", [])
    ]
    return "; ".join([*zones, *cpus, *devices, *pages]) or "nothing"


def _device_text(share: dict[str, Any]) -> str:
    name, core_pct = f"{share['kind']} {share['device']}", share.get("core_pct", _WHOLE_PCT)
    if core_pct == _WHOLE_PCT:
        return name
    memory = f", {bytes_text(share['memory_bytes'])}" if share.get("memory_bytes") else ""
    return f"{name} ({core_pct} %{memory})"
