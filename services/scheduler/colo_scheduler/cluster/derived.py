"""Objects that the layers above the cluster keep beside it, as caches of what they derive from it.

The cluster makes room for these objects and does not know what they are: a cache belongs to the layer that fills it.
"""

from typing import TypeVar

__all__ = ["Derived"]

T = TypeVar("T")


class Derived:
    """At most one object of each type, made without arguments when it is first asked for."""

    def __init__(self) -> None:
        self._kept: dict[type, object] = {}

    def of(self, kind: type[T]) -> T:
        """The object of this type; the same one at every call."""
        found = self._kept.get(kind)
        if not isinstance(found, kind):
            found = self._kept[kind] = kind()
        return found
