"""The auditor finds what is planted: a good recording has no violation, and each doctored one has the violation of its kind."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from colo_common.events.enforcement import ReplicaEnded, ReplicaStarted
from colo_common.events.eviction import EvictionFinished, EvictionRequested
from colo_common.events.fact import Fact
from colo_common.events.job import JobStateChanged, ReplicasChanged
from colo_common.events.node import AllocatableChanged, FreshnessChanged
from colo_common.events.placement import PlacementsDecided
from colo_common.events.service import DeadLettered
from colo_common.model.freshness import Freshness
from tests.audit.judge import judge
from tests.audit.recording import Emptied, LedgerRow, Received, Record, StoredAtEnd, append, read
from tests.audit.tale import JOB, NODE, REPLICA, a_hold, a_placement, a_row, facts, received, tale

Doctor = Callable[[list[Record]], list[Record]]


def _of(kind: type[Fact], number: int = 0) -> int:
    """Where the tale says so for the time of that number."""
    return [at for at, fact in enumerate(facts()) if isinstance(fact, kind)][number]


def without(kind: type[Fact], number: int = 0) -> Doctor:
    """The tale without that message."""
    return lambda records: [record for at, record in enumerate(records) if at != _of(kind, number)]


def again(kind: type[Fact], number: int, **changes: object) -> Doctor:
    """The tale with that message once more, changed, right after it."""

    def doctor(records: list[Record]) -> list[Record]:
        at = _of(kind, number)
        other = received(at + 1, replace(facts()[at], **changes))
        return [*records, replace(other, at_us=other.at_us + 1, id=f"{other.id} again")]

    return doctor


def changed(kind: type[Fact], number: int, **changes: object) -> Doctor:
    """The tale with that message changed."""

    def doctor(records: list[Record]) -> list[Record]:
        at = _of(kind, number)
        return [*records[:at], received(at + 1, replace(facts()[at], **changes)), *records[at + 1 :]]

    return doctor


def with_row(row: LedgerRow) -> Doctor:
    """The tale with another row."""
    return lambda records: [*records, row]


def ended(**changes: object) -> Doctor:
    """The tale with another end."""
    return lambda records: [
        replace(record, **changes) if isinstance(record, StoredAtEnd) else record for record in records
    ]


def added(fact: Fact) -> Doctor:
    """The tale with one more message."""
    return lambda records: [*records, received(30, fact)]


_LSR: Final = {"qos": "LSR", "band": "prod"}
_NUMBER: Final = "a published number recomputes from its own terms"
_HELD: Final = "what is held fits the allocatable that the newest placement names"
_OWN: Final = "CPUs of LSE and LSR work are in one set only"
_ONCE: Final = "an attempt is placed on one node"
_THERE: Final = "an attempt starts on the node that its placement names"
_LATER: Final = "a later attempt is placed only after the earlier one was over"
_TWICE: Final = "no replica runs twice at a time, but where its node was lost"
_ANSWERED: Final = "a requested attempt was placed, withdrawn or ended"
_LEFT: Final = "nothing runs after the drain"
_MOVES: Final = "a job or replica leaves the state that it is in, along its table"
_LOST: Final = "every accepted job ends, or waits with a reason"
_LETTER: Final = "no message of our own became a dead letter"
_AGREES: Final = "after the drain Redis says of a job what its facts say"
_VICTIM: Final = "a node has one victim at a time"
_COOL: Final = "a node has its cool-down after an eviction"
_BUDGET: Final = "the cluster evicts within its budget of a minute"
_INDEX: Final = "after the drain the ledger's rows and its index agree"
_ENDED: Final = "after the drain nothing is held that was not published, or whose job has ended"
_READABLE: Final = "every message is what the registry says of its subject"

_OWN_TWICE: Final = a_row(
    *[
        replace(placement, qos="LSR", band="prod", cpus="0-1")
        for placement in (a_placement(1), a_placement(1, replica="job/main/1"))
    ]
)
_ONE_HELD: Final = {"rev": "5", f"h:{REPLICA}#2": a_hold(a_placement(2), 5)}

PLANTED: Final[list[tuple[str, Doctor]]] = [
    (_NUMBER, changed(AllocatableChanged, 0, batch_cpu_mcpu=8_501)),
    (_HELD, with_row(a_row(a_placement(1), a_placement(1, replica="job/main/1", cpu_mcpu=4_501), rev=7))),
    (_OWN, with_row(_OWN_TWICE)),
    (_ONCE, again(PlacementsDecided, 0, placements=(a_placement(1, node="n2"),))),
    (_THERE, changed(ReplicaStarted, 0, node="n2")),
    (_THERE, without(PlacementsDecided, 1)),
    (
        _LATER,
        lambda records: without(ReplicaEnded, 0)(without(ReplicasChanged, 3)(without(ReplicasChanged, 4)(records))),
    ),
    (_TWICE, without(ReplicaEnded, 0)),
    (_TWICE, again(ReplicaStarted, 1, node="n2")),
    (_ANSWERED, lambda records: without(PlacementsDecided, 1)(without(ReplicaEnded, 1)(records))),
    (_LEFT, without(ReplicaEnded, 1)),
    (_MOVES, changed(JobStateChanged, 2, previous="Inqueue")),
    (_MOVES, without(ReplicasChanged, 2)),
    (_LOST, lambda records: without(JobStateChanged, 2)(ended(jobs={})(records))),
    (_LOST, lambda records: without(JobStateChanged, 2)(ended(jobs={JOB: "Running"})(records))),
    (_LETTER, added(DeadLettered(service="jobs", subject="colo.v1.evt.job.changed", reason="cannot be read"))),
    (_AGREES, ended(jobs={JOB: "Running"})),
    (_VICTIM, without(EvictionFinished, 0)),
    (_COOL, again(EvictionRequested, 0, eviction="ev-3")),
    (_BUDGET, again(EvictionRequested, 0, eviction="ev-3", node="n2")),
    (_INDEX, ended(rows={NODE: _ONE_HELD})),
    (_ENDED, ended(rows={NODE: _ONE_HELD}, held={f"{REPLICA}#2": NODE})),
    (_READABLE, lambda records: [*records, Received(at_us=1, subject="colo.v1.evt.job.submitted", text="{")]),
]


def test_a_recording_without_a_fault_has_no_violation_and_every_invariant_is_checked() -> None:
    found = judge(tale(facts()))
    assert [finding for finding in found.findings if finding.violations or not finding.checked] == []


@pytest.mark.parametrize(("invariant", "doctor"), PLANTED, ids=[f"{at}-{one}" for at, (one, _) in enumerate(PLANTED)])
def test_a_planted_violation_is_found_with_its_evidence(invariant: str, doctor: Doctor) -> None:
    found = judge(doctor(tale(facts())))
    violations = [one for finding in found.findings if finding.invariant == invariant for one in finding.violations]
    assert violations
    assert all(violation.about and violation.seen for violation in violations)
    assert any(violation.evidence for violation in violations)


def test_every_invariant_has_a_planted_violation() -> None:
    assert {finding.invariant for finding in judge([]).findings} == {invariant for invariant, _ in PLANTED}


def test_a_replica_of_a_lost_node_may_run_once_more() -> None:
    records = without(ReplicaEnded, 0)(tale(facts()))
    lost = FreshnessChanged(node=NODE, freshness=Freshness.LOST, previous=Freshness.STALE, sample_seq=1, age_ms=60_000)
    was_lost = replace(received(8, lost), at_us=received(8, lost).at_us + 1)
    doubled = [one for one in judge([*records, was_lost]).findings if one.invariant == _TWICE]
    assert [(one.violations, one.excused) for one in doubled] == [([], 1)]


def test_a_fact_that_was_stored_late_has_its_place_by_its_sequence() -> None:
    records = tale(facts())
    at = _of(JobStateChanged, 0)
    late = replace(received(at + 1, facts()[at]), at_us=records[at + 8].at_us)
    found = judge([*records[:at], *records[at + 1 :], late])
    assert [finding.invariant for finding in found.findings if finding.violations] == []


def test_what_an_emptied_bus_forgot_is_unknown_and_no_violation() -> None:
    records = [record for at, record in enumerate(tale(facts())) if at > _of(ReplicasChanged, 2)]
    emptied = Emptied(at_us=received(1, facts()[0]).at_us, what="COLO_EVT")
    found = judge([emptied, *records])
    assert [finding.invariant for finding in found.findings if finding.violations] == []
    assert sum(finding.unknown for finding in found.findings) > 0


def test_a_recording_is_read_as_it_was_written_up_to_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path, records = tmp_path / "recording.jsonl", tale(facts())
    append(path, records)
    with path.open("ab") as file:
        file.write(b'{"type":"received","at_')
    assert list(read(path)) == records


def test_the_auditor_shares_no_code_with_the_services() -> None:
    texts = [path.read_text("utf-8") for path in Path(__file__).parent.glob("*.py")]
    own = {name for text in texts for name in re.findall(r"^from (colo_[\w.]+) import", text, re.MULTILINE)}
    assert own
    assert {name for name in own if not name.startswith(("colo_common.events.", "colo_common.model."))} == set()
    assert not any(re.search(r"^import colo_", text, re.MULTILINE) for text in texts)
