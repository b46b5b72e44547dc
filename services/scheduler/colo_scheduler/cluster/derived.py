"""Caches of the layers above the cluster, kept with the cluster that they derive from.

The cluster stores these objects and does not know their types: a cache belongs to the layer that fills it.
"""

from typing import TypeVar

__all__ = ["Derived"]

T = TypeVar("T")


class Derived:
    """At most one object of each type, made without arguments when it is first asked for."""

    def __init__(self) -> None:
        self._kept: dict[type, object] = {}

    def of(self, kind: type[T]) -> T:
        """The object of this type; every call returns the same object."""
        found = self._kept.get(kind)
        if not isinstance(found, kind):
            found = self._kept[kind] = kind()
        return found
