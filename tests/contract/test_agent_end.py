"""The agent of a node is stopped while a real NATS is away or stands still: it leaves without what it could not report."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.clock import SystemClock
from colo_common.runtime.service import Service
from tests.shell.scripted_core import WITHDRAWN, Local, ScriptedCore, changed
from tests.support.servers import nats_server
from tests.support.waiting import LIMIT_S, eventually


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "standing still"])
async def test_an_agent_does_not_wait_for_a_bus_that_takes_nothing(number: signal.Signals) -> None:
    with nats_server() as server:
        bus, stop = NatsBus(server.url, name="contract"), asyncio.Event()
        bus.start()
        await bus.connected(LIMIT_S)
        service = Service(
            name="told",
            core=ScriptedCore(lambda event: [changed()]),
            bus=bus,
            clock=SystemClock(),
            subscriptions=[WITHDRAWN],
            discoverable=False,
            never_waits=True,
        )
        with capture_logs() as lines:
            running = asyncio.create_task(service.run(stop))

            async def has_begun() -> bool:
                return not any((await service.problems()).values())

            await eventually(has_begun, "the agent works", limit_s=LIMIT_S)
            os.kill(server.pid, number)
            # A signal takes its time: a thread that runs meanwhile would still take what comes.
            await eventually(lambda: _at_rest(server.pid), "no thread of the server runs", limit_s=LIMIT_S)
            try:
                await service.inject(Local())
                stop.set()
                await running
                await bus.close()
            finally:
                if number is signal.SIGSTOP:
                    os.kill(server.pid, signal.SIGCONT)
        # It gave up because nothing was taken, before the time to drain was over.
        assert [line["why"] for line in lines if line["event"] == "left-unfinished"] == ["the bus takes nothing"]


async def _at_rest(pid: int) -> bool:
    """Whether every thread of the process is stopped or has ended."""
    states = []
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            states.append(path.read_text().rpartition(") ")[2][0])
        except FileNotFoundError:
            continue
    return all(state in "TZX" for state in states)
