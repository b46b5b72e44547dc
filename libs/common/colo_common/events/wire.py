"""Encodes messages by type and decodes them by subject. InvalidInput names the subject and the path of a bad field."""

from functools import lru_cache
from itertools import groupby
from typing import Any, Final

import msgspec
from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.events.registry import EVENTS, REQUESTS, Event, RequestSpec, event_of, request_spec_of
from colo_common.events.requests import Refusal
from colo_common.events.subjects import PREFIX
from colo_common.events.trace import trace_of
from colo_common.model.invalid import InvalidInput
from colo_common.model.moment import date_and_time

__all__ = [
    "decode",
    "decode_reply",
    "decode_request",
    "encode",
    "encode_reply",
    "encode_request",
    "event_at",
    "event_type",
    "headers_of",
    "node_at",
]

_JSON: Final = msgspec.json.Encoder()
_MSGPACK: Final = msgspec.msgpack.Encoder()
# One entry for each concrete subject: 27 event types of a few thousand nodes fit; beyond that the oldest are computed again.
_SUBJECTS_REMEMBERED: Final = 65_536
# One entry for each pair of type and producer.
_PRODUCERS_REMEMBERED: Final = 1_024

_Decoder = msgspec.json.Decoder[Any] | msgspec.msgpack.Decoder[Any]


def _shape(event: Event) -> tuple[int | str, ...]:
    """The number of tokens, the kind and the domain of the event's subject: none of them is a parameter in any template."""
    tokens = event.subject.template.split(".")
    return (len(tokens), *tokens[2:4])


_ENCODERS: Final[dict[type[Fact], msgspec.json.Encoder | msgspec.msgpack.Encoder]] = {
    event.body: _MSGPACK if event.encoding == "msgpack" else _JSON for event in EVENTS
}
_EVENT_DECODERS: Final[dict[type[Fact], _Decoder]] = {
    event.body: (msgspec.msgpack.Decoder if event.encoding == "msgpack" else msgspec.json.Decoder)(event.body)
    for event in EVENTS
}
_EVENTS_BY_SHAPE: Final[dict[tuple[int | str, ...], tuple[Event, ...]]] = {
    shape: tuple(events) for shape, events in groupby(sorted(EVENTS, key=_shape), key=_shape)
}
_REQUEST_DECODERS: Final[dict[str, tuple[RequestSpec, msgspec.json.Decoder[Any]]]] = {
    request_spec.subject.template: (request_spec, msgspec.json.Decoder(request_spec.body)) for request_spec in REQUESTS
}
_REPLY_DECODERS: Final[dict[type[Struct], msgspec.json.Decoder[Any]]] = {
    request_spec.body: msgspec.json.Decoder(
        msgspec.defstruct(
            f"{request_spec.body.__name__}Answer",
            [("ok", request_spec.reply | None, None), ("refused", Refusal | None, None)],
            forbid_unknown_fields=False,
        )
    )
    for request_spec in REQUESTS
}


def encode(fact: Fact) -> bytes:
    """The bytes of a registered event, command or telemetry message; KeyError when its type is not registered."""
    return _ENCODERS[type(fact)].encode(fact)


def decode(subject: str, data: bytes) -> Fact:
    """Decode the message of a concrete subject.

    Raises InvalidInput when no event has that subject, when the bytes are not of its type, or when a subject parameter
    (the node) differs from the field of the same name in the body.
    """
    _event, decoder, parameters = _place(subject)
    fact: Fact = _decoded(subject, decoder, data)
    for name, value in parameters:
        if getattr(fact, name) != value:
            raise InvalidInput(f"{subject} $.{name}", f"must be {value!r} as in the subject", getattr(fact, name))
    return fact


def event_at(subject: str) -> Event:
    """The registry row of a concrete subject. Raises InvalidInput when there is none."""
    return _place(subject)[0]


def node_at(subject: str) -> str:
    """The node that a concrete subject names. Raises InvalidInput when there is no such event, or it is about no single node."""
    for name, value in _place(subject)[2]:
        if name == "node":
            return value
    raise InvalidInput("subject", "must name a node", subject)


def event_type(event: Event) -> str:
    """The CloudEvents type of a row: its subject without parameters ("colo.v1.evt.enforcement.started")."""
    return ".".join(token for token in event.subject.template.split(".") if not token.startswith("{"))


