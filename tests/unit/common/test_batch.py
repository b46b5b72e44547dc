"""Outgoing batches: every Record is durable together with the messages that belong to it."""

from colo_common.events.effects import Effect, Publish, Record, Write
from colo_common.events.job import QueueChanged
from colo_common.events.node import LeaseRenewed
from colo_common.ports import Clock
from colo_common.runtime.batch import outgoing_batches_from_effects, unit_of
from colo_common.runtime.outgoing import OutgoingBatch
from colo_common.runtime.stamp import Stamp, outgoing_from_row


class StillClock(Clock):
    """Always the same moment."""

    def now_ms(self) -> int:
        return 1_000

    def wall_us(self) -> int:
        return 1_000_000

    def real_s(self, span_ms: int) -> float:
        return span_ms / 1_000


def a_record(name: str) -> Record:
    return Record(writes=(Write(kind="job", id=name, value=b"{}", expect=0),))


def a_message(name: str) -> Publish:
    return Publish(fact=QueueChanged(queue=name, waiting=0, running=0, capacity=1), id=name)


def outgoing_batches_of(*effects: Effect) -> list[OutgoingBatch]:
    return outgoing_batches_from_effects(effects, Stamp("jobs", "b1", StillClock()))


def recorded(outgoing_batches: list[OutgoingBatch]) -> list[tuple[str, list[str]]]:
    """For each outgoing batch with a Record: the row it stores and the ids of the messages in its outbox row."""
    found = []
    for number, outgoing_batch in enumerate(outgoing_batches):
        unit = unit_of(outgoing_batch, "outbox-jobs", f"{number:04d}-b1")
        if unit:
            ids = [message.msg_id for write in unit[1:] for message in outgoing_from_row(write.value or b"")]
            found.append((unit[0].id, ids))
    return found


def test_every_record_carries_the_messages_after_it() -> None:
    """A crash between two units loses no message of the first one."""
    outgoing_batches = outgoing_batches_of(
        a_record("a"), a_message("a1"), a_message("a2"), a_record("b"), a_record("c"), a_message("c1")
    )
    assert recorded(outgoing_batches) == [("a", ["a1", "a2"]), ("b", []), ("c", ["c1"])]
    # Each outbox row that was written is removed, and no other.
    removals = [(row.id, row.value, row.expect) for outgoing_batch in outgoing_batches for row in outgoing_batch.outbox]
    assert removals == [("0000-b1", None, 1), ("0002-b1", None, 1)]


def test_messages_before_any_record_belong_to_the_first() -> None:
    outgoing_batches = outgoing_batches_of(a_message("early"), a_record("a"), a_record("b"), a_message("b1"))
    assert recorded(outgoing_batches) == [("a", ["early"]), ("b", ["b1"])]


def test_live_messages_and_effects_without_records_need_no_outbox() -> None:
    lease = Publish(fact=LeaseRenewed(node="n1", sample_seq=1, batch_cpu_mcpu=0, lease_ms=1))
    assert recorded(outgoing_batches_of(a_record("a"), lease)) == [("a", [])]
    (outgoing_batch,) = outgoing_batches_of(a_message("m"))
    assert unit_of(outgoing_batch, "outbox-jobs", "0001-b1") == ()
    assert outgoing_batch.outbox == []
    assert outgoing_batches_of() == []


def test_a_refused_record_drops_only_its_own_messages() -> None:
    early, first, because, second, last = a_message("e"), a_record("a"), a_message("a1"), a_record("b"), a_message("b1")
    outgoing_batches = outgoing_batches_of(early, first, because, second, last)
    assert [outgoing_batch.writes for outgoing_batch in outgoing_batches] == [first.writes, second.writes]
    assert [[message.msg_id for message in outgoing_batch.messages] for outgoing_batch in outgoing_batches] == [
        ["e", "a1"],
        ["b1"],
    ]
    (only,) = outgoing_batches_of(early, because)
    assert only.writes is None
    assert [message.msg_id for message in only.messages] == ["e", "a1"]


def test_an_added_batch_is_sent_after_the_first() -> None:
    first, second = outgoing_batches_of(a_record("a"), a_message("a1"), a_record("b"), a_message("b1"))
    recorded([first, second])
    batch = OutgoingBatch()
    assert batch.is_sent
    batch.add(first)
    batch.add(second)
    assert [message.msg_id for message in batch.messages] == ["a1", "b1"]
    assert [row.id for row in batch.outbox] == ["0000-b1", "0001-b1"]
    assert not batch.is_sent
