"""Finds the few reservations that a claimant can own, among very many that are for others."""

from collections.abc import Iterable

from colo_common.model.reservation import OwnerTerm
from colo_scheduler.reservations.owners import Claimant

__all__ = ["OwnerIndex"]

_Key = tuple[str, str]


class OwnerIndex:
    """Names of reservations by the owners that their terms name. A term that names no owner matches every claimant."""

    def __init__(self) -> None:
        self._named: dict[_Key, set[str]] = {}
        self._open: set[str] = set()
        self._terms: dict[str, tuple[OwnerTerm, ...]] = {}

    def fork(self) -> "OwnerIndex":
        """An independent index with the same content."""
        other = OwnerIndex()
        other._named = {key: set(names) for key, names in self._named.items()}
        other._open, other._terms = set(self._open), dict(self._terms)
        return other

    def add(self, name: str, terms: tuple[OwnerTerm, ...]) -> None:
        """Add this reservation to the index."""
        self.remove(name)
        self._terms[name] = terms
        for key in map(_key_of, terms):
            if key is None:
                self._open.add(name)
            else:
                self._named.setdefault(key, set()).add(name)

    def remove(self, name: str) -> None:
        """Remove this reservation from the index."""
        self._open.discard(name)
        for key in map(_key_of, self._terms.pop(name, ())):
            names = self._named.get(key) if key is not None else None
            if key is not None and names is not None:
                names.discard(name)
                if not names:
                    del self._named[key]

    def candidates(self, claimant: Claimant) -> list[str]:
        """Every reservation that the claimant may own, sorted, and few others."""
        if claimant.ignores_reservations:
            return sorted(self._terms)
        if claimant.reservation:
            return [claimant.reservation] if claimant.reservation in self._terms else []
        objects = [("object", name) for name in (claimant.name, claimant.also_named) if name]
        keys: Iterable[_Key] = objects + [("controller", owner.name) for owner in claimant.controllers]
        return sorted(self._open.union(*(self._named.get(key, ()) for key in keys)))


def _key_of(term: OwnerTerm) -> _Key | None:
    if term.controller is not None and term.controller.name:
        return ("controller", term.controller.name)
    if term.object is not None and term.object.name:
        return ("object", term.object.name)
    return None
