"""Nodes are asked what they are and run after the streams were made again, although their collectors tell by themselves before.

Only the question lets an executor that lives say what runs: of its own accord it does so after 25 minutes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from nats.aio.client import Client

from colo_common.events import wire
from colo_common.events.registry import Stream, subject_of
from tests.support.builders import a_node, a_sample
from tests.support.servers import emptied, made_streams
from tests.support.waiting import eventually
from tests.system.bad_input import RunningService, Servers

pytestmark = pytest.mark.server

REPORTED: Final = 'colo_overcommit_events_handled_total{type="NodeTopologyReported"}'


@pytest.fixture
async def servers(tmp_path: Path, nats_url: str, redis_url: str) -> AsyncIterator[Servers]:
    await emptied(nats_url, redis_url)
    yield Servers(nats_url, redis_url, tmp_path)
    await emptied(nats_url, redis_url)


async def tell(client: Client, node: str) -> None:
    """Tell the topology, as a collector does first of all when it begins."""
    fact = a_node(node)
    await client.jetstream().publish(subject_of(fact), wire.encode(fact))


async def questions(client: Client, node: str) -> int:
    """How often the node, whose collector samples, was asked when it first was."""
    asked = await client.subscribe(f"colo.v1.tlm.node.{node}.wanted")
    seqs = count(1)

    async def seen() -> int:
        fact = a_sample(node, seq=next(seqs))
        await client.publish(subject_of(fact), wire.encode(fact))
        return asked.pending_msgs

    found = await eventually(seen, f"{node} is asked", limit_s=30)
    await asked.unsubscribe()
    return found


async def knows(overcommit: RunningService, nodes: int) -> None:
    await overcommit.reaches(REPORTED, nodes)


async def test_nodes_that_told_what_they_are_are_asked_once_after_the_streams_were_made_again(
    servers: Servers,
) -> None:
    async with servers.service("overcommit") as overcommit, servers.client() as client:
        await tell(client, "n1")
        await knows(overcommit, 1)
        # The streams are new: whoever begins cannot know what they had before.
        assert await questions(client, "n1") == 1
        await client.jetstream().delete_stream(Stream.NODE.value)
        await made_streams(servers.nats_url)
        await tell(client, "n1")
        # The new stream is heard, and its topology has come, before a sample comes.
        await knows(overcommit, 2)
        await overcommit.logged("stream-lost", why="COLO_NODE was made again, or restored")
        assert await questions(client, "n1") == 1
