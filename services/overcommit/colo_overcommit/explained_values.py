"""The values of an explanation's terms by zone, from which its numbers are computed again."""

from colo_common.events.node import Explanation

__all__ = ["values_by_zone"]


def values_by_zone(explanation: Explanation) -> dict[int, dict[str, int]]:
    """Zone -> name of a term -> its value. Terms of the whole node are left out."""
    by_zone: dict[int, dict[str, int]] = {}
    for term in explanation.terms:
        if term.zone is not None:
            by_zone.setdefault(term.zone, {})[term.name] = term.value
    return by_zone
