"""The numbers and names in messages as types with bounds. A message with a value out of its bounds does not decode.

The bounds are far above every machine and far below 64 bits, so sums over nodes, zones and replicas fit into 64 bits.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from colo_common.model.invalid import InvalidInput

__all__ = [
    "Bytes",
    "Mcpu",
    "Ms",
    "NodeName",
    "Number",
    "ReplicaName",
    "ShareBytes",
    "ShareMcpu",
    "Signed",
    "Us",
    "ZoneBytes",
    "check_units",
]

# The largest integer that every JSON reader keeps exactly.
_EXACT_MOST: Final = (1 << 53) - 1

#: Milli-CPU of a machine or of workloads on it.
Mcpu = Annotated[int, Meta(ge=0, le=1 << 40)]
Bytes = Annotated[int, Meta(ge=0, le=1 << 60)]
#: Memory of one NUMA zone; at most 1024 zones sum to Bytes.
ZoneBytes = Annotated[int, Meta(ge=0, le=1 << 50)]
#: Milli-CPU and bytes that one replica holds.
ShareMcpu = Annotated[int, Meta(ge=0, le=1 << 24)]
ShareBytes = Annotated[int, Meta(ge=0, le=1 << 46)]
#: Moments (Unix) and spans.
Ms = Annotated[int, Meta(ge=0, le=_EXACT_MOST)]
Us = Annotated[int, Meta(ge=0, le=_EXACT_MOST)]
#: Counts, sequence numbers, versions, generations, attempts and ids.
Number = Annotated[int, Meta(ge=0, le=_EXACT_MOST)]
#: Numbers that may be below zero: a headroom, an exit code.
Signed = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
#: A node's name. Only its length is checked here; its characters are checked when it becomes part of a subject.
NodeName = Annotated[str, Meta(max_length=253)]
#: "job/task/index", or empty without a replica.
ReplicaName = Annotated[str, Meta(max_length=253)]


def check_units(value: Struct, field: str) -> None:
    """Raise InvalidInput for the first number or name out of its bounds: for values that were built in code, not decoded."""
    try:
        msgspec.convert(msgspec.to_builtins(value), type(value))
    except msgspec.ValidationError as error:
        rule, _, path = str(error).partition(" - at ")
        raise InvalidInput(f"{field}{path.strip('`').removeprefix('$')}", rule, type(value).__name__) from error
