"""What a core may ask of its shell. The shell does them in this order: record, publish and reply, acknowledge the input."""

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.events.requests import Refusal

__all__ = ["RequestReceived", "Conflict", "Effect", "Publish", "Record", "Reply", "Wake", "Write"]


class Write(Struct, frozen=True, kw_only=True, gc=False):
    """One versioned row. `expect` is the version it must have now (0: it must not exist). `value` None deletes it."""

    kind: str
    id: str
    value: bytes | None
    expect: int


class Record(Struct, frozen=True, kw_only=True, gc=False):
    """Rows to write together or not at all. A refused compare-and-set comes back as Conflict."""

    writes: tuple[Write, ...]


class Publish(Struct, frozen=True, kw_only=True, gc=False):
    """A message to send. `id` is a function of input and state, so that the bus drops the copy that a replay makes."""

    fact: Fact
    id: str = ""
    traceparent: str = ""


class Reply(Struct, frozen=True, kw_only=True):
    """The answer to an Asked: a reply Struct or a Refusal."""

    request: str
    body: Struct | Refusal


class RequestReceived(Struct, frozen=True, kw_only=True):
    """A request as a core hears it: answer it with Reply(request=...)."""

    request: str
    body: Struct
    traceparent: str = ""


class Conflict(Struct, frozen=True, kw_only=True):
    """A Record was refused: the row of that kind and id has another version. Nothing of that Record was written."""

    kind: str
    id: str
    expected: int
    found: int


class Wake(Struct, frozen=True, kw_only=True):
    """The deadline of the core has come."""


# Services add their own effects beside these; their shells perform them.
Effect = Struct
