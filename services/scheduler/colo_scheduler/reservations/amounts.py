"""Sums of named resources: whole numbers by name, CPU in milli-CPU, memory in bytes, everything else in its own unit.

A name that is absent counts as 0. No function changes what it is given, and results keep the order of their first argument.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

__all__ = [
    "CPU",
    "EPHEMERAL_STORAGE",
    "MEMORY",
    "REPLICAS",
    "Amounts",
    "least_of",
    "less",
    "masked",
    "plus",
    "room_left",
    "total_of",
]

Amounts = Mapping[str, int]

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
REPLICAS: Final = "pods"
"""The count of replicas, spelt as Kubernetes spells it."""


def plus(first: Amounts, second: Amounts) -> dict[str, int]:
    """The sum, by name."""
    result = dict(first)
    for name, amount in second.items():
        result[name] = result.get(name, 0) + amount
    return result


def total_of(parts: Iterable[Amounts]) -> dict[str, int]:
    """The sum of all parts, by name."""
    result: dict[str, int] = {}
    for part in parts:
        result = plus(result, part)
    return result


def less(first: Amounts, second: Amounts) -> dict[str, int]:
    """The difference, by name; it may be below zero."""
    return plus(first, {name: -amount for name, amount in second.items()})


def room_left(first: Amounts, second: Amounts) -> dict[str, int]:
    """The difference for the names of `first`, never below zero."""
    return {name: max(0, amount - second.get(name, 0)) for name, amount in first.items()}


def least_of(first: Amounts, second: Amounts) -> dict[str, int]:
    """The smaller amount for the names of `first`."""
    return {name: min(amount, second.get(name, 0)) for name, amount in first.items()}


def masked(amounts: Amounts, names: Collection[str]) -> dict[str, int]:
    """Only these names."""
    return {name: amount for name, amount in amounts.items() if name in names}
