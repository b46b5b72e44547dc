"""The wire as the first version knew it: the fields of the first recording of every type, and the streams that there were."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any, Final

import msgspec

from colo_common.events.registry import REQUESTS, Stream
from colo_common.events.subjects import matches
from colo_common.events.wire import event_at
from tests.contract.record_wire import recordings, shown

__all__ = ["OlderWire"]

#: Streams that came later, with everything that is in them.
LATER: Final = frozenset({Stream.POLICY.value, Stream.AUDIT.value})
_ANY: Final = "*"


class OlderWire:
    """Leaves of every message what the first recording of its type has. `cut` counts the fields that were taken away, by type."""

    def __init__(self) -> None:
        self.cut: Counter[str] = Counter()

    def hears(self, subject: str, stream: str) -> bool:
        """See WireFilter.hears."""
        return stream not in LATER

    def fact(self, subject: str, data: bytes) -> bytes:
        """See WireFilter.fact."""
        row = event_at(subject)
        codec: Any = msgspec.msgpack if row.encoding == "msgpack" else msgspec.json
        return self._without_later(row.body.__name__, codec, data)

    def request(self, subject: str, data: bytes) -> bytes:
        """See WireFilter.request."""
        return self._without_later(_request_at(subject), msgspec.json, data)

    def reply(self, subject: str, data: bytes) -> bytes:
        """See WireFilter.reply."""
        return self._without_later(f"{_request_at(subject)}.reply", msgspec.json, data)

    def _without_later(self, name: str, codec: Any, data: bytes) -> bytes:
        shape = _first_shape(name)
        value = codec.decode(data)
        # An answer is either what was asked for, as the recording has it, or a refusal, which never grew.
        left = value if name.endswith(".reply") and "refused" in value else self._left(name, value, shape)
        return bytes(codec.encode(left))

    def _left(self, name: str, value: Any, shape: Any) -> Any:
        if isinstance(value, dict) and isinstance(shape, dict):
            if _ANY in shape:
                return {key: self._left(name, inner, shape[_ANY]) for key, inner in value.items()}
            self.cut[name] += len(value.keys() - shape.keys())
            return {key: self._left(name, inner, shape[key]) for key, inner in value.items() if key in shape}
        if isinstance(value, list) and isinstance(shape, list):
            return [self._left(name, inner, shape[min(at, len(shape) - 1)]) for at, inner in enumerate(value)]
        return value


@cache
def _first_shape(name: str) -> Any:
    return _shape(shown(recordings(name)[0]))


def _shape(value: Any) -> Any:
    """Fields by name, elements of lists; None where everything is taken as it is."""
    if isinstance(value, dict) and value:
        if any(key.startswith("key-") for key in value):
            return {_ANY: _shape(next(iter(value.values())))}
        return {key: _shape(inner) for key, inner in value.items()}
    return [_shape(inner) for inner in value] if isinstance(value, list) and value else None


@cache
def _request_at(subject: str) -> str:
    return next(spec.body.__name__ for spec in REQUESTS if matches(spec.subject.wildcard(), subject))
