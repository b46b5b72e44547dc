"""What the gateway keeps and tells of an eviction, from the decision to the replica's next place."""

from __future__ import annotations

from msgspec.structs import replace

from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.eviction import EvictionFinished, VictimRank
from colo_common.model.qos import PriorityBand
from colo_common.model.reasons import EndCause, Reason
from colo_gateway.eviction_account import account_of
from colo_gateway.evictions import Evictions
from tests.support.builders import GIB, a_placement, an_eviction, decided


def a_rank(replica: str, *, behind: str = "", priority: int = 0, gib: int = 3, band: str = "batch") -> VictimRank:
    return VictimRank(
        replica=replica,
        attempt=1,
        priority=priority,
        used=gib * GIB,
        unit="bytes",
        band=PriorityBand(band),
        placed_ms=90_000,
        behind=behind,  # type: ignore[arg-type]
    )


REQUESTED = an_eviction(
    "low/main/0",
    at_ms=10_000,
    sent_us=1_000_000,
    eviction="ev-0123456789",
    sample_seq=7,
    hold_ms=3_000,
    ranking=(
        a_rank("low/main/0", band="free"),
        a_rank("c/main/0", behind="band"),
        a_rank("b/main/0", behind="priority", priority=5, band="free"),
        a_rank("a/main/0", behind="use", gib=1, band="free"),
        a_rank("z/main/0", behind="name", band="free"),
    ),
    candidates=5,
    asked_by="evictor",
)
ENDED = ReplicaEnded(
    at_ms=12_500,
    sent_us=1_045_000,
    node="n1",
    replica="low/main/0",
    job="low",
    attempt=1,
    cause=EndCause.EVICTED,
    exit_code=143,
    eviction="ev-0123456789",
)
FINISHED = EvictionFinished(
    at_ms=12_600,
    eviction="ev-0123456789",
    node="n1",
    replica="low/main/0",
    attempt=1,
    cause=EndCause.EVICTED,
    took_ms=2_600,
)


def test_an_eviction_is_told_from_the_decision_to_the_next_place() -> None:
    evictions = Evictions()
    evictions.note(REQUESTED)
    (leaving,) = evictions.find("ev-01")
    assert (account_of(leaving).state, account_of(leaving).took_ms) == ("leaving", None)
    # The first place is older than the eviction; only a later attempt is the next place.
    for fact in (
        ENDED,
        FINISHED,
        decided(a_placement("low/main/0")),
        decided(a_placement("low/main/0", attempt=2, node="n2")),
    ):
        evictions.note(fact)
    whole = account_of(evictions.find("low/main/0")[0])
    assert whole.sentence == (
        "the evictor decided that low/main/0 (attempt 1) must leave n1: memory in use stayed above the watermark; "
        "memory in use 93% >= 92% for 3.0s, needed for 3.0s; it left 2.5s after the decision, it was evicted; placed again on n2"
    )
    assert whole.chosen == "the first of 5: band free, priority 0, uses 3Gi of memory; at most 90s of work is lost"
    assert {each.replica: each.why for each in whole.not_chosen} == {
        "c/main/0": "band batch leaves after band free",
        "b/main/0": "priority 5 is above 0",
        "a/main/0": "uses less: 1Gi of memory, the victim 3Gi of memory",
        "z/main/0": "equal in all; the names decide",
    }
    assert (whole.took_ms, whole.wall_ms, whole.exit_code, whole.again_node) == (2_500, 45, 143, "n2")
    assert whole.credited == "nothing: no victim was on its way out"


def test_a_victim_that_does_not_leave_is_told_as_lost() -> None:
    evictions = Evictions()
    evictions.note(REQUESTED)
    evictions.note(replace(FINISHED, cause=EndCause.LOST, took_ms=40_000))
    lost = account_of(evictions.find("ev-0123456789")[0])
    assert lost.state == "lost"
    assert lost.sentence.endswith("it did not leave within 40s and counts as lost")


def test_an_end_that_is_read_before_its_order_belongs_to_it() -> None:
    evictions = Evictions()
    evictions.note(ENDED)
    evictions.note(REQUESTED)
    (found,) = evictions.find("ev-0123456789")
    assert (found.state, found.took_ms) == ("left", 2_500)


def test_what_an_older_evictor_told_is_told_without_what_it_left_out() -> None:
    older = an_eviction(
        "low/main/0",
        eviction="n1:b:7:low/main/0#1",
        reason=Reason.CPU_SATISFACTION,
        value_pct=10,
        threshold_pct=30,
        held_ms=60_000,
        ranking=(VictimRank(replica="low/main/0", attempt=1, priority=0, used=100, unit="mcpu"),),
    )
    evictions = Evictions()
    evictions.note(older)
    whole = account_of(evictions.find("low/main/0")[0])
    assert whole.chosen == "the first of 1: priority 0, uses 0.1 CPU"
    assert "10% < 30% for 60s; it is leaving" in whole.sentence


def test_evictions_are_listed_newest_first_and_the_oldest_is_forgotten() -> None:
    evictions = Evictions()
    for number in range(2_003):
        evictions.note(
            replace(
                REQUESTED,
                eviction=f"ev-{number:010d}",
                node=f"n{number % 2}",
                replica=f"j{number}/main/0",
                at_ms=number,
            )
        )
    assert len(evictions) == 2_000
    assert [each.requested.eviction for each in evictions.newest(node="n1", since_ms=1_998)] == [
        "ev-0000002001",
        "ev-0000001999",
    ]
    assert evictions.newest(job="nobody") == []
    assert evictions.find("ev-0000000001") == []
    assert len(evictions.find("ev-000000200")) == 3
