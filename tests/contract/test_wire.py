"""What was once on the wire decodes for ever, with everything it said; what does not fit is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_common.events.fact import Fact
from colo_common.events.node import LeaseRenewed
from colo_common.events.registry import EVENTS, REQUESTS, event_of, request_subject, subject_of
from colo_common.events.requests import GetJob, JobAccepted, Refusal
from colo_common.events.wire import (
    decode,
    decode_reply,
    decode_request,
    encode,
    encode_reply,
    encode_request,
    event_at,
    event_type,
    headers_of,
)
from colo_common.model.invalid import InvalidInput
from tests.contract.record_wire import FOLDER, recordings, shown, types
from tests.support.examples import example_of

RECORDED = sorted(FOLDER.iterdir())


def holds(now: Any, then: Any, path: str = "$") -> None:
    """Everything that was said then is said now; more may be."""
    if isinstance(then, dict):
        for key, value in then.items():
            assert key in now, f"{path}.{key} is lost"
            holds(now[key], value, f"{path}.{key}")
    elif isinstance(then, list):
        assert len(now) == len(then), path
        for index, (mine, theirs) in enumerate(zip(now, then, strict=True)):
            holds(mine, theirs, f"{path}[{index}]")
    else:
        assert now == then, path


@pytest.mark.parametrize("name", types())
def test_every_type_on_the_wire_is_recorded(name: str) -> None:
    assert recordings(name), f"python -m tests.contract.record_wire records {name}"


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_recorded_bytes_still_decode_and_keep_every_field(path: Path) -> None:
    name = path.stem.rpartition("-")[0]
    kind = types()[name]
    data, then = path.read_bytes(), shown(path)
    if name.endswith(".reply"):
        request_spec = next(row for row in REQUESTS if f"{row.body.__name__}.reply" == name)
        holds(json.loads(encode_reply(decode_reply(request_spec.body, data))), then)
        return
    request_row = next((row for row in REQUESTS if row.body is kind), None)
    if request_row is not None:
        holds(json.loads(encode_request(decode_request(request_subject(example_of(kind)), data))), then)
        return
    assert issubclass(kind, Fact)
    row = event_of(kind)
    subject = row.subject.of(**{name: then[name] for name in row.subject.parameters})
    again = encode(decode(subject, data))
    holds(msgspec.msgpack.decode(again) if path.suffix == ".bin" else json.loads(again), then)


@pytest.mark.parametrize("row", EVENTS, ids=lambda row: row.body.__name__)
def test_an_event_comes_back_as_it_went(row: Any) -> None:
    fact = example_of(row.body)
    assert decode(subject_of(fact), encode(fact)) == fact
    assert event_at(subject_of(fact)) is row


@pytest.mark.parametrize("row", REQUESTS, ids=lambda row: row.body.__name__)
def test_a_request_and_its_answers_come_back_as_they_went(row: Any) -> None:
    body, reply = example_of(row.body), example_of(row.reply)
    refusal = Refusal(code=409, field="job", rule="must be new", got="x")
    assert decode_request(request_subject(body), encode_request(body)) == body
    assert decode_reply(row.body, encode_reply(reply)) == reply
    assert decode_reply(row.body, encode_reply(refusal)) == refusal


def test_a_reader_ignores_fields_that_it_does_not_know() -> None:
    assert decode_reply(GetJob, encode_reply(example_of(types()["GetJob.reply"]))[:-1] + b',"later":1}')
    newer = json.loads(encode(example_of(types()["JobStateChanged"]))) | {"of_later": [1]}
    assert decode("colo.v1.evt.job.changed", json.dumps(newer).encode()) == example_of(types()["JobStateChanged"])


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "colo",
        "colo.v2.evt.job.changed",
        "colo.v1.evt.job",
        "colo.v1.evt.job.changed.more",
        "colo.v1.tlm.node.a.b.usage",
        "*",
        ">",
    ],
)
def test_a_subject_that_nobody_registered_is_refused(subject: str) -> None:
    for call in (lambda: decode(subject, b"{}"), lambda: decode_request(subject, b"{}")):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert caught.value.field == "subject"


@pytest.mark.parametrize(
    ("data", "field", "rule"),
    [
        (b"", "$", "truncated"),
        (b"{", "$", "truncated"),
        (b"[]", "$", "Expected `object`, got `array`"),
        (b'{"job":"a"}', "$", "missing required field"),
        (b'{"job":7}', "$.job", "Expected `str`, got `int`"),
        (b'{"job":"\xff"}', "$", "utf-8"),
        (b"[" * 100_000, "$", ""),
    ],
)
def test_bytes_that_do_not_fit_are_refused_with_subject_path_and_rule(data: bytes, field: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        decode("colo.v1.evt.job.changed", data)
    assert caught.value.field == f"colo.v1.evt.job.changed {field}"
    assert rule in caught.value.rule


def test_a_message_cannot_speak_for_another_node_than_its_subject() -> None:
    lease = LeaseRenewed(node="a.example", sample_seq=1, batch_cpu_mcpu=0, lease_ms=1)
    assert decode("colo.v1.tlm.node.a_example.lease", encode(lease)) == lease
    with pytest.raises(InvalidInput, match=r"\$\.node"):
        decode("colo.v1.tlm.node.b.lease", encode(lease))


@pytest.mark.parametrize("data", [b"{}", b'{"ok":null,"refused":null}'])
def test_an_answer_that_is_neither_reply_nor_refusal_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="exactly one"):
        decode_reply(GetJob, data)


def test_an_answer_that_is_both_is_refused() -> None:
    both = json.loads(encode_reply(example_of(types()["GetJob.reply"])))
    both |= json.loads(encode_reply(Refusal(code=400, field="x", rule="y")))
    with pytest.raises(InvalidInput, match="exactly one"):
        decode_reply(GetJob, json.dumps(both).encode())


def test_only_registered_types_are_encoded() -> None:
    class Stray(Fact, frozen=True):
        pass

    with pytest.raises(KeyError):
        encode(Stray())
    with pytest.raises(KeyError):
        encode_request(JobAccepted(job="a", state="s", version=1))


def test_headers_are_cloud_events_without_parameters_in_the_type() -> None:
    fact = msgspec.structs.replace(
        example_of(types()["ReplicaStarted"]), producer="executor", boot_id="b", seq=7, sent_us=1_709_164_800_000_001
    )
    traceparent = f"00-{'a' * 32}-{'b' * 16}-01"
    assert headers_of(fact, "", traceparent) == {
        "ce-specversion": "1.0",
        "ce-id": "b-7",
        "ce-type": "colo.v1.evt.enforcement.started",
        "ce-source": "/colo/executor",
        "ce-time": "2024-02-29T00:00:00.000001Z",
        "content-type": "application/json",
        "traceparent": traceparent,
    }
    assert headers_of(LeaseRenewed(node="a", sample_seq=1, batch_cpu_mcpu=0, lease_ms=1), "id") == {}


def test_no_two_events_have_the_same_type_name() -> None:
    names = [event_type(row) for row in EVENTS]
    assert len(names) == len(set(names))


@given(at_us=st.integers(min_value=0, max_value=4_102_444_800_000_000))
def test_times_are_those_of_the_calendar(at_us: int) -> None:
    from datetime import UTC, datetime, timedelta

    fact = msgspec.structs.replace(example_of(types()["JobStateChanged"]), sent_us=at_us)
    expected = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)
    assert headers_of(fact, "x")["ce-time"] == expected.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@given(data=st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused_and_nothing_else(data: bytes) -> None:
    for subject in ("colo.v1.evt.job.changed", "colo.v1.tlm.node.a.usage"):
        refused = None
        try:
            decode(subject, data)
        except InvalidInput as error:
            refused = error
        assert refused is None or refused.field.startswith(subject)
