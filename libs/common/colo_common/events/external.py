"""What a system outside says that a node has for batch work: a bound beside the computed number, for a time."""

from typing import Final

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.model.units import Bytes, Mcpu, Ms, NodeName

__all__ = [
    "TTL_MOST_MS",
    "ClearExternalCapacity",
    "ExternalCapacity",
    "ExternalCapacityChanged",
    "NodeExternal",
    "SetExternalCapacity",
]

TTL_MOST_MS: Final = 24 * 3_600_000
"""For so long what a source says may count without being said again."""


class ExternalCapacity(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one source says; None: it says nothing about that resource. It counts until `until_ms` (Unix). `by`: who told it."""

    source: str
    until_ms: Ms
    cpu_mcpu: Mcpu | None = None
    memory_bytes: Bytes | None = None
    by: str = ""


class ExternalCapacityChanged(Fact, frozen=True, kw_only=True):
    """All that sources say about the node now; () when none does. The bus keeps the last message of each node."""

    node: NodeName
    entries: tuple[ExternalCapacity, ...] = ()


class SetExternalCapacity(Struct, frozen=True, kw_only=True):
    """No more than this is promised to batch work on the node, for `ttl_ms` from now; said again, it counts from then.

    The smallest of all sources and of the computed number counts. The reply is NodeExternal, or a Refusal: 404 for an unknown node,
    400 for a value out of its range, 409 above 8 sources.
    """

    node: str
    source: str
    ttl_ms: int
    cpu_mcpu: int | None = None
    memory_bytes: int | None = None
    by: str = ""


class ClearExternalCapacity(Struct, frozen=True, kw_only=True):
    """What this source said of the node counts no longer; nothing changes when it said nothing. The reply is NodeExternal."""

    node: str
    source: str


class NodeExternal(Struct, frozen=True, kw_only=True):
    """What sources say about the node now, by their names. `changed`: whether this request changed it."""

    node: str
    now_ms: Ms
    entries: tuple[ExternalCapacity, ...] = ()
    changed: bool = False
