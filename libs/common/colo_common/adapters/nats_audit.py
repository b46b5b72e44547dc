"""The audit that its stream keeps, read from the newest backwards. For operators, not for hot paths."""

from typing import Final

import nats.js.errors

from colo_common.adapters.nats_connection import NatsConnection
from colo_common.adapters.nats_errors import NATS_ERRORS, keeps_cancellation, port_error
from colo_common.events.audit import RequestAudited
from colo_common.events.registry import Stream, event_of
from colo_common.events.wire import decode
from colo_common.model.invalid import InvalidInput

__all__ = ["NatsAudit"]

_TIMEOUT_S: Final = 5.0
_SUBJECT: Final = event_of(RequestAudited).subject.of()


class NatsAudit:
    """See ports.AuditLog."""

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection

    async def newest(self, before: int, limit: int) -> tuple[tuple[int, RequestAudited], ...]:
        """See AuditLog.newest."""
        self._connection.check()
        jetstream = self._connection.client.jetstream(timeout=_TIMEOUT_S)
        found: list[tuple[int, RequestAudited]] = []
        try:
            with keeps_cancellation():
                message = await jetstream.get_last_msg(Stream.AUDIT.value, _SUBJECT)
                seq = message.seq or 0
                while seq > 0 and len(found) < limit:
                    if before and seq >= before:
                        seq = before - 1
                        continue
                    if seq != message.seq:
                        message = await jetstream.get_msg(Stream.AUDIT.value, seq=seq)
                    try:
                        fact = decode(message.subject or "", message.data or b"")
                    except InvalidInput:
                        # Of a later version: it is left for that.
                        fact = None
                    if isinstance(fact, RequestAudited):
                        found.append((seq, fact))
                    seq -= 1
        except nats.js.errors.NotFoundError:
            # The stream is empty, or begins here.
            pass
        except NATS_ERRORS as error:
            raise port_error(error, "read the audit") from error
        return tuple(found)
