"""The ranges of a struct's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colo_common.model.invalid import InvalidInput

if TYPE_CHECKING:
    from msgspec import Struct

__all__ = ["check_ranges"]


def check_ranges(of: Struct, *ranges: tuple[str, int, int]) -> None:
    """Raise InvalidInput for the first field that is not from its lowest to its highest value, both allowed."""
    for name, lowest, highest in ranges:
        value = getattr(of, name)
        if not lowest <= value <= highest:
            raise InvalidInput(name, f"must be from {lowest} to {highest}", value)
