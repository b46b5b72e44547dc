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
from nats.js.errors import NotFoundError

from colo_common.events import wire
from colo_common.events.node import FreshnessChanged
from colo_common.events.registry import Stream, subject_of
from colo_common.model.freshness import Freshness
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


async def test_a_node_that_is_late_is_said_to_be_late_again_after_the_stream_of_that_was_made_again(
    servers: Servers,
) -> None:
    late = {"COLO_OVERCOMMIT_STALE_AFTER_MS": "3000", "COLO_OVERCOMMIT_LOST_AFTER_MS": "6000"}
    async with servers.service("overcommit", **late) as overcommit, servers.client() as client:
        js = client.jetstream()

        async def is_late() -> bool:
            """Whether the stream says so, that a service reads at its start."""
            try:
                message = await js.get_last_msg(Stream.EVT.value, "colo.v1.evt.freshness.n1.changed")
            except NotFoundError:
                return False
            fact = wire.decode(message.subject or "", message.data or b"")
            return isinstance(fact, FreshnessChanged) and fact.freshness in (Freshness.STALE, Freshness.LOST)

        await tell(client, "n1")
        await knows(overcommit, 1)
        assert await questions(client, "n1") == 1
        await eventually(is_late, "the node, of which no sample comes any more, is late", limit_s=25)
        await js.delete_stream(Stream.EVT.value)
        await made_streams(servers.nats_url)
        assert await eventually(is_late, "that is said again")
