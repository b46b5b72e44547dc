"""Sums of named resources: whole numbers by name, CPU in milli-CPU, memory in bytes, everything else in its own unit.

A name that is absent counts as 0. No function changes its arguments, and results keep the order of their first argument.
"""

from collections.abc import Iterable, Mapping
from typing import Final

__all__ = [
    "EPHEMERAL_STORAGE",
    "REPLICAS",
    "Amounts",
    "plus",
    "room_left",
    "total_of",
]

Amounts = Mapping[str, int]

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


def room_left(first: Amounts, second: Amounts) -> dict[str, int]:
    """The difference for the names of `first`, never below zero."""
    return {name: max(0, amount - second.get(name, 0)) for name, amount in first.items()}
