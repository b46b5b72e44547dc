"""Pages of a list: at most as many values as asked for, and never more bytes than one message may carry."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = ["PAGE_BYTES", "PAGE_MOST", "cut_to_page", "page_by_name"]

#: The bytes of the values of a page, as JSON: half of what a NATS server takes by itself, so that the rest of an answer fits too.
PAGE_BYTES: Final = 512 * 1024
#: The most values of a page.
PAGE_MOST: Final = 1_000
_CURSOR_MOST: Final = 512
_RULE: Final = "must be the `next` of the page before"

Item = TypeVar("Item")
Value = TypeVar("Value", bound=Struct)


def cut_to_page(items: Iterable[Item], value_of: Callable[[Item], Value], limit: int) -> tuple[Value, ...]:
    """The values of the first items: at most `limit`, and no more than fit into PAGE_BYTES, but at least one where there is one."""
    values: list[Value] = []
    room_bytes = PAGE_BYTES
    for item in items:
        value = value_of(item)
        room_bytes -= len(msgspec.json.encode(value)) + 1
        if len(values) >= limit or (values and room_bytes < 0):
            break
        values.append(value)
    return tuple(values)


def page_by_name(
    values: Sequence[Value], name_of: Callable[[Value], str], cursor: str, limit: int
) -> tuple[tuple[Value, ...], str]:
    """One page of a sorted list whose order may change between two questions, and the cursor of the next; "" at its end.

    A cursor is "<position>:<name of the last value>". The page begins after that value wherever it stands now; where it is gone,
    at that position. Raises InvalidInput for what is no cursor.
    """
    start = 0
    if cursor:
        position, colon, name = cursor.partition(":")
        if not (colon and name and position.isdigit()) or len(cursor) > _CURSOR_MOST:
            raise InvalidInput("cursor", _RULE, cursor[:80])
        start = next((at + 1 for at, value in enumerate(values) if name_of(value) == name), int(position[:9]))
    found = cut_to_page(values[start:], lambda value: value, limit)
    end = start + len(found)
    return found, f"{end}:{name_of(found[-1])}" if found and end < len(values) else ""
