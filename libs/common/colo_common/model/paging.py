"""Pages and parts of a list: at most as many values as asked for, and never more bytes than one message may carry."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = ["PAGE_BYTES", "PAGE_MOST", "cut_to_page", "json_bytes", "limit_of", "page_by_name", "page_of", "parts_of"]

#: The bytes of the values of a page, as JSON: half of what a NATS server takes by itself, so that the rest of an answer fits too.
PAGE_BYTES: Final = 512 * 1024
#: The most values of a page.
PAGE_MOST: Final = 1_000
_CURSOR_MOST: Final = 512
_RULE: Final = "must be the `next` of the page before"

Item = TypeVar("Item")
Value = TypeVar("Value", bound=Struct)


def json_bytes(value: Struct) -> int:
    """The bytes that the value adds to a list in JSON."""
    return len(msgspec.json.encode(value)) + 1


def parts_of(
    values: Iterable[Value],
    most: int,
    bytes_of: Callable[[Value], int] = json_bytes,
    most_bytes: int = PAGE_BYTES,
) -> Iterator[tuple[Value, ...]]:
    """The values in their order, in parts for a message each: at most `most`, and no more than fit into `most_bytes`.

    A value that is longer than that is a part by itself.
    """
    part: list[Value] = []
    room_bytes = most_bytes
    for value in values:
        size_bytes = bytes_of(value)
        if part and (len(part) >= most or size_bytes > room_bytes):
            yield tuple(part)
            part, room_bytes = [], most_bytes
        part.append(value)
        room_bytes -= size_bytes
    if part:
        yield tuple(part)


def cut_to_page(
    items: Iterable[Item], value_of: Callable[[Item], Value], limit: int, most_bytes: int = PAGE_BYTES
) -> tuple[Value, ...]:
    """The values of the first items: at most `limit`, and no more than fit into `most_bytes`, but one where there is one."""
    return next(parts_of(map(value_of, items), limit, most_bytes=most_bytes), ())


def limit_of(asked: int) -> int:
    """How many values a page has when so many were asked for; 0 and less: the most that a page may have."""
    return min(asked, PAGE_MOST) if asked > 0 else PAGE_MOST


def page_by_name(
    values: Sequence[Value], name_of: Callable[[Value], str], cursor: str, limit: int
) -> tuple[tuple[Value, ...], str]:
    """`page_of` a list of the values themselves."""
    return page_of(values, name_of, lambda value: value, cursor, limit)


def page_of(
    items: Sequence[Item],
    name_of: Callable[[Item], str],
    value_of: Callable[[Item], Value],
    cursor: str,
    limit: int,
    most_bytes: int = PAGE_BYTES,
) -> tuple[tuple[Value, ...], str]:
    """One page of a sorted list whose order may change between two questions, and the cursor of the next; "" at its end.

    Only the values of the page are made.

    A cursor is "<position>:<name of the last value>". The page begins after that value wherever it stands now; where it is gone,
    at that position. Raises InvalidInput for what is no cursor.
    """
    start = 0
    if cursor:
        position, colon, name = cursor.partition(":")
        if not (colon and name and position.isdigit()) or len(cursor) > _CURSOR_MOST:
            raise InvalidInput("cursor", _RULE, cursor[:80])
        start = next((at + 1 for at, item in enumerate(items) if name_of(item) == name), int(position[:9]))
    found = cut_to_page(items[start:], value_of, limit, most_bytes)
    end = start + len(found)
    return found, f"{end}:{name_of(items[end - 1])}" if found and end < len(items) else ""
