"""Whatever bytes come on any registered subject: they are the message, or InvalidInput, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_common.events import wire
from colo_common.events.registry import EVENTS, REQUESTS, Event, RequestSpec, event_of, subject_of
from colo_common.events.requests import Refusal
from colo_common.model.invalid import InvalidInput
from tests.support.examples import example_of
from tests.support.hostile import hostile_fact, hostile_value

T = TypeVar("T")
seeds = st.integers(0, 2**32)
events = st.sampled_from(EVENTS)
request_types = st.sampled_from(REQUESTS)
# What breaks parsers: numbers beyond every type, deep nests, half characters, wrong encodings, keys twice.
NASTY: Final[tuple[bytes, ...]] = (
    b"",
    b"null",
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"[" * 100_000,
    b'{"x":' * 100_000,
    b'{"x":' + b"[" * 100_000,
    b'{"at_ms":' + b"9" * 100_000 + b"}",
    b'{"node":"\xff"}',
    b'{"node":"\\ud800"}',
    b"\xef\xbb\xbf{}",
    b"\x81\xa1x" + b"\x91" * 100_000,
    b"\xc1",
    b"\xdf\xff\xff\xff\xff\xa1",
    b"\xdd\xff\xff\xff\xff",
    b"\xc7\xff\x00",
)


def mutated(data: bytes, seed: int) -> bytes:
    """The bytes with up to four small harms."""
    rng = Random(seed)
    for _ in range(rng.randrange(5)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
            case 1:
                data = data[:at] + data[at + rng.randrange(1, 9) :]
            case 2:
                data = data[:at]
            case 3:
                data = data[:at] + data[at // 2 : at] + data[at:]
            case _:
                data = data[:at] + rng.choice(NASTY)[:200] + data[at:]
    return data


def taken(read: Callable[..., T], *arguments: object) -> T | None:
    """What was read, or None when it was refused with a sentence; anything else fails the test."""
    try:
        return read(*arguments)
    except InvalidInput as error:
        refused = error
    assert refused.field.startswith("colo.v1.")
    assert refused.rule
    assert len(str(refused)) < 2_000
    return None


def asked_on(request_spec: RequestSpec) -> str:
    """A subject on which such a question is asked."""
    return request_spec.subject.of(**dict.fromkeys(request_spec.subject.parameters, "a"))


def bytes_of(event: Event, value: Any) -> bytes:
    return msgspec.msgpack.encode(value) if event.encoding == "msgpack" else json.dumps(value).encode()


@given(events, seeds)
def test_a_harmed_message_is_read_or_refused(event: Event, seed: int) -> None:
    fact = example_of(event.body)
    fact = wire.decode(subject_of(fact), wire.encode(fact))
    again = taken(wire.decode, subject_of(fact), mutated(wire.encode(fact), seed))
    assert again is None or isinstance(again, event.body)


@given(events, st.binary(max_size=200))
def test_noise_is_read_or_refused(event: Event, data: bytes) -> None:
    fact = taken(wire.decode, subject_of(example_of(event.body)), data)
    assert fact is None or isinstance(fact, event.body)


@pytest.mark.parametrize("data", NASTY, ids=lambda data: repr(data[:12]))
def test_what_breaks_parsers_is_refused_on_every_subject(data: bytes) -> None:
    for event in EVENTS:
        assert taken(wire.decode, subject_of(example_of(event.body)), data) is None
    for request_spec in REQUESTS:
        asked = taken(wire.decode_request, asked_on(request_spec), data)
        # A question without required fields ignores what it does not know, as within v1 every reader must.
        assert asked is None or asked == request_spec.body()
        assert taken(wire.decode_reply, request_spec.body, data) is None


@given(events, seeds)
def test_what_was_taken_can_be_said_again(event: Event, seed: int) -> None:
    fact = hostile_fact(event.body, seed)
    if fact is not None:
        assert wire.decode(subject_of(fact), wire.encode(fact)) == fact


@given(request_types, seeds)
def test_a_harmed_question_and_answer_is_read_or_refused(request_spec: RequestSpec, seed: int) -> None:
    request = mutated(wire.encode_request(example_of(request_spec.body)), seed)
    reply = mutated(wire.encode_reply(example_of(request_spec.reply)), seed)
    asked = taken(wire.decode_request, asked_on(request_spec), request)
    assert asked is None or isinstance(asked, request_spec.body)
    answer = taken(wire.decode_reply, request_spec.body, reply)
    assert answer is None or isinstance(answer, request_spec.reply | Refusal)


@given(request_types, seeds)
def test_a_senseless_question_is_read_or_refused(request_spec: RequestSpec, seed: int) -> None:
    data = json.dumps(hostile_value(request_spec.body, seed)).encode()
    asked = taken(wire.decode_request, asked_on(request_spec), data)
    assert asked is None or isinstance(asked, request_spec.body)


@given(st.text(max_size=60) | st.from_regex(r"colo\.v[0-9]\.(evt|tlm|cmd|req)(\.[a-z*>{}]{1,8}){1,4}", fullmatch=True))
def test_a_subject_that_is_not_registered_is_refused(subject: str) -> None:
    for refuse in (wire.decode, wire.decode_request):
        with pytest.raises(InvalidInput):
            refuse(subject, b"{}")


@pytest.mark.parametrize(
    ("field", "number"),
    [("at_ms", -1), ("at_ms", 10**30), ("at_ms", 2**63), ("cpu_used_mcpu", -1), ("cpu_used_mcpu", 2**41)],
)
def test_a_number_beyond_every_machine_is_refused_by_its_name(field: str, number: int) -> None:
    event = next(event for event in EVENTS if event.body.__name__ == "NodeUsageSampled")
    value = {**msgspec.to_builtins(example_of(event.body)), field: min(number, 2**64 - 1)}
    with pytest.raises(InvalidInput) as refused:
        wire.decode(event.subject.of(node=value["node"]), bytes_of(event, value))
    assert refused.value.field.endswith(f"$.{field}")


def test_a_node_cannot_speak_for_another() -> None:
    for event in EVENTS:
        if event.subject.parameters != ("node",):
            continue
        fact = example_of(event.body)
        with pytest.raises(InvalidInput, match=r"\$\.node: must be 'other' as in the subject"):
            wire.decode(event_of(event.body).subject.of(node="other"), wire.encode(fact))
