"""Turns the effects of a core into outgoing batches: one for each Record, so that a conflict drops only its own messages."""

from collections.abc import Sequence

from msgspec import Struct

from colo_common.events.effects import Effect, Publish, Record, Reply, Write
from colo_common.events.requests import Refusal
from colo_common.events.wire import encode_reply
from colo_common.runtime.outgoing import OutgoingBatch
from colo_common.runtime.stamp import Stamp, row_from_outgoing

__all__ = ["outbox_kind", "outbox_removal", "outgoing_batches_from_effects", "unit_of"]


def outbox_kind(service: str) -> str:
    """The kind of a service's outbox rows, which keep messages between record and publish."""
    return f"outbox-{service}"


def outbox_removal(kind: str, id_: str) -> Write:
    """The write that removes an outbox row. A row is written once, so its version is 1."""
    return Write(kind=kind, id=id_, value=None, expect=1)


def outgoing_batches_from_effects(effects: Sequence[Effect], stamp: Stamp) -> list[OutgoingBatch]:
    """The effects of one event, cut before each Record but the first. A conflict on a Record drops its outgoing batch and no other.

    Effects before the first Record belong to it; effects after a Record belong to it up to the next. The order within each kind of
    effect is kept.
    """
    if not effects:
        return []
    outgoing_batch = OutgoingBatch()
    outgoing_batches = [outgoing_batch]
    for effect in effects:
        match effect:
            case Publish():
                outgoing_batch.messages.append(stamp.outgoing(effect))
            case Record():
                if outgoing_batch.writes is not None:
                    outgoing_batch = OutgoingBatch()
                    outgoing_batches.append(outgoing_batch)
                outgoing_batch.writes = effect.writes
            case Reply():
                body = b"" if effect.body is None else encode_reply(effect.body)
                outgoing_batch.replies.append((effect.request, body))
                outgoing_batch.refusals += isinstance(effect.body, Refusal)
            case Struct():
                outgoing_batch.own.append(effect)
    return outgoing_batches


def unit_of(outgoing_batch: OutgoingBatch, kind: str, id_: str) -> tuple[Write, ...]:
    """The rows to record together: those of the outgoing batch and, with durable messages, an outbox row of that kind and id.

    State and messages are then durable together: a crash after the record loses neither. The removal of the outbox row is added to
    the outgoing batch. Without a Record there are no rows.
    """
    if outgoing_batch.writes is None:
        return ()
    durable = [message for message in outgoing_batch.messages if message.durable]
    if not durable:
        return outgoing_batch.writes
    outgoing_batch.outbox.append(outbox_removal(kind, id_))
    return (*outgoing_batch.writes, Write(kind=kind, id=id_, value=row_from_outgoing(durable), expect=0))
