"""An eviction that nobody asked for, from the load of a machine to its explanation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from colo_common.events.eviction import EvictionRequested
from tests.support.running import RunningColo, running_colo
from tests.support.waiting import eventually
from tests.system.test_cli import colo_command

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

STEP_S = 300
#: Again and again online work leaves most of the machine free for fifteen minutes, and then wants all of it for ten. On the clock
#: on the wall these are seconds.
LOADS = (*[20] * 3, *[100] * 2)
LIMIT_S = 120


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def colo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningColo]:
    directory: Path = tmp_path_factory.mktemp("colo")
    trace = directory / "tides.csv"
    rows = [f"{number * STEP_S},m1,{LOADS[number % len(LOADS)]},20" for number in range(86_400 // STEP_S)]
    trace.write_text("\n".join(["time,node,cpu_pct,mem_pct", *rows, ""]))
    # While the machine is busy nothing is promised.
    environment = {"COLO_SIM_TRACE": str(trace)}
    async with running_colo(directory, nodes=1, environment=environment, limit_s=LIMIT_S) as running:
        yield running


async def test_a_busy_machine_evicts_and_the_eviction_explains_itself(colo: RunningColo) -> None:
    job = {"cpu": "2", "memory": "64Mi", "work": "60000 cpu-min", "replicas": 2}
    low = await colo.submit({**job, "name": "low"})
    high = await colo.submit({**job, "name": "high", "priority": 9})

    async def evicted() -> EvictionRequested | None:
        found = await colo.facts(EvictionRequested, "colo.v1.evt.eviction.requested")
        return next((fact for fact in found if len(fact.ranking) == 4), None)

    fact = await eventually(evicted, "one of four replicas must leave", limit_s=LIMIT_S)
    assert fact is not None
    # Who left is the evictor's choice by its rule: the least important first. All others say why they stayed.
    assert fact.threshold_pct > 0
    assert fact.held_ms >= fact.hold_ms > 0
    assert (fact.job, fact.asked_by) == (low, "evictor")
    assert {rank.replica.partition("/")[0] for rank in fact.ranking} == {low, high}

    async def explained() -> str:
        printed = await colo_command("explain", "eviction", fact.eviction, api=colo.api)
        return printed.out if printed.code == 0 and " from decision to exit" in printed.out else ""

    text = await eventually(explained, "the victim has left and the eviction is explained", limit_s=LIMIT_S)
    assert f"{fact.reason.value}: {fact.value_pct}%, threshold {fact.threshold_pct}%" in text
    chosen, *stayed = fact.ranking
    assert f"chosen     {chosen.replica}, the first of 4: band batch, priority 0" in text
    for rank in stayed:
        (line,) = [line for line in text.splitlines() if line.startswith(f"  {rank.replica} ")]
        why = ("priority 9 is above 0",) if rank.replica.startswith(high) else ("uses less: ", "equal in all")
        assert any(part in line for part in why), line
    listed = await colo_command("get", "evictions", "--job", "low", api=colo.api)
    assert fact.eviction in listed.out
    assert f"{fact.value_pct}%/{fact.threshold_pct}%" in listed.out
    story = await colo_command("explain", "job", "low", api=colo.api)
    assert f"{fact.eviction}  " in story.out
    await colo.cancel_all()
