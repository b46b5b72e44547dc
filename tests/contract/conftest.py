"""A bus and an operator of the server that a file's own fixture `server` starts."""

from __future__ import annotations

from collections.abc import AsyncIterator

import nats
import pytest
from nats.js import JetStreamContext

from colo_cli.servers import NatsServer
from colo_common.adapters.bus_nats import NatsBus
from tests.support.waiting import LIMIT_S


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[NatsBus]:
    """A connected bus."""
    bus = NatsBus(server.url, name="contract")
    bus.start()
    await bus.connected(LIMIT_S)
    yield bus
    await bus.close()


@pytest.fixture
async def operator(server: NatsServer) -> AsyncIterator[JetStreamContext]:
    """JetStream as an operator's own client sees it."""
    client = await nats.connect(server.url)
    yield client.jetstream()
    await client.close()
