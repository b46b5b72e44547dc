"""Renders the registry: an AsyncAPI 3.0 description of every subject, and the event tables of the README."""

from inspect import cleandoc
from typing import Any, Final

import msgspec
from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.events.registry import EVENTS, REQUESTS, STREAMS, Event, RequestSpec
from colo_common.events.requests import Refusal
from colo_common.events.wire import event_type

__all__ = ["asyncapi_document", "event_tables"]

_ROWS: Final[tuple[Event | RequestSpec, ...]] = (*EVENTS, *REQUESTS)
_REF: Final = "#/components/schemas/{name}"

_KINDS: Final = {
    "tlm": "lossy telemetry, core NATS, MessagePack, no headers",
    "evt": "facts, kept by a stream, JSON, CloudEvents binary headers; the public surface",
    "cmd": "orders to the executor of one node, kept by a work queue until the executor acknowledges them, JSON",
    "req": "request and reply, JSON",
}

_PARAMETERS: Final = {
    "node": "the node's name, each '.' written as '_'",
    "service": "the name of the service",
}


def asyncapi_document() -> dict[str, Any]:
    """The whole contract as plain values, in a stable order. Operations are named from the side of the owning service."""
    document = {
        "asyncapi": "3.0.0",
        "info": {
            "title": "colo",
            "version": "1",
            "description": (
                "Every subject of colo's bus. Within v1 fields are added with defaults and never change their type; readers ignore "
                "fields that they do not know. Delivery is at least once: handlers are idempotent, message ids drop most copies."
            ),
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {"nats": {"host": "127.0.0.1:4222", "protocol": "nats", "description": "NATS with JetStream"}},
        "channels": _channels(),
        "operations": _operations(),
        "components": {
            "messages": _messages(),
            "messageTraits": {"cloudEvent": {"headers": _cloud_event_headers()}},
            "schemas": _schemas(),
        },
        "x-streams": {stream.value: msgspec.to_builtins(limits) for stream, limits in STREAMS.items()},
    }
    # Tuples become lists, so the written document reads back equal.
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    return plain


def event_tables() -> str:
    """Two Markdown tables: the events with their publishers and streams, and the requests with their replies."""
    lines = ["| subject | type | published by | stream | meaning |", "|---|---|---|---|---|"]
    for event in EVENTS:
        stream = event.stream.value if event.stream is not None else "none"
        lines.append(
            f"| `{event.subject.template}` | `{event.body.__name__}` | {event.owner} | {stream} | {event.meaning} |"
        )
    lines += ["", "| subject | request | reply | answered by | meaning |", "|---|---|---|---|---|"]
    for request_spec in REQUESTS:
        lines.append(
            f"| `{request_spec.subject.template}` "
            f"| `{request_spec.body.__name__}` | `{request_spec.reply.__name__}` | {request_spec.owner} "
            f"| {request_spec.meaning} |"
        )
    return "\n".join(lines) + "\n"


def _channels() -> dict[str, Any]:
    channels: dict[str, Any] = {}
    for row in _ROWS:
        name = row.body.__name__
        channel: dict[str, Any] = {"address": row.subject.template, "title": row.meaning}
        if row.subject.parameters:
            channel["parameters"] = {each: {"description": _PARAMETERS[each]} for each in row.subject.parameters}
        channel["messages"] = {name: {"$ref": f"#/components/messages/{name}"}}
        channel["tags"] = [{"name": row.subject.kind, "description": _KINDS[row.subject.kind]}]
        channels[name] = channel
        if isinstance(row, RequestSpec):
            # The reply goes to the inbox subject in the request.
            reply = _reply_name(row)
            channels[reply] = {"address": None, "messages": {reply: {"$ref": f"#/components/messages/{reply}"}}}
    return channels


def _operations() -> dict[str, Any]:
    operations: dict[str, Any] = {}
    for row in _ROWS:
        name = row.body.__name__
        operation: dict[str, Any] = {
            "action": "receive" if isinstance(row, RequestSpec) else "send",
            "channel": {"$ref": f"#/channels/{name}"},
            "summary": f"{row.owner}: {row.meaning}",
            "messages": [{"$ref": f"#/channels/{name}/messages/{name}"}],
        }
        if isinstance(row, RequestSpec):
            reply = _reply_name(row)
            operation["reply"] = {
                "channel": {"$ref": f"#/channels/{reply}"},
                "messages": [{"$ref": f"#/channels/{reply}/messages/{reply}"}],
            }
        operations[f"{'answer' if isinstance(row, RequestSpec) else 'send'}{name}"] = operation
    return operations


def _messages() -> dict[str, Any]:
    messages: dict[str, Any] = {}
    for event in EVENTS:
        messages[event.body.__name__] = _event_message(event)
    for request_spec in REQUESTS:
        name = request_spec.body.__name__
        messages[name] = {"name": name, "summary": request_spec.meaning, "payload": {"$ref": _REF.format(name=name)}}
        reply = _reply_name(request_spec)
        messages[reply] = {
            "name": reply,
            "summary": f"answers {name}: exactly one of `ok` and `refused`",
            "payload": {
                "type": "object",
                "properties": {
                    "ok": {"$ref": _REF.format(name=request_spec.reply.__name__)},
                    "refused": {"$ref": _REF.format(name=Refusal.__name__)},
                },
            },
        }
    return messages


def _event_message(event: Event) -> dict[str, Any]:
    name = event.body.__name__
    message: dict[str, Any] = {
        "name": name,
        "title": event_type(event),
        "summary": event.meaning,
        "contentType": "application/msgpack" if event.encoding == "msgpack" else "application/json",
        "payload": {"$ref": _REF.format(name=name)},
        "x-owner": event.owner,
    }
    if event.stream is not None:
        message["x-stream"] = event.stream.value
        message["traits"] = [{"$ref": "#/components/messageTraits/cloudEvent"}]
    return message


def _schemas() -> dict[str, Any]:
    types: list[type[Struct]] = [event.body for event in EVENTS]
    types += [each for request_spec in REQUESTS for each in (request_spec.body, request_spec.reply)]
    _, components = msgspec.json.schema_components([*types, Fact, Refusal], ref_template=_REF)
    for schema in components.values():
        if "description" in schema:
            # Pythons differ in whether they keep the indentation of a docstring.
            schema["description"] = cleandoc(schema["description"])
    return {name: components[name] for name in sorted(components)}


def _cloud_event_headers() -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "type": "object",
        "properties": {
            "ce-specversion": {"const": "1.0"},
            "ce-id": {**text, "description": "the message id, by which the stream drops copies"},
            "ce-type": {**text, "description": "the subject without its parameters"},
            "ce-source": {**text, "description": "/colo/ and the producer"},
            "ce-time": {**text, "format": "date-time"},
            "traceparent": {**text, "description": "W3C trace context, where the message belongs to a placement"},
        },
        "required": ["ce-specversion", "ce-id", "ce-type", "ce-source", "ce-time"],
    }


def _reply_name(request_spec: RequestSpec) -> str:
    return f"{request_spec.body.__name__}Reply"
