"""Effects that every core may return. The shell performs them in this order: record, publish and reply, acknowledge the input."""

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.events.requests import Refusal

__all__ = [
    "RequestReceived",
    "BusReachable",
    "Conflict",
    "Effect",
    "FactsMissed",
    "Publish",
    "Record",
    "Reply",
    "StoreLost",
    "StreamLost",
    "Wake",
    "Write",
]


class Write(Struct, frozen=True, kw_only=True, gc=False):
    """One versioned row. `expect` is the version it must have now (0: it must not exist). `value` None deletes it.

    A row with a lower version than expected was lost by the store, because versions only grow: it is written all the same, and its
    version is then `expect` + 1 as always. `puts_back`: the row is written with the version `expect` where the store has a lower
    one or none, and nothing happens otherwise.
    """

    kind: str
    id: str
    value: bytes | None
    expect: int
    puts_back: bool = False


class Record(Struct, frozen=True, kw_only=True, gc=False):
    """Rows to write together or not at all. A refused compare-and-set comes back as Conflict."""

    writes: tuple[Write, ...]


class Publish(Struct, frozen=True, kw_only=True, gc=False):
    """A message to send. `id` is a function of input and state, so that the bus drops the copy that a replay makes."""

    fact: Fact
    id: str = ""
    traceparent: str = ""


class Reply(Struct, frozen=True, kw_only=True):
    """The answer to a RequestReceived: the request's reply type or a Refusal. None: another instance answers, not this one."""

    request: str
    body: Struct | Refusal | None


class RequestReceived(Struct, frozen=True, kw_only=True):
    """Event: a request arrived. The core answers it with Reply and the same `request` id."""

    request: str
    body: Struct
    traceparent: str = ""


class Conflict(Struct, frozen=True, kw_only=True):
    """Event: the store refused a Record because the row of that kind and id has another version. It wrote no row of the Record."""

    kind: str
    id: str
    expected: int
    found: int


class StoreLost(Struct, frozen=True, kw_only=True):
    """Event: the store was emptied, or started again and may have lost its newest rows. The core puts back its rows."""


class StreamLost(Struct, frozen=True, kw_only=True):
    """Event: a stream of which this service hears the last message of each subject was made again, or restored as it was before.
    At the start of the service: it was made so lately that what others said before may be lost. The core says again what it said
    last.
    """

    stream: str


class FactsMissed(Struct, frozen=True, kw_only=True):
    """Event: the stream discarded facts before this service received them. The core asks for what it may have missed."""

    stream: str


class BusReachable(Struct, frozen=True, kw_only=True):
    """Event: whether messages flow now, as the process's own connection to the bus says. While none does nobody ages."""

    is_reachable: bool


class Wake(Struct, frozen=True, kw_only=True):
    """Event: the time that the core's `deadline_ms` returned has come."""


# A service defines further effects of its own; its shell performs them.
Effect = Struct
