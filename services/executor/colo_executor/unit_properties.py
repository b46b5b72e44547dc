"""The knobs of a control group as properties of the systemd unit that owns it (systemd.resource-control(5))."""

import re
from collections.abc import Mapping
from typing import Final

from colo_executor.knob_table import PERIOD_US, UNLIMITED, Knob
from colo_executor.knobs import text_of

__all__ = ["UnitProperty", "property_of", "property_path", "property_text", "shown_text", "unit_property_at"]

_PREFIX: Final = "systemd:"
_QUOTA: Final = "CPUQuota"
_BY_VERSION: Final[Mapping[int, Mapping[Knob, str]]] = {
    1: {Knob.CPU_WEIGHT: "CPUShares", Knob.CPU_QUOTA: _QUOTA, Knob.MEMORY_LIMIT: "MemoryLimit"},
    2: {
        Knob.CPU_WEIGHT: "CPUWeight",
        Knob.CPU_QUOTA: _QUOTA,
        Knob.MEMORY_LIMIT: "MemoryMax",
        Knob.MEMORY_MIN: "MemoryMin",
        Knob.MEMORY_LOW: "MemoryLow",
        Knob.CPUSET_CPUS: "AllowedCPUs",
    },
}
_SPAN: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|min|h)", re.ASCII)
_US: Final = {"us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000}
_US_PER_PERCENT: Final = 10_000

UnitProperty = tuple[str, str]
"""Name of the unit, name of the property."""


def property_of(knob: Knob, version: int) -> str:
    """The property by which systemd sets the knob under that version of cgroups, "" where it has none."""
    return _BY_VERSION[version].get(knob, "")


def property_text(knob: Knob, version: int, value: int | str) -> str:
    """The value of the property that makes systemd write this value of the knob."""
    if knob is Knob.CPU_QUOTA:
        return "" if value == UNLIMITED else _percent(int(value) * 100 / PERIOD_US)
    if knob in (Knob.MEMORY_LIMIT, Knob.MEMORY_MIN, Knob.MEMORY_LOW):
        return "infinity" if value == UNLIMITED else str(value)
    return text_of(knob, version, value)


def shown_text(name: str, shown: str) -> str:
    """The assignment that gives the property the value that `systemctl show` prints; "" where it has none of its own."""
    if name != _QUOTA:
        return "" if shown == "[not set]" else shown
    spans = _SPAN.findall(shown)
    if not spans:
        # infinity
        return ""
    return _percent(sum(float(number) * _US[unit] for number, unit in spans) / _US_PER_PERCENT)


def property_path(unit: str, name: str) -> str:
    """The name under which the journal keeps what the property was before."""
    return f"{_PREFIX}{unit}:{name}"


def unit_property_at(path: str) -> UnitProperty | None:
    """The property whose value from before the journal keeps under this name; None for a file."""
    if not path.startswith(_PREFIX):
        return None
    unit, _, name = path.removeprefix(_PREFIX).rpartition(":")
    return unit, name


def _percent(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") + "%"
