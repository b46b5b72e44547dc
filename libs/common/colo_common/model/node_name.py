"""The name of a node when nobody has chosen one."""

import re
from typing import Final

__all__ = ["node_name"]

_UNSAFE: Final = re.compile(r"[^a-z0-9.-]+", re.ASCII)


def node_name(host: str) -> str:
    """A host's name as a DNS-1123 name: lower case, other characters as "-"; "node" when nothing is left."""
    parts = (part.strip("-") for part in _UNSAFE.sub("-", host.lower())[:253].split("."))
    return ".".join(part for part in parts if part) or "node"
