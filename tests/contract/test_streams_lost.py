"""Who is connected and may not use the streams any more reaches no bus, as far as the leases of its work are concerned."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from colo_cli.servers import NatsServer
from colo_common.adapters.bus_nats import NatsBus
from tests.support.servers import made_streams
from tests.support.waiting import LIMIT_S, eventually

ALLOWED: Final = """
authorization {
  users: [
    {user: admin, password: a}
    {user: jobs, password: j, permissions: {publish: {deny: ["nobody.says.this"]}}}
  ]
}
"""
#: Of all that JetStream answers nothing is left to this user; what is live goes on.
FORBIDDEN: Final = ALLOWED.replace("nobody.says.this", "$JS.>")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    found = NatsServer(directory=tmp_path, config=ALLOWED)
    await found.start()
    await made_streams(found.url.replace("//", "//admin:a@"))
    yield found
    await found.stop()


async def test_rights_to_the_streams_that_are_taken_and_given_back_are_noticed_while_connected(
    server: NatsServer, tmp_path: Path
) -> None:
    bus = NatsBus(server.url.replace("//", "//jobs:j@"), name="jobs")
    bus.start()
    await bus.connected(LIMIT_S)
    bus.watch_streams()
    assert bus.present_connection == 1

    async def is_deaf() -> bool:
        return bus.present_connection == 0

    async def hears() -> bool:
        return bus.present_connection == 1

    config = next(path for path in tmp_path.glob("*.conf"))
    before = config.read_text()
    config.write_text(before.replace(ALLOWED, FORBIDDEN))
    os.kill(server.pid, signal.SIGHUP)
    await eventually(is_deaf, "the streams are out of reach")
    assert bus.connections == 1
    config.write_text(before)
    os.kill(server.pid, signal.SIGHUP)
    await eventually(hears, "the streams are there again")
    assert bus.connections == 1
    await bus.close()
