"""What is durable together: every record with what must be said about it."""

from colo_common.events.effects import Effect, Publish, Record, Write
from colo_common.events.job import QueueChanged
from colo_common.events.node import LeaseRenewed
from colo_common.ports import Clock
from colo_common.runtime.batch import DecisionEffects, decision_from_effects, parts_of, units_of
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


def decided(*effects: Effect) -> DecisionEffects:
    return decision_from_effects(effects, Stamp("jobs", "b1", StillClock()))


def told(units: list[tuple[Write, ...]]) -> list[tuple[str, list[str]]]:
    """For each unit the row it stores and the messages that its outbox row carries."""
    found = []
    for unit in units:
        ids = [message.msg_id for write in unit[1:] for message in outgoing_from_row(write.value or b"")]
        found.append((unit[0].id, ids))
    return found


def test_every_record_carries_what_is_said_after_it() -> None:
    """A crash between two units loses nothing that the first one's state has led to."""
    decision = decided(a_record("a"), a_message("a1"), a_message("a2"), a_record("b"), a_record("c"), a_message("c1"))
    units = units_of(decision, "outbox-jobs", "0001-b1")
    assert told(units) == [("a", ["a1", "a2"]), ("b", []), ("c", ["c1"])]
    assert [row.id for row in decision.outbox] == ["0001-b1", "0001-b1-000002"]


def test_what_is_said_before_any_record_goes_with_the_first() -> None:
    decision = decided(a_message("early"), a_record("a"), a_record("b"), a_message("b1"))
    assert told(units_of(decision, "outbox-jobs", "0001-b1")) == [("a", ["early"]), ("b", ["b1"])]


def test_outbox_rows_of_one_decision_sort_as_they_were_said() -> None:
    decision = decided(*(effect for name in "abcdefghijkl" for effect in (a_record(name), a_message(name))))
    units_of(decision, "outbox-jobs", "0001-b1")
    ids = [row.id for row in decision.outbox]
    assert ids == sorted(ids)
    assert max(ids) < "0002-b1"


def test_live_messages_and_decisions_without_records_need_no_outbox() -> None:
    lease = Publish(fact=LeaseRenewed(node="n1", sample_seq=1, batch_cpu_mcpu=0, lease_ms=1))
    assert told(units_of(decided(a_record("a"), lease), "outbox-jobs", "0001-b1")) == [("a", [])]
    assert units_of(decided(a_message("m")), "outbox-jobs", "0001-b1") == []


def test_a_refused_record_takes_with_it_only_what_was_said_because_of_it() -> None:
    early, first, because, second, last = a_message("e"), a_record("a"), a_message("a1"), a_record("b"), a_message("b1")
    assert parts_of([early, first, because, second, last]) == [[early, first, because], [second, last]]
    assert parts_of([early, because]) == [[early, because]]