def encode_request(body: Struct) -> bytes:
    """The bytes of a registered request; KeyError when its type is not registered."""
    request_spec_of(type(body))
    return _JSON.encode(body)


def decode_request(subject: str, data: bytes) -> Struct:
    """Decode the request of a subject. Raises InvalidInput when no request has that subject or the bytes are not of its type."""
    body: Struct = _decoded(subject, _request_spec(subject)[1], data)
    return body


def encode_reply(body: Struct) -> bytes:
    """The bytes of a reply: {"refused": ...} for a Refusal, else {"ok": ...}."""
    return _JSON.encode({"refused": body} if isinstance(body, Refusal) else {"ok": body})


def decode_reply(request: type[Struct], data: bytes) -> Struct:
    """Decode the reply to a request of this type: its reply type or a Refusal. Raises InvalidInput for any other content."""
    subject = request_spec_of(request).subject.template
    answer = _decoded(subject, _REPLY_DECODERS[request], data)
    if (answer.ok is None) == (answer.refused is None):
        raise InvalidInput(f"{subject} $", "an answer holds exactly one of `ok` and `refused`", data)
    body: Struct = answer.ok if answer.ok is not None else answer.refused
    return body


def headers_of(fact: Fact, message_id: str, traceparent: str = "") -> dict[str, str]:
    """CloudEvents 1.0 binary headers (`ce-*`) of a stamped message, with its W3C trace context. Telemetry has none.

    A `traceparent` that is no W3C trace context is left out: it may come from a message of another program.
    """
    common = _common_headers(type(fact), fact.producer)
    if not common:
        return {}
    headers = {**common, "ce-id": message_id or f"{fact.boot_id}-{fact.seq}", "ce-time": _rfc3339(fact.sent_us)}
    if traceparent and trace_of(traceparent):
        headers["traceparent"] = traceparent
    return headers


@lru_cache(maxsize=_PRODUCERS_REMEMBERED)
def _common_headers(body: type[Fact], producer: str) -> dict[str, str]:
    """The headers that all messages of a type and a producer share, {} for telemetry. Callers must not change the dict."""
    event = event_of(body)
    if event.subject.kind == "tlm":
        return {}
    return {
        "ce-specversion": "1.0",
        "ce-type": event_type(event),
        "ce-source": f"/colo/{producer}",
        "content-type": "application/json",
    }


def _candidates(subject: str) -> tuple[Event, ...]:
    """The events that share the subject's kind, its domain and the number of its tokens."""
    tokens = subject.split(".")
    return _EVENTS_BY_SHAPE.get((len(tokens), *tokens[2:4]), ())


@lru_cache(maxsize=_SUBJECTS_REMEMBERED)
def _place(subject: str) -> tuple[Event, _Decoder, tuple[tuple[str, str], ...]]:
    for event in _candidates(subject):
        parameters = event.subject.parse(subject)
        if parameters is not None:
            return event, _EVENT_DECODERS[event.body], tuple(parameters.items())
    raise InvalidInput("subject", f"must be a registered event subject of {PREFIX}", subject)


def _request_spec(subject: str) -> tuple[RequestSpec, msgspec.json.Decoder[Any]]:
    found = _REQUEST_DECODERS.get(subject)
    if found is not None and not found[0].subject.parameters:
        return found
    for request_spec in REQUESTS:
        if request_spec.subject.parameters and request_spec.subject.parse(subject) is not None:
            return _REQUEST_DECODERS[request_spec.subject.template]
    raise InvalidInput("subject", f"must be a registered request subject of {PREFIX}", subject)


def _decoded(subject: str, decoder: _Decoder, data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        # "Expected `int`, got `str` - at `$.cpu_used_mcpu`": the path belongs to the field, the rest is the rule.
        rule, _, path = str(error).partition(" - at ")
        raise InvalidInput(f"{subject} {path.strip('`') or '$'}", rule, data) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"{subject} $", str(error), data) from error


def _rfc3339(at_us: int) -> str:
    """Unix microseconds as RFC 3339 UTC text."""
    seconds, micros = divmod(at_us, 1_000_000)
    return f"{date_and_time(seconds)}.{micros:06d}Z"
