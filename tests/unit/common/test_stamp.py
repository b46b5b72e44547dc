"""What an outbox row keeps of a message, and that the message is restored from it."""

import pytest
from msgspec import DecodeError, Struct, msgpack, structs

from colo_common.events.effects import Publish
from colo_common.events.fact import Fact
from colo_common.events.registry import EVENTS
from colo_common.events.service import DeadLettered
from colo_common.events.trace import placement_trace
from colo_common.events.wire import decode
from colo_common.ports import Clock, Delivery, Outgoing
from colo_common.runtime.stamp import Stamp, outgoing_from_row, row_from_outgoing
from tests.support.examples import example_of

DURABLE = [event.body for event in EVENTS if event.stream is not None]


class StillClock(Clock):
    """Always the same moment."""

    def now_ms(self) -> int:
        return 1_000

    def wall_us(self) -> int:
        return 1_234_567

    def real_s(self, span_ms: int) -> float:
        return span_ms / 1_000


def stamped(kind: type[Struct], id_: str = "", traceparent: str = "") -> Outgoing:
    fact: Fact = example_of(kind)
    return Stamp("jobs", "b1", StillClock()).outgoing(Publish(fact=fact, id=id_, traceparent=traceparent))


@pytest.mark.parametrize("kind", DURABLE, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("traceparent", ["", placement_trace("j/t/0", 1), "no traceparent"])
def test_a_message_comes_out_of_its_row_as_it_went_in(kind: type[Struct], traceparent: str) -> None:
    messages = (stamped(kind, "jobs:an:id", traceparent), stamped(kind))
    assert outgoing_from_row(row_from_outgoing(messages)) == messages


def test_a_row_keeps_the_headers_only_once() -> None:
    message = stamped(DURABLE[0], "jobs:an:id")
    row = row_from_outgoing([message])
    assert len(row) < len(message.subject) + len(message.data) + len(message.msg_id) + 16


def test_a_row_of_an_earlier_version_is_read() -> None:
    messages = (stamped(DURABLE[0], "jobs:an:id"), stamped(DURABLE[1]))
    assert outgoing_from_row(msgpack.encode(messages)) == messages


@pytest.mark.parametrize(
    "value",
    [
        b"\xc1",
        msgpack.encode({"subject": "x"}),
        msgpack.encode([("colo.v1.evt.queue.changed", b"{}")]),
        msgpack.encode([("colo.v1.evt.no.such", b"{}", "id", "")]),
        msgpack.encode([("colo.v1.evt.queue.changed", b"{", "id", "")]),
    ],
)
def test_what_is_no_outbox_row_is_refused(value: bytes) -> None:
    with pytest.raises(DecodeError):
        outgoing_from_row(value)


def test_the_envelope_of_a_message_is_the_stamp_s() -> None:
    fact = structs.replace(example_of(DURABLE[0]), at_ms=0, seq=99)
    first, second = (Stamp("jobs", "b1", StillClock()).outgoing(Publish(fact=fact)) for _ in range(2))
    assert first == second
    assert first.headers["ce-id"] == first.msg_id == "jobs:b1:1"


def test_a_dead_letter_fits_in_a_message_whatever_headers_the_message_had() -> None:
    headers = {
        "traceparent": "t",
        "x-long": "a" * 400_000,
        "ce-id": "i",
        **{f"x-{n}": "\x01" * 2_000 for n in range(50)},
    }
    delivery = Delivery("colo.v1.evt.queue.changed", b"{" * 512 * 1024, headers, stream="COLO_EVT", stream_seq=7)
    letter = Stamp("jobs", "b1", StillClock()).dead_letter(delivery, "because")
    assert len(letter.data) < 1_000_000
    fact = decode(letter.subject, letter.data)
    assert isinstance(fact, DeadLettered)
    assert fact.data == delivery.data
    assert (fact.headers["traceparent"], fact.headers["ce-id"]) == ("t", "i")
    assert "x-long" not in fact.headers
