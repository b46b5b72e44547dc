"""What the estimators of a node have learned, as a row of the store: encoded, bounded and versioned."""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from colo_overcommit.estimators.states import EstimatorState

__all__ = [
    "KEPT_MS",
    "ROW_KIND",
    "VERSION",
    "HistoriesLoaded",
    "LoadHistories",
    "NodeHistory",
    "ProdHistory",
    "ZoneHistory",
    "decode_history",
    "encode_history",
]

ROW_KIND: Final = "overcommit-history"
"""The kind of the rows; the id of one is its node."""
VERSION: Final = 1
"""Of the form of a row. A row of another one is not read, and is written over when its node has learned a step."""
BYTES_MOST: Final = 262_144
"""A periodic estimator of a machine with four zones has 200 KiB."""
KEPT_MS: Final = 8 * 24 * 3_600_000
"""No estimator looks further back: an older row says nothing."""
_ZONES_MOST: Final = 1_024
_REPLICAS_MOST: Final = 10_000


class ZoneHistory(Struct, frozen=True, kw_only=True):
    """The estimators of one zone."""

    zone: Annotated[int, Meta(ge=0)]
    cpu: EstimatorState
    memory: EstimatorState


class ProdHistory(Struct, frozen=True, kw_only=True):
    """What the mid tier is computed from: the peaks of each zone, and since when each replica is measured."""

    zones: Annotated[tuple[ZoneHistory, ...], Meta(max_length=_ZONES_MOST)] = ()
    since_ms: Annotated[dict[str, int], Meta(max_length=_REPLICAS_MOST)] = {}


class NodeHistory(Struct, frozen=True, kw_only=True):
    """The row of a node. `at_ms` is the time of the newest sample in it; `version` is that of this form."""

    version: int
    at_ms: Annotated[int, Meta(ge=0)]
    zones: Annotated[tuple[ZoneHistory, ...], Meta(max_length=_ZONES_MOST)] = ()
    prod: ProdHistory | None = None


class HistoriesLoaded(Struct, frozen=True, kw_only=True):
    """Event: the stored rows, node -> value; before any other event, or of the nodes of the `partitions` that came here."""

    rows: Mapping[str, bytes]
    partitions: tuple[int, ...] = ()


class LoadHistories(Struct, frozen=True, kw_only=True):
    """Effect: read the rows again. The nodes of these partitions came here; what another instance learned of them is stored."""

    partitions: tuple[int, ...]


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(NodeHistory)


def encode_history(history: NodeHistory) -> bytes | None:
    """The value of a row; None for one that is too large to be stored."""
    value = _ENCODER.encode(history)
    return value if len(value) <= BYTES_MOST else None


def decode_history(value: bytes) -> NodeHistory | None:
    """The history in a row; None for one of another version, or that cannot be read: the node learns from nothing."""
    if len(value) > BYTES_MOST:
        return None
    try:
        history = _DECODER.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return history if history.version == VERSION else None
