"""What a replica may run, from short to the longest that is legal, and the bytes that an ordinary NATS takes for a message."""

from __future__ import annotations

from typing import Final

from colo_common.model.workload import RunSpec

__all__ = ["LONG", "LONGEST", "MESSAGE_BYTES", "SHORT"]

#: What a NATS server takes by itself, without the room that headers need in it.
MESSAGE_BYTES: Final = (1 << 20) - 16_384
_LENGTH: Final = 60 << 10
#: JSON needs six bytes for each of these, and the rules of a job count one.
_ESCAPED: Final = "\x01"

SHORT: Final = RunSpec(command=("/bin/true",), work_mcpu_ms=1)
LONG: Final = RunSpec(command=("/bin/true", "y" * _LENGTH), env={"X": "y" * _LENGTH}, work_mcpu_ms=1)
LONGEST: Final = RunSpec(command=("/bin/true", _ESCAPED * _LENGTH), env={"X": _ESCAPED * _LENGTH}, work_mcpu_ms=1)
