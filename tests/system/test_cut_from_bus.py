"""An instance of each control service reaches Redis and not NATS, or a NATS without streams: the other one does its work meanwhile,
and all work ends once.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from colo_cli.server_process import ServerProcess
from tests.chaos.proxy import Proxy
from tests.contract.test_bus_nats import BARE
from tests.support.running import running_colo
from tests.support.waiting import eventually
from tests.system.test_two_of_each import (
    LIMIT_S,
    NODES,
    PARTITIONS,
    SHARED,
    a_job,
    divided,
    each_replica_ran_once,
    holder,
)

pytestmark = [pytest.mark.server, pytest.mark.failover, pytest.mark.timeout(400)]


@pytest.mark.parametrize("how", ["cut off", "without streams"])
async def test_the_work_of_an_instance_that_reaches_no_bus_or_no_streams_is_done_by_the_other_one(
    tmp_path: Path, how: str
) -> None:
    environment = {f"COLO_{service.upper()}_PARTITIONS": str(PARTITIONS) for service in SHARED}
    environment |= {"COLO_OVERCOMMIT_STALE_AFTER_MS": "3600000", "COLO_OVERCOMMIT_LOST_AFTER_MS": "7200000"}
    async with AsyncExitStack() as stack:
        colo = await stack.enter_async_context(running_colo(tmp_path, nodes=NODES, environment=environment))
        server = urlsplit(colo.nats_url)
        proxy = Proxy(server.hostname or "", server.port or 0)
        await proxy.start()
        stack.push_async_callback(proxy.close)
        bare = await stack.enter_async_context(
            ServerProcess(BARE, program=None, directory=tmp_path / "bare", port=None)
        )
        without_streams = urlsplit(bare.url)
        behind = {"COLO_NATS_URL": f"nats://127.0.0.1:{proxy.port}"}
        for service in ("jobs", *SHARED, "scheduler"):
            await colo.processes.start(f"{service}-2", f"colo_{service}", behind)
        await eventually(lambda: holder(colo, "jobs", of=2), "one holds the jobs", limit_s=LIMIT_S)
        # The one behind the proxy is to be the holder.
        await colo.kill("jobs")
        cut_off = colo.process("jobs-2").process.pid

        async def holds() -> bool:
            return await holder(colo, "jobs", of=1) == cut_off

        await eventually(holds, "jobs moved", limit_s=LIMIT_S)
        await colo.restart("jobs")
        await eventually(lambda: holder(colo, "jobs", of=2), "another one stands by", limit_s=LIMIT_S)
        for service in SHARED:
            await divided(colo, service, 2, 2)
        await divided(colo, "scheduler", 8, 8)
        jobs = [await colo.submit(a_job("before"), key="before")]

        if how == "cut off":
            proxy.cut()
        else:
            proxy.lead_to(without_streams.hostname or "", without_streams.port or 0)
        moved = asyncio.get_running_loop().time()
        assert await eventually(lambda: holder(colo, "jobs", of=1), "jobs moved", limit_s=LIMIT_S) != cut_off
        for service in SHARED:
            await divided(colo, service, PARTITIONS)
        await divided(colo, "scheduler", 16)
        # Pings of five seconds notice the silence, and whoever notices it is sure after eight more.
        assert asyncio.get_running_loop().time() - moved < LIMIT_S / 2
        jobs.append(await colo.submit(a_job("meanwhile"), key="meanwhile"))
        for job in jobs:
            await colo.reaches(job, "Completed", limit_s=LIMIT_S)

        proxy.heal()
        proxy.lead_to(server.hostname or "", server.port or 0)
        for service in SHARED:
            await divided(colo, service, 2, 2)
        await divided(colo, "scheduler", 8, 8)
        jobs.append(await colo.submit(a_job("after"), key="after"))
        await colo.reaches(jobs[2], "Completed", limit_s=LIMIT_S)
        await each_replica_ran_once(colo, jobs)
