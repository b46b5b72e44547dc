"""An event log out of order is found: of a short one in one call, of a long one after enough calls."""

from __future__ import annotations

import pytest
from msgspec import structs

from colo_common.events.job import JobStateChanged
from colo_common.model.invalid import InvariantBroken
from colo_gateway.core import GatewayCore

CHANGE = JobStateChanged(job="j", queue="q", state="Running", previous="Inqueue", transition="J04", version=2)


def a_core(facts: int) -> GatewayCore:
    core = GatewayCore(event_log_size=facts - 10, trace_size=2)
    for _ in range(facts):
        core.handle(CHANGE, 0)
    return core


def check_all(core: GatewayCore, calls: int) -> None:
    for _ in range(calls):
        core.check()


@pytest.mark.parametrize(("facts", "calls"), [(50, 1), (45_000, 10)])
@pytest.mark.parametrize("at", [0, -1])
def test_an_entry_that_is_not_in_its_place_is_found(facts: int, calls: int, at: int) -> None:
    core = a_core(facts)
    check_all(core, calls)
    entries = core.event_log._entries
    entries[at] = structs.replace(entries[at], position=7_000_000)
    with pytest.raises(InvariantBroken, match="the event log is out of order"):
        check_all(core, calls)


def test_facts_may_come_between_two_calls() -> None:
    core = a_core(45_000)
    for _ in range(20):
        core.check()
        core.handle(CHANGE, 0)
