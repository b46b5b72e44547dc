"""Protocols for everything outside a service: bus, store, clock, span sink. Adapters and memory twins pass the same tests."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final, Protocol

from msgspec import Struct, field

from colo_common.events.audit import RequestAudited
from colo_common.events.effects import Write
from colo_common.events.fact import Fact
from colo_common.events.service import DeadLettered
from colo_common.model.partition import BusReach, Fence

__all__ = [
    "Advisory",
    "AnswerTooLarge",
    "Answerer",
    "Backlog",
    "Bus",
    "Clock",
    "DeadLetter",
    "AuditLog",
    "DeadLetters",
    "Delivery",
    "Fenced",
    "FencedStore",
    "Leases",
    "Missed",
    "OtherPartitions",
    "Outgoing",
    "PoisonMessage",
    "PortError",
    "Refused",
    "RefusedLogin",
    "Replay",
    "Row",
    "Settle",
    "Settlement",
    "Sink",
    "Source",
    "SpanSink",
    "Store",
    "StoreConflict",
    "Survey",
    "Unavailable",
]


class PortError(Exception):
    """Base of all errors that an adapter raises; the client library's error is its cause.

    `left`, after a publish: the messages that are not known to be stored, in order; None when that is all of them.
    """

    left: "tuple[Outgoing, ...] | None" = None


class Unavailable(PortError):
    """The server cannot be reached or did not answer in time. Whether the call took effect is unknown; retry later."""


class Refused(PortError):
    """The server refused the call (rights, a configuration that it lacks). The same call is refused until its configuration
    changes.
    """


class OtherPartitions(Refused):
    """The live instances of a service have another number of partitions: the caller holds nothing while they live.

    `setting` is what an operator knows the number by.
    """

    def __init__(self, others: int, own: int, setting: str = "partitions") -> None:
        self.others, self.own = others, own
        super().__init__(f"lease partitions: {setting} must be {others}, as the other instances have it, and not {own}")


class PoisonMessage(Refused):
    """The message itself can never be stored: too large, or its subject or a header breaks a rule of the server.

    Every other failure to publish means "not now", and the message must be kept.
    """


class AnswerTooLarge(Refused):
    """The answer to a request is larger than the bus carries: only a smaller question has an answer."""


class StoreConflict(PortError):
    """A compare-and-set found another version. Nothing of the batch was written."""

    def __init__(self, kind: str, id_: str, expected: int, found: int) -> None:
        super().__init__(f"{kind}/{id_}: expected version {expected}, found {found}")
        self.kind = kind
        self.id = id_
        self.expected = expected
        self.found = found


class Fenced(Exception):
    """Another instance holds the partition by now. Nothing was written; the caller must not go on as its holder."""


class Clock(Protocol):
    """Time as services see it."""

    def now_ms(self) -> int:
        """Unix milliseconds; never goes backwards in one process. May run faster than the wall (a lab)."""
        ...

    def wall_us(self) -> int:
        """Unix microseconds of the wall clock, never scaled: for latencies that users see."""
        ...

    def real_s(self, span_ms: int) -> float:
        """How many real seconds to wait until `span_ms` of this clock have passed; at least 0."""
        ...


class Outgoing(Struct, frozen=True, kw_only=True):
    """One message to publish. `durable`: a stream stores it, the call waits for the acknowledgement, `msg_id` drops duplicates."""

    subject: str
    data: bytes
    durable: bool
    msg_id: str = ""
    headers: dict[str, str] = field(default_factory=dict)


class Source(Struct, frozen=True, kw_only=True):
    """One thing to listen to: live subjects, or a consumer of a stream.

    `stream` empty: live core messages, lossy; when the sink is slow only the newest few of each subject are kept. Otherwise a
    consumer of that stream. With `durable` it has that name, continues where it stopped, needs explicit acknowledgement, and
    redelivers after `ack_wait_s`, for ever: the receiver decides which message is poison; it is made to start with the stream's
    first message, or with `since_s` with the first one of so many seconds. Without, it starts with new messages, or
    with `last_per_subject` with the last message of each subject, or with `since_s` with the first message that the stream stored
    at most so many seconds ago (where those are more than `since_most`, with the newest `since_most` messages of the stream); each
    message is delivered once, and acknowledging does nothing.

    `also` are further subjects of the same stream, none overlapping another and best without wildcards: one consumer delivers all
    of them in the order of the stream. A durable consumer that nobody asks for `forget_s` is forgotten (0: never); made again, it
    starts with the stream's first message. `may_wait_ms` is not used by the bus: it is how long the Inbox may delay a message.
    """

    subject: str
    also: tuple[str, ...] = ()
    stream: str = ""
    durable: str = ""
    last_per_subject: bool = False
    since_s: int = 0
    since_most: int = 0
    ack_wait_s: int = 30
    batch: int = 200
    may_wait_ms: int = 0
    forget_s: int = 0

    @property
    def subjects(self) -> tuple[str, ...]:
        """`subject` and `also`."""
        return (self.subject, *self.also)


class Settlement(Enum):
    """How a message of a stream is acknowledged."""

    ACK = "ack"
    NAK = "nak"
    TERM = "term"


#: Acknowledges one message at the bus; the float is the delay of a NAK in seconds.
Settle = Callable[[Settlement, float], Awaitable[None]]
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class Delivery:
    """One received message, from the bus through the inbox and the core to its acknowledgement. Nothing else holds a message.

    Exactly one of ack, nak and term is called; without a durable consumer (no `settle`) they do nothing. `deliveries` counts the
    deliveries of the message so far. `stream` and `stream_seq` are where it is stored; "" and 0 for a live, lossy message. A stream
    that was made again counts from 1: `stored_us`, when its server stored the message, tells that from the one that was there
    before (0: not known). With `age_ms` it is the last message of a subject and was stored so many real ms ago, before anybody
    listened here; 0: it came live.
    """

    __slots__ = (
        "_settle",
        "age_ms",
        "data",
        "deliveries",
        "fact",
        "headers",
        "stored_us",
        "stream",
        "stream_seq",
        "subject",
    )

    def __init__(
        self,
        subject: str,
        data: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        deliveries: int = 1,
        stream: str = "",
        stream_seq: int = 0,
        stored_us: int = 0,
        settle: Settle | None = None,
        age_ms: int = 0,
    ) -> None:
        self.subject = subject
        self.data = data
        self.headers = headers or _NO_HEADERS
        self.deliveries = deliveries
        self.stream = stream
        self.stream_seq = stream_seq
        self.stored_us = stored_us
        self._settle = settle
        self.age_ms = age_ms
        #: What `data` says, once somebody has decoded it: a message that many cores of one process hear is decoded once.
        self.fact: Fact | None = None

    async def ack(self) -> None:
        """Acknowledge: the message is done. Raises Unavailable when the bus cannot be reached."""
        if self._settle is not None:
            await self._settle(Settlement.ACK, 0.0)

    async def nak(self, delay_s: float = 0.0) -> None:
        """Redeliver the message after the delay. Raises as `ack` does."""
        if self._settle is not None:
            await self._settle(Settlement.NAK, delay_s)

    async def term(self) -> None:
        """Do not redeliver, although the message was not handled (it is dead-lettered). Raises as `ack` does."""
        if self._settle is not None:
            await self._settle(Settlement.TERM, 0.0)


Sink = Callable[[Delivery], Awaitable[None]]
#: Gives the answer to the data and headers of a request; b"" leaves it to another member, and nothing is sent.
Answerer = Callable[[bytes, Mapping[str, str]], Awaitable[bytes]]
#: Called with one sentence when a stream may have discarded messages of a source before they were delivered, or was made again.
#: Of a source of the last messages: when the stream was made again, and has them no more, or was made lately, and may have had
#: others before.
Missed = Callable[[str], Awaitable[None]]


class Bus(Protocol):
    """Publish, subscribe, request and reply. Every method raises Unavailable or Refused and no error of the client library."""

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Publish all, in order per subject; return when every durable message is stored (or was a duplicate)."""
        ...

    async def listen(self, source: Source, sink: Sink, missed: Missed | None = None) -> None:
        """Deliver to `sink` until cancelled, across reconnects. A slow sink slows its own stream consumer down and no other.

        `missed` is called, within seconds, when a stream may have discarded messages of the source before they were delivered, or
        was made again; what the new stream has is delivered from its first message on.
        """
        ...

    async def ask(self, subject: str, data: bytes, timeout_s: float, headers: Mapping[str, str] | None = None) -> bytes:
        """Request and reply: the answer of one member of the answering service; Unavailable when none comes in time."""
        ...

    async def answer(self, service: str, answerers: Mapping[str, Answerer], *, is_listed: bool = True) -> None:
        """Answer requests to these subjects until cancelled; one member of the service answers each.

        A request that reaches every member (`registry.reaches_each`) is answered by each of them that does not leave it to another.

        Discoverable if possible and `is_listed`: agents of thousands of nodes are not.
        """
        ...

    async def ready(self) -> str:
        """Empty when messages flow, else one sentence that says why not."""
        ...

    async def close(self) -> None:
        """Flush, then close the connection."""
        ...


