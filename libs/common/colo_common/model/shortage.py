"""The text of what a node lacks for a request. The command line, the API and job stories use the same wording."""

from __future__ import annotations

from typing import Final

from colo_common.model.quantity import bytes_text, cpu_text
from colo_common.model.reasons import SENTENCES, Reason

__all__ = ["CONDITION", "DEVICE_MEMORY", "LOAD_UNITS", "amount_text", "most_text", "shortage_text"]

CONDITION: Final = "condition"
"""The unit of a reason without an amount: a condition that holds or does not hold."""

DEVICE_MEMORY: Final = "of memory on "
"""The first words of the unit of device memory, counted in bytes: "of memory on one gpu", "of memory on each of 4 gpu"."""

LOAD_UNITS: Final = {
    "cpu-load-pct": "CPU load",
    "memory-load-pct": "memory load",
    "cpu-load-5m-pct": "CPU load (average of 5 minutes)",
    "memory-load-5m-pct": "memory load (average of 5 minutes)",
    "cpu-load-1h-pct": "CPU load (highest of an hour)",
    "memory-load-1h-pct": "memory load (highest of an hour)",
    "cpu-load-1d-pct": "CPU load (highest of a day)",
    "memory-load-1d-pct": "memory load (highest of a day)",
}
"""The units of load in percent of a machine. With them `need` is the threshold and `have`, the measured load, is above it."""

_BATCH_REPLICAS: Final = "batch-replicas"
_BYTE_UNITS: Final = ("bytes", "huge-page-bytes")


def shortage_text(*, node: str, reason: str, need: int, have: int, unit: str, zone: int | None = None) -> str:
    """What a node lacks now: "1.2 CPU short in zone 1 of node-07 (2.8 of 4)", or "CPU load 71 % of 65 % in node-07"."""
    where = node if zone is None else f"zone {zone} of {node}"
    if unit in LOAD_UNITS:
        return f"{LOAD_UNITS[unit]} {have} % of {need} % in {where}"
    if unit == _BATCH_REPLICAS:
        return f"{have} of {need} batch replicas in {where}"
    if unit == CONDITION or have >= need:
        return f"{where}: {_sentence(reason)}"
    lack = amount_text(need - have, unit, reason)
    return f"{lack} short in {where} ({_number(have, unit)} of {_number(need, unit)})"


def most_text(*, node: str, reason: str, need: int, have: int, unit: str, zone: int | None = None) -> str:
    """What the largest machine lacks: "a machine has 16 CPU at most (node-07), it needs 60"; with a zone, the largest NUMA node."""
    if unit == CONDITION:
        return f"{_sentence(reason)} ({node}, and all others)"
    what, where = ("machine", node) if zone is None else ("NUMA node", f"zone {zone} of {node}")
    if have <= 0:
        return f"no {what} has any {_thing(unit, reason)}, it needs {_number(need, unit)}"
    return f"a {what} has {amount_text(have, unit, reason)} at most ({where}), it needs {_number(need, unit)}"


def amount_text(value: int, unit: str, reason: str = "") -> str:
    """An amount with its unit: "1.2 CPU", "512Mi of memory", "2 CPUs of its own", "1 gpu"."""
    number = _number(value, unit)
    match unit:
        case "mcpu":
            return f"{number} CPU"
        case "bytes" | "huge-page-bytes":
            return f"{number} of {_thing(unit, reason)}"
        case "cpus":
            return f"{number} CPU{'' if value == 1 else 's'} of its own"
        case _:
            return f"{number} {unit}"


def _thing(unit: str, reason: str) -> str:
    match unit:
        case "mcpu":
            return "CPU"
        case "bytes" | "huge-page-bytes":
            return "huge pages" if unit != "bytes" or reason == Reason.HUGE_PAGES_SHORT else "memory"
        case "cpus":
            return "CPUs to give away"
        case _:
            return unit.removeprefix("of ")


def _number(value: int, unit: str) -> str:
    if unit == "mcpu":
        return cpu_text(value)
    return bytes_text(value) if unit in _BYTE_UNITS or unit.startswith(DEVICE_MEMORY) else str(value)


def _sentence(reason: str) -> str:
    return SENTENCES[Reason(reason)] if reason in list(Reason) else reason
