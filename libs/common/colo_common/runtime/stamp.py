"""Turns Publish effects into messages: the envelope of every fact, its subject, its bytes, its headers."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import ValidationError, msgpack, structs

from colo_common.events.effects import Publish
from colo_common.events.eviction import EvictReplica
from colo_common.events.fact import Fact, FencedFact
from colo_common.events.job import StopReplicas
from colo_common.events.registry import event_of, subject_of
from colo_common.events.service import DeadLettered
from colo_common.events.wire import decode, encode, headers_of
from colo_common.model.invalid import InvalidInput
from colo_common.model.partition import WHOLE, Share
from colo_common.ports import Clock, Delivery, Outgoing

__all__ = ["Stamp", "outgoing_from_row", "row_from_outgoing"]

_PAYLOAD_CHARACTERS = 2_048
_ID_CHARACTERS = 512
_HEADERS_KEPT: Final = 32
_HEADERS_BYTES_MOST: Final = 16_384
# In base64, with headers and the envelope, it fits in a message of the server's default limit of 1 MiB.
_DATA_BYTES_MOST: Final = 512 * 1024
# The fence of who does not hold the node any more: below every other, and not 0, which is that of an instance that is alone.
_REPLACED: Final = 1

# Subject, body, id and traceparent. The headers are computed from these, so that no row stores them.
_Kept = tuple[str, bytes, str, str]
_ENCODER: Final = msgpack.Encoder()
# Rows of an earlier version hold whole messages.
_DECODER: Final = msgpack.Decoder(tuple[_Kept | Outgoing, ...])


class _Kind(NamedTuple):
    """Properties shared by all messages of one type; `subject` is empty where it has parameters."""

    durable: bool
    subject: str
    is_order: bool


class Stamp:
    """Gives each message of one start of one service its number and times."""

    def __init__(
        self,
        service: str,
        boot_id: str,
        clock: Clock,
        fence: Callable[[str], int] | None = None,
        share: Share = WHOLE,
    ) -> None:
        """`fence`: under which the service acts on a node, 0 where it does not hold it. Orders to the node name it as their
        `generation`, and the node refuses those of older ones; so does `fence` of what is said of the node. Where it serves one
        partition of the jobs its orders to stop name that as well: two of them have terms of their own.
        """
        self._fence = fence
        self._share = share
        self._service = service
        self.boot_id = boot_id
        self._clock = clock
        self._seq = 0
        self._kinds: dict[type[Fact], _Kind] = {}

    def outgoing(self, publish: Publish) -> Outgoing:
        """The message of an effect. `at_ms` is kept where the core set it. Raises KeyError for a type that is not registered."""
        self._seq += 1
        published = publish.fact
        kind = self._kinds.get(type(published)) or self._kind_of(type(published))
        fact = structs.replace(
            published,
            at_ms=published.at_ms or self._clock.now_ms(),
            producer=self._service,
            boot_id=self.boot_id,
            seq=self._seq,
            sent_us=self._clock.wall_us(),
        )
        id_ = publish.id
        if self._fence is not None and kind.is_order:
            fact = structs.replace(fact, generation=self._fence(_node_of(fact)) or _REPLACED)
            if isinstance(fact, StopReplicas) and not self._share.is_whole:
                share = self._share
                fact = structs.replace(fact, partition=share.partition, partitions=share.partitions)
        elif self._fence is not None and isinstance(fact, FencedFact):
            fence = self._fence(fact.node) or _REPLACED
            fact = structs.replace(fact, fence=fence)
            # What two holders say of one sample are two messages, of which the stream must not drop the newer one.
            id_ = f"{id_}:{fence}" if id_ else ""
        # Every durable message has an id, so that the stream drops it when it is sent again from the outbox or after a lost answer.
        msg_id = _header_text(id_) or (f"{self._service}:{self.boot_id}:{self._seq}" if kind.durable else "")
        return Outgoing(
            subject=kind.subject or subject_of(fact),
            data=encode(fact),
            durable=kind.durable,
            msg_id=msg_id,
            headers=headers_of(fact, msg_id, publish.traceparent),
        )

    def _kind_of(self, body: type[Fact]) -> _Kind:
        row = event_of(body)
        subject = "" if row.subject.parameters else row.subject.of()
        kind = self._kinds[body] = _Kind(row.stream is not None, subject, row.subject.kind == "cmd")
        return kind

    def dead_letter(self, delivery: Delivery, reason: str) -> Outgoing:
        """The DeadLettered message for a message of a stream that could not be decoded or handled."""
        # Whoever receives the same message again, after a lost acknowledgement, does not write a second letter. In a stream that
        # was made again another message has its place, and needs a letter of its own.
        place = f"{delivery.stream}:{delivery.stream_seq}:{delivery.stored_us}"
        return self._letter(
            delivery.subject,
            delivery.data,
            delivery.headers,
            reason,
            place,
            stream=delivery.stream,
            stream_seq=delivery.stream_seq,
            stored_us=delivery.stored_us,
        )

    def poison_letter(self, message: Outgoing, reason: str) -> Outgoing:
        """The DeadLettered message for a message of this service's own that no stream can ever take."""
        return self._letter(message.subject, message.data, message.headers, reason, message.msg_id)

    def _letter(
        self,
        subject: str,
        payload: bytes,
        headers: Mapping[str, str],
        reason: str,
        place: str,
        *,
        stream: str = "",
        stream_seq: int = 0,
        stored_us: int = 0,
    ) -> Outgoing:
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            text = payload.hex()
        dead_letter = DeadLettered(
            at_ms=self._clock.now_ms(),
            service=self._service,
            subject=subject,
            reason=reason,
            payload=text[:_PAYLOAD_CHARACTERS],
            size_bytes=len(payload),
            stream=stream,
            stream_seq=stream_seq,
            stored_us=stored_us,
            data=payload if len(payload) <= _DATA_BYTES_MOST else b"",
            headers=_few_of(headers),
        )
        return self.outgoing(Publish(fact=dead_letter, id=f"{self._service}:dead:{place}"))