class Backlog(Struct, frozen=True, kw_only=True):
    """How far a durable consumer is behind: messages not delivered yet, and delivered ones that nobody has acknowledged.

    `is_read`: somebody waits for its next message, or has one in work.
    """

    stream: str
    consumer: str
    pending: int
    unacknowledged: int
    is_read: bool = True


class Advisory(Struct, frozen=True, kw_only=True):
    """What the bus says by itself about a stream, or about one of its named consumers: the kind of trouble, in its own word."""

    kind: str
    stream: str
    consumer: str = ""


class RefusedLogin(Struct, frozen=True, kw_only=True):
    """Logins that a `server` (nats or redis) refused, `times` of them: `who` as the last of them called itself, and why.

    `is_known`: the server knows who it is, and refused what it asked for.
    """

    server: str
    who: str
    address: str
    why: str
    is_known: bool = False
    times: int = 1


class Survey(Protocol):
    """Questions to everybody on the bus, and to the bus about its consumers. Raises as Bus does."""

    async def ask_all(self, subject: str, data: bytes, timeout_s: float) -> Sequence[bytes]:
        """Every answer that comes in time, () when nobody listens. Ends early when answers came and no further one follows."""
        ...

    async def backlogs(self, streams: Sequence[str], timeout_s: float) -> Sequence[Backlog]:
        """The durable consumers of these streams, at most 256 of each; a stream that is missing has none."""
        ...

    async def advisories(self, sink: Callable[[Advisory], Awaitable[None]]) -> None:
        """Hand what the bus says by itself to the sink, until cancelled. What it says while nobody is connected is lost."""
        ...


