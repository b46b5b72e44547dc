"""What every ledger promises of the rows of nodes that left: in memory and in a real Redis."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from colo_common.adapters.redis_client import redis_client
from colo_common.model.reasons import Reason
from colo_common.ports import Refused
from colo_scheduler.ledger.memory import MemoryLedger
from colo_scheduler.ledger.port import CALL_MAX, Ledger
from colo_scheduler.ledger.redis import RedisLedger
from tests.contract.test_ledger import ledger_of, reservation, reserve


@pytest.fixture(params=["memory", "redis"])
async def ledger(request: pytest.FixtureRequest) -> AsyncIterator[Ledger]:
    async with ledger_of(request, MemoryLedger) as found:
        yield found


async def test_a_row_that_holds_nothing_can_be_forgotten(ledger: Ledger) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0"))])
    await ledger.release([("j/t/0", 1)])
    assert await ledger.forget(["n1", "n9"]) == ("n1", "n9")
    assert dict(await ledger.changes()) == {}
    assert await ledger.forget(["n1"]) == ("n1",)


async def test_a_row_that_holds_something_is_not_forgotten(ledger: Ledger) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0")), reserve("n2", 0, reservation("j/t/1", node="n2"))])
    await ledger.release([("j/t/1", 1)])
    assert await ledger.forget(["n1", "n2"]) == ("n2",)
    (row,) = await ledger.rows(["n1"])
    assert (row.revision, [r.attempt for r in row.holds]) == (1, [("j/t/0", 1)])
    assert dict(await ledger.changes()) == {"n1": 1}


async def test_a_node_of_a_forgotten_name_never_gets_a_revision_or_a_count_again(ledger: Ledger) -> None:
    for number in range(3):
        await ledger.commit([reserve("n1", number, reservation(f"j/t/{number}"))])
    await ledger.release([(f"j/t/{number}", 1) for number in range(3)])
    (before,) = await ledger.rows(["n1"])
    await ledger.forget(["n1"])
    assert await ledger.floor() == 6
    (row,) = await ledger.rows(["n1"])
    assert (row.revision, row.changes, row.holds) == (6, 0, ())
    for stale in (0, before.revision):
        (answer,) = await ledger.commit([reserve("n1", stale, reservation("j/t/9", generation=stale + 1))])
        assert [(r.reason, answer.revision) for r in answer.refused] == [(Reason.LEDGER_CONFLICT, 6)]
    (answer,) = await ledger.commit([reserve("n1", 6, reservation("j/t/9", generation=7))])
    assert (answer.revision, answer.changes, answer.accepted) == (7, 7, (("j/t/9", 1),))
    assert dict(await ledger.changes()) == {"n1": 7}


async def test_nodes_that_have_a_row_keep_their_own_counters_above_or_below_the_floor(ledger: Ledger) -> None:
    await ledger.commit([reserve("n2", 0, reservation("j/t/8", node="n2"))])
    for number in range(3):
        await ledger.commit([reserve("n1", number, reservation(f"j/t/{number}"))])
        await ledger.release([(f"j/t/{number}", 1)])
    await ledger.forget(["n1"])
    (answer,) = await ledger.commit([reserve("n2", 1, reservation("j/t/9", node="n2"))])
    assert (answer.revision, answer.changes) == (2, 2)
    await ledger.release([("j/t/8", 1), ("j/t/9", 1)])
    await ledger.forget(["n2"])
    assert await ledger.floor() == 6


async def test_a_release_asked_again_after_its_row_was_forgotten_names_the_node_again(ledger: Ledger) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0"))])
    await ledger.release([("j/t/0", 1)])
    await ledger.forget(["n1"])
    assert [(r.node, r.attempts) for r in await ledger.release([("j/t/0", 1)])] == [("n1", (("j/t/0", 1),))]


async def test_of_a_commit_and_a_forgetting_at_once_nothing_is_lost(ledger: Ledger) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0"))])
    await ledger.release([("j/t/0", 1)])
    call = ledger.commit([reserve("n1", 1, reservation("j/t/1", generation=2))])
    (answer,), deleted = await asyncio.gather(call, ledger.forget(["n1"]))
    (row,) = await ledger.rows(["n1"])
    assert bool(answer.accepted) != bool(deleted) or not row.holds
    assert [r.attempt for r in row.holds] == list(answer.accepted)


async def test_at_most_so_many_rows_are_forgotten_in_one_call(ledger: Ledger) -> None:
    names = [f"n{number}" for number in range(CALL_MAX)]
    assert await ledger.forget(names) == tuple(names)
    assert await ledger.forget([]) == ()


class TestRedisAlone:
    async def test_what_cannot_be_read_of_a_row_keeps_it_from_being_forgotten(self, redis_url: str) -> None:
        prefix = f"test:{uuid.uuid4().hex}"
        client = redis_client(redis_url, name="test")
        ledger = RedisLedger(client, prefix=prefix)
        await client.set(f"{prefix}:node:n1", b"rubbish")
        await client.hset(f"{prefix}:node:n2", "rev", b"rubbish")
        await client.hset(f"{prefix}:changes", "n3", b"rubbish")
        await client.hset(f"{prefix}:node:n4", mapping={"rev": b"4", "c:left/t/0#1": b"1"})
        assert await ledger.forget(["n1", "n2", "n3", "n4"]) == ("n4",)
        assert await ledger.floor() == 4
        await ledger.close()

    @pytest.mark.parametrize("value", [b"rubbish", b"9" * 16, None], ids=["no number", "too large", "no text"])
    async def test_without_its_floor_only_nodes_that_have_a_row_take_work(
        self, redis_url: str, value: bytes | None
    ) -> None:
        prefix = f"test:{uuid.uuid4().hex}"
        client = redis_client(redis_url, name="test")
        ledger = RedisLedger(client, prefix=prefix)
        await ledger.commit([reserve("n1", 0, reservation("j/t/0"))])
        if value is None:
            await client.hset(f"{prefix}:floor", "a", b"b")
        else:
            await client.set(f"{prefix}:floor", value)
        first, second = await ledger.commit(
            [reserve("n1", 1, reservation("j/t/1")), reserve("n2", 0, reservation("j/t/2", node="n2"))]
        )
        assert (first.accepted, second.accepted) == ((("j/t/1", 1),), ())
        row, other = await ledger.rows(["n1", "n2"])
        assert (row.revision, row.unreadable) == (2, ())
        assert other.revision != 0
        with pytest.raises(Refused, match="floor"):
            await ledger.forget(["n1"])
        await ledger.close()
