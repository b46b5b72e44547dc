"""Lists come in pages that an ordinary NATS carries, however many nodes there are and however long their names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress

import pytest
from msgspec import json, structs

from colo_common.adapters.bus_nats import NatsBus
from colo_common.events import requests as rq
from colo_common.events.registry import request_subject
from colo_common.events.wire import decode_request, encode_reply
from colo_common.model.paging import PAGE_BYTES, page_by_name
from colo_gateway.ask import Asker
from colo_overcommit.core import OvercommitCore
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.queries import list_nodes
from tests.support.builders import a_node, a_topology
from tests.support.waiting import LIMIT_S, eventually

NODES = 3_000
#: Names and labels as clouds give them.
LONG = "a-name-of-a-machine-in-a-cloud.with-a-zone.and-a-region.and-a-domain.example.org"
LABELS = {"topology.example.org/zone": "eu-central-1a", "node.example.org/instance-type": "compute-optimised-96x-large"}


@pytest.fixture(scope="module")
def overcommit() -> OvercommitCore:
    """The core of a service that knows 3,000 nodes."""
    core = OvercommitCore(OvercommitPolicy())
    for number in range(NODES):
        reported = a_node(f"{number:04}.{LONG}", a_topology())
        core.handle(structs.replace(reported, labels=LABELS), 1_000)
    return core


@pytest.fixture
async def asker(nats_url: str, overcommit: OvercommitCore) -> AsyncIterator[Asker]:
    """What a gateway asks with, over a NATS that nobody configured; `sort=("all",)` is answered without pages."""
    bus = NatsBus(nats_url, name="pages")
    bus.start()
    await bus.connected(LIMIT_S)

    async def answer(data: bytes, headers: Mapping[str, str]) -> bytes:
        del headers
        asked = decode_request(request_subject(rq.ListNodes()), data)
        assert isinstance(asked, rq.ListNodes)
        if asked.sort != ("all",):
            return encode_reply(list_nodes(overcommit.nodes, asked, 2_000))
        every: list[rq.NodeSummary] = []
        cursor = ""
        while not every or cursor:
            page = list_nodes(overcommit.nodes, rq.ListNodes(cursor=cursor), 2_000)
            assert isinstance(page, rq.NodeList)
            every += page.nodes
            cursor = page.next
        return encode_reply(rq.NodeList(nodes=tuple(every), total=len(every)))

    answering = asyncio.create_task(bus.answer("pages", {request_subject(rq.ListNodes()): answer}))

    async def is_ready() -> bool:
        return await bus.ready() == ""

    await eventually(is_ready, "the service answers")
    yield Asker(bus, LIMIT_S)
    answering.cancel()
    with suppress(asyncio.CancelledError):
        await answering
    await bus.close()


@pytest.mark.parametrize("sort", [(), ("-name",), ("free", "-memory")])
async def test_three_thousand_nodes_of_long_names_come_in_pages(asker: Asker, sort: tuple[str, ...]) -> None:
    names: list[str] = []
    cursor = ""
    pages = 0
    while not names or cursor:
        page = await asker.ask(rq.ListNodes(sort=sort, cursor=cursor))
        assert isinstance(page, rq.NodeList)
        assert page.total == NODES
        assert len(json.encode(page)) < PAGE_BYTES + 10_000
        names += [node.node for node in page.nodes]
        cursor = page.next
        pages += 1
    assert len(names) == len(set(names)) == NODES
    assert 3 <= pages <= 8
    if not sort:
        assert names == sorted(names)


async def test_an_answer_that_is_too_large_is_an_error_that_says_so(asker: Asker) -> None:
    answer = await asker.ask(rq.ListNodes(sort=("all",)))
    assert isinstance(answer, rq.Refusal)
    assert (answer.code, answer.field) == (413, "limit")
    assert "bytes and NATS carries 1048576; ask for fewer" in answer.rule


@pytest.mark.parametrize("cursor", ["x", "1:", "-1:a", "1:" + "a" * 600])
async def test_what_is_no_cursor_is_refused(asker: Asker, cursor: str) -> None:
    answer = await asker.ask(rq.ListNodes(cursor=cursor))
    assert isinstance(answer, rq.Refusal)
    assert (answer.code, answer.field) == (400, "cursor")


def test_a_page_goes_on_after_its_last_value_wherever_that_stands_and_at_its_place_when_it_is_gone() -> None:
    values = [rq.GetJob(job=name) for name in "abcdef"]

    def page(names: str, cursor: str) -> tuple[str, str]:
        found = [each for each in values if each.job in names] if names else values
        found, following = page_by_name(found, lambda one: one.job, cursor, 2)
        return "".join(each.job for each in found), following

    assert page("", "") == ("ab", "2:b")
    assert page("", "2:b") == ("cd", "4:d")
    assert page("bcdef", "2:b") == ("cd", "3:d")
    assert page("acdef", "2:b") == ("de", "4:e")
    assert page("", "4:d") == ("ef", "")
    assert page("", "9:z") == ("", "")