class DeadLetter(Struct, frozen=True, kw_only=True):
    """One dead letter and its sequence in the stream that keeps it, by which it is named."""

    seq: int
    letter: DeadLettered


class NotKept(Struct, frozen=True):
    """A message that nothing holds whole any more, with the reason as the end of a sentence about its letter."""

    why: str


class DeadLetters(Protocol):
    """The dead letters that wait for an operator. Raises as Bus does."""

    async def page(self, after: int, limit: int, service: str = "") -> tuple[DeadLetter, ...]:
        """The first `limit` dead letters after this sequence, oldest first, of one service if it is named."""
        ...

    async def get(self, seq: int) -> DeadLetter | None:
        """The letter, or None."""
        ...

    async def message_of(self, letter: DeadLetter) -> Outgoing | NotKept:
        """The message that it is about, ready to be published again, where the letter or its stream still has it whole."""
        ...

    async def drop(self, seq: int) -> bool:
        """Remove the letter; False when there is none."""
        ...


class Replay(Protocol):
    """What a stream keeps, read once more. Raises as Bus does."""

    async def facts(
        self,
        types: Sequence[type[Fact]],
        take: Callable[[Fact], None],
        *,
        newest_ms: int | None = None,
        newest_of: Sequence[type[Fact]] = (),
    ) -> int:
        """Hand all kept facts of these types, of one stream, to `take`, oldest first; returns how many messages there were.

        With `newest_ms` these are the newest of them and those that were stored at most so long before it, however long ago that
        was; with `newest_of` the time counts from the newest fact of those types, of a stream of their own. Facts that are
        published meanwhile are not among them, and what cannot be decoded is left out.
        """
        ...


class AuditLog(Protocol):
    """Who changed something through the gateway. Raises as Bus does."""

    async def newest(self, before: int, limit: int) -> tuple[tuple[int, RequestAudited], ...]:
        """The newest `limit` entries with their numbers in the stream, newest first; `before` 0, or only below this number."""
        ...


class Row(Struct, frozen=True, kw_only=True):
    """One stored row and its version (1 when first written, then +1)."""

    id: str
    value: bytes
    version: int


class Store(Protocol):
    """Versioned rows by kind and id. Every method raises Unavailable, Refused or StoreConflict."""

    async def get(self, kind: str, id_: str) -> Row | None:
        """The row, or None."""
        ...

    async def load(self, kind: str) -> tuple[Row, ...]:
        """All rows of the kind in ascending id; for starts, not for hot paths."""
        ...

    async def write(self, writes: Sequence[Write]) -> None:
        """Write all or nothing; a version above the expected one raises StoreConflict. At most 500 rows a call."""
        ...

    async def identity(self) -> str:
        """A text that changes whenever rows may have been lost: the store was emptied, started again, or is another one."""
        ...

    async def ready(self) -> str:
        """Empty when writes are accepted, else one sentence that says why not."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class FencedStore(Store, Protocol):
    """A store that can refuse the writes of an instance that lost its partition."""

    async def write_fenced(self, writes: Sequence[Write], service: str, fences: Sequence[Fence]) -> None:
        """As `write`; raises Fenced when one of the fences is not the newest of its partition of the service."""
        ...


class Leases(Protocol):
    """The leases of one service's partitions. Raises Unavailable or Refused."""

    async def renew(
        self,
        owner: str,
        ttl_ms: int,
        partitions: int,
        held: Sequence[Fence] = (),
        reach: BusReach = BusReach.UNSURE,
    ) -> tuple[Fence, ...]:
        """Renew the owner's partitions and take free ones, up to its fair share of all that are alive; those it holds afterwards.

        A lease lasts `ttl_ms` from now; a partition is free without a holder, or when its holder did not renew it in time. A
        partition that changes hands gets a higher fence. `ttl_ms` 0 gives everything up. `held` is what the owner holds: a store
        that lost this gives it back under the same fences. Raises OtherPartitions while live instances have another number of
        partitions; once the last one of them has left, the others' number counts, and no fence of before is valid any more.
        A deaf owner gets nothing while a live instance hears, and those that are not deaf share what it gives up.
        """
        ...


class SpanSink(Protocol):
    """Records finished spans; times are Unix microseconds of the wall clock."""

    def __call__(
        self,
        name: str,
        *,
        parent: str,
        start_us: int,
        end_us: int,
        attributes: Mapping[str, str] | None = None,
        error: str = "",
    ) -> str:
        """Record a span below the one that `parent` (a traceparent) names; returns the traceparent of the new span."""
        ...