def _few_of(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers without those that would make a dead letter too large; a publisher of colo gives fewer and shorter ones."""
    kept: dict[str, str] = {}
    left_bytes = _HEADERS_BYTES_MOST
    for name, value in headers.items():
        # Written as JSON, a character takes six bytes at most.
        size_bytes = 6 * (len(name) + len(value))
        if len(kept) < _HEADERS_KEPT and size_bytes <= left_bytes:
            kept[name] = value
            left_bytes -= size_bytes
    return kept


def _node_of(order: Fact) -> str:
    return order.node if isinstance(order, StopReplicas | EvictReplica) else ""


def _header_text(id_: str) -> str:
    """The id as a header may carry it. An id that is too long or not printable ASCII is replaced by its digest."""
    if len(id_) <= _ID_CHARACTERS and id_.isascii() and id_.isprintable():
        return id_
    return hashlib.sha256(id_.encode()).hexdigest()


def row_from_outgoing(messages: Sequence[Outgoing]) -> bytes:
    """The value of an outbox row: the durable messages, as a Stamp made them."""
    return _ENCODER.encode(
        [
            (message.subject, message.data, message.msg_id, message.headers.get("traceparent", ""))
            for message in messages
        ]
    )


def outgoing_from_row(value: bytes) -> tuple[Outgoing, ...]:
    """The messages of an outbox row, equal to the byte. Raises msgspec.DecodeError when the value is not readable."""
    return tuple(kept if isinstance(kept, Outgoing) else _message(*kept) for kept in _DECODER.decode(value))


def _message(subject: str, data: bytes, msg_id: str, traceparent: str) -> Outgoing:
    try:
        fact = decode(subject, data)
    except InvalidInput as error:
        raise ValidationError(str(error)) from error
    headers = headers_of(fact, msg_id, traceparent)
    return Outgoing(subject=subject, data=data, durable=True, msg_id=msg_id, headers=headers)
