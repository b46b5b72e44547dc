"""The wire as a later version may speak it: fields that nobody knows yet in every message."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from colo_common.events.wire import event_at

__all__ = ["NewerWire"]

#: A scalar, a list and an object: whatever a field of a later version holds.
LATER: Final[dict[str, Any]] = {"later_ms": 7, "later_names": ["a", "b"], "later_detail": {"unit": "mcpu", "value": 1}}


class NewerWire:
    """Adds fields to every message, and to the objects in its lists."""

    def hears(self, subject: str, stream: str) -> bool:
        """See WireFilter.hears."""
        return True

    def fact(self, subject: str, data: bytes) -> bytes:
        """See WireFilter.fact."""
        codec: Any = msgspec.msgpack if event_at(subject).encoding == "msgpack" else msgspec.json
        return bytes(codec.encode(_with_later(codec.decode(data))))

    def request(self, subject: str, data: bytes) -> bytes:
        """See WireFilter.request."""
        return msgspec.json.encode(_with_later(msgspec.json.decode(data)))

    def reply(self, subject: str, data: bytes) -> bytes:
        """See WireFilter.reply."""
        answer = msgspec.json.decode(data)
        return msgspec.json.encode({kind: _with_later(body) for kind, body in answer.items()})


def _with_later(value: Any) -> Any:
    """The object with the fields in it, and in the objects of its lists. Objects in fields may be maps by name, and stay."""
    if not isinstance(value, dict):
        return value
    return {
        key: [_with_later(each) for each in one] if isinstance(one, list) else one for key, one in value.items()
    } | LATER
