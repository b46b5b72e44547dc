"""Limits that every store checks before it writes."""

from collections.abc import Sequence
from typing import Final

from colo_common.events.effects import Write
from colo_common.ports import Refused

__all__ = ["ROWS_A_WRITE", "check_batch"]

# A script that writes more would block the server for other clients longer than a few milliseconds. The port promises its callers
# 500 rows; the service shell adds one outbox row.
ROWS_A_WRITE: Final = 501


def check_batch(writes: Sequence[Write]) -> None:
    """Raise Refused for a batch that is too long, a row without kind or id, or a negative expected version."""
    if len(writes) > ROWS_A_WRITE:
        raise Refused(f"at most {ROWS_A_WRITE} rows may be written together, got {len(writes)}")
    for write in writes:
        if not write.kind or not write.id:
            raise Refused(f"a row needs a kind and an id, got {write.kind!r}/{write.id!r}")
        if write.expect < 0:
            raise Refused(f"{write.kind}/{write.id}: the expected version must not be negative, got {write.expect}")
