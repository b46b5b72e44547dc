"""The numbers and names of messages as types: what is outside their range does not decode, whoever sent it.

The bounds are far beyond every machine, and so far below 64 bits that sums over nodes, zones and replicas stay inside.
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

# What every JSON reader keeps exactly.
_EXACT_MOST: Final = (1 << 53) - 1

#: Milli-CPU of a machine or of what runs there.
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
#: What may be below zero: a headroom, a need, an exit code.
Signed = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
#: The length of a node's name; its letters are checked where the name becomes part of a subject.
NodeName = Annotated[str, Meta(max_length=253)]
#: "job/task/index", or empty where there is none.
ReplicaName = Annotated[str, Meta(max_length=253)]


def check_units(value: Struct, field: str) -> None:
    """Raise InvalidInput for the first number or name that is out of the range of its type: for what was never decoded."""
    try:
        msgspec.convert(msgspec.to_builtins(value), type(value))
    except msgspec.ValidationError as error:
        rule, _, path = str(error).partition(" - at ")
        raise InvalidInput(f"{field}{path.strip('`').removeprefix('$')}", rule, type(value).__name__) from error
