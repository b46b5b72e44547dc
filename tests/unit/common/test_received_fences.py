"""Of two instances that speak of one node, the one with the higher fence is believed, whichever is heard last."""

from __future__ import annotations

from msgspec import structs

from colo_common.events.effects import Publish
from colo_common.events.fact import is_older
from colo_common.events.node import AllocatableChanged, FreshnessChanged, LeaseRenewed
from colo_common.events.wire import decode
from colo_common.model.received_fences import ReceivedFences
from colo_common.runtime.stamp import Stamp
from tests.support.examples import example_of
from tests.unit.common.test_stamp import StillClock

MINUTE_MS = 60_000


def test_a_lower_fence_of_the_same_node_is_refused_whenever_it_comes() -> None:
    fences = ReceivedFences()
    assert fences.admits("n1", 7, 0)
    assert not fences.admits("n1", 6, 1)
    assert fences.admits("n2", 6, 1)
    assert fences.admits("n1", 7, 2)
    assert fences.admits("n1", 9, 3)
    assert not fences.admits("n1", 7, 4)


def test_a_fence_of_the_future_silences_nobody_whichever_comes_first() -> None:
    now_ms, day_ms = 1_800_000_000_000, 24 * 60 * MINUTE_MS
    true, forged = now_ms - 30 * day_ms, now_ms + day_ms + 1
    fences = ReceivedFences()
    assert fences.admits("n1", forged, now_ms)
    assert fences.admits("n1", true, now_ms)
    assert not fences.admits("n1", forged, now_ms)
    assert fences.admits("n1", true, now_ms + 1_000)
    # Within a day it may be true: the clocks of two machines differ.
    assert fences.admits("n1", forged, now_ms + 2_000)
    assert not fences.admits("n1", true, now_ms + 3_000)


def test_on_a_machine_whose_clock_is_years_behind_fences_count_as_ever() -> None:
    fences = ReceivedFences()
    assert fences.admits("n1", 1_800_000_000_000, 1)
    assert fences.admits("n1", 1_800_000_000_500, 2)
    assert not fences.admits("n1", 1_800_000_000_000, 3)


def test_who_is_alone_by_its_settings_is_heard_and_outranks_nobody() -> None:
    fences = ReceivedFences()
    assert fences.admits("n1", 7, 0)
    assert fences.admits("n1", 0, 1)
    assert not fences.admits("n1", 6, 2)


def test_a_fence_that_has_said_nothing_for_ten_minutes_silences_nobody() -> None:
    fences = ReceivedFences()
    assert fences.admits("n1", 7, 0)
    assert not fences.admits("n1", 6, 10 * MINUTE_MS - 1)
    assert fences.admits("n1", 6, 10 * MINUTE_MS)
    # What is not heard of any more is not kept either.
    assert fences.admits("n2", 6, 20 * MINUTE_MS)
    assert len(fences) == 1


def test_what_is_said_of_a_node_names_the_fence_under_which_it_is_held() -> None:
    of_nodes = {"n1": 17}
    stamp = Stamp("overcommit", "b1", StillClock(), lambda node: of_nodes.get(node, 0))
    for kind in (AllocatableChanged, FreshnessChanged, LeaseRenewed):
        of_node = structs.replace(example_of(kind), node="n1")
        message = stamp.outgoing(Publish(fact=of_node, id="of-a-sample"))
        reported = decode(message.subject, message.data)
        assert isinstance(reported, kind)
        assert reported.fence == 17
        assert message.msg_id == "of-a-sample:17"
        # Of who lost the node it is below every other, and not 0: that would be believed beside the new holder.
        given_up = stamp.outgoing(Publish(fact=structs.replace(of_node, node="n2")))
        late = decode(given_up.subject, given_up.data)
        assert isinstance(late, kind)
        assert late.fence == 1
        alone = Stamp("overcommit", "b1", StillClock()).outgoing(Publish(fact=structs.replace(of_node, fence=0)))
        reported = decode(alone.subject, alone.data)
        assert isinstance(reported, kind)
        assert reported.fence == 0


def test_the_fence_is_the_first_rule_of_order_where_both_have_one() -> None:
    fact = structs.replace(example_of(FreshnessChanged), node="n1", boot_id="a", seq=9, fence=5)
    later = structs.replace(fact, boot_id="b", seq=1, fence=8)
    assert not is_older(later, fact)
    assert is_older(fact, later)
    assert not is_older(structs.replace(fact, fence=0), later)
    assert is_older(structs.replace(fact, seq=8, fence=0), fact)
