"""A node that a request leaves out is left out for as long as its sender meant, whatever the two clocks say."""

from __future__ import annotations

import pytest

from colo_common.events.job import PlacementsRequested
from colo_common.events.requests import PendingReply
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.requests.request_class import avoided_here
from tests.support.builders import a_node
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
ROOM = [(4000, 8 << 30)] * 2


@pytest.mark.parametrize("off_ms", [-HOUR_MS, 0, HOUR_MS], ids=["behind", "right", "ahead"])
@pytest.mark.parametrize("is_listed", [False, True], ids=["published", "listed"])
def test_a_clock_that_is_an_hour_off_makes_no_node_left_out_for_longer_or_not_at_all(
    off_ms: int, is_listed: bool
) -> None:
    bench = Bench(SchedulerPolicy(ledger_refresh_ms=0))
    bench.now_ms = NOW_MS
    bench.say(a_node("n1"))
    bench.say(an_allocatable("n1", ROOM, at_ms=NOW_MS))
    theirs_ms = NOW_MS + off_ms
    asked = a_placement_request("j/t/0", avoid=(("n1", theirs_ms + 60_000),))
    if is_listed:
        bench.say(PendingReply(placement_requests=(asked,), total=1, at_ms=theirs_ms))
    else:
        bench.say(PlacementsRequested(at_ms=theirs_ms, placement_requests=(asked,)))
    assert ("j/t/0", 1) not in bench.core.commits.held
    bench.now_ms += 30_000
    bench.say(an_allocatable("n1", ROOM, at_ms=bench.now_ms))
    assert ("j/t/0", 1) not in bench.core.commits.held
    bench.now_ms += 31_000
    bench.say(an_allocatable("n1", ROOM, at_ms=bench.now_ms))
    assert ("j/t/0", 1) in bench.core.commits.held


def test_what_was_over_when_it_was_asked_is_left_away_and_one_that_tells_no_time_is_bounded() -> None:
    asked = a_placement_request("j/t/0", avoid=(("n1", 1_000), ("n2", 9_000)))
    (request,) = avoided_here((asked,), 1_000, 50_000)
    assert request.avoid == (("n2", 58_000),)
    (request,) = avoided_here((asked,), 0, 2_000)
    assert request.avoid == asked.avoid
    far = a_placement_request("j/t/0", avoid=(("n1", 9 * HOUR_MS),))
    (request,) = avoided_here((far,), 0, 2_000)
    assert request.avoid == (("n1", 2_000 + HOUR_MS),)
    others = (a_placement_request("j/t/0"), a_placement_request("j/t/1"))
    assert avoided_here(others, 1_000, 50_000) is others
