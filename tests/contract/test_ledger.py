"""The ledger's promises, asked of every implementation alike: in memory and in a real Redis."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from colo_common.adapters.redis_client import redis_client
from colo_common.model.invalid import InvalidInput
from colo_common.model.reasons import Reason
from colo_common.ports import Refused
from colo_scheduler.ledger import CALL_MAX, RESERVATIONS_MAX, Ledger, NodeReserve, Reservation
from colo_scheduler.ledger_memory import MemoryLedger
from colo_scheduler.ledger_redis import RedisLedger
from tests.support.builders import a_placement


@pytest.fixture(params=["memory", "redis"])
async def ledger(request: pytest.FixtureRequest) -> AsyncIterator[Ledger]:
    if request.param == "memory":
        yield MemoryLedger()
        return
    url = request.getfixturevalue("redis_url")
    real = RedisLedger(redis_client(url, name="test"), prefix=f"test:{uuid.uuid4().hex}")
    yield real
    await real.close()


def reservation(
    replica: str, *, attempt: int = 1, node: str = "n1", generation: int = 1, mcpu: int = 1000
) -> Reservation:
    return Reservation(placement=a_placement(replica, node=node, attempt=attempt, mcpu=mcpu), generation=generation)


def reserve(node: str, expect: int, *reservations: Reservation) -> NodeReserve:
    return NodeReserve(node=node, expect=expect, reservations=reservations)


async def test_a_node_without_a_row_has_revision_0_and_holds_nothing(ledger: Ledger) -> None:
    (row,) = await ledger.rows(["n1"])
    assert (row.node, row.revision, row.changes, row.reservations) == ("n1", 0, 0, ())
    assert dict(await ledger.changes()) == {}


async def test_what_is_reserved_is_in_the_row_as_it_was_given(ledger: Ledger) -> None:
    one, two = reservation("j/t/0"), reservation("j/t/1", mcpu=2500)
    (answer,) = await ledger.commit([reserve("n1", 0, one, two)])
    assert (answer.revision, answer.changes, answer.accepted, answer.refused) == (
        1,
        1,
        (("j/t/0", 1), ("j/t/1", 1)),
        (),
    )
    (row,) = await ledger.rows(["n1"])
    assert (row.revision, row.reservations, row.confirmed) == (1, (one, two), ())
    assert dict(await ledger.changes()) == {"n1": 1}


async def test_one_revision_counts_the_accepted_calls_of_a_node(ledger: Ledger) -> None:
    for number in range(3):
        (answer,) = await ledger.commit([reserve("n1", number, reservation(f"j/t/{number}"))])
        assert answer.revision == number + 1


@pytest.mark.parametrize("expect", [0, 2], ids=["older", "newer"])
async def test_another_revision_than_expected_gets_nothing(ledger: Ledger, expect: int) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0"))])
    (answer,) = await ledger.commit([reserve("n1", expect, reservation("j/t/1"), reservation("j/t/2"))])
    assert answer.accepted == ()
    assert [(r.replica, r.reason) for r in answer.refused] == [
        ("j/t/1", Reason.LEDGER_CONFLICT),
        ("j/t/2", Reason.LEDGER_CONFLICT),
    ]
    assert answer.revision == 1
    (row,) = await ledger.rows(["n1"])
    assert [r.attempt for r in row.reservations] == [("j/t/0", 1)]


async def test_nodes_of_one_call_are_answered_each_for_itself(ledger: Ledger) -> None:
    await ledger.commit([reserve("n2", 0, reservation("j/t/9", node="n2"))])
    answers = await ledger.commit(
        [reserve("n1", 0, reservation("j/t/0")), reserve("n2", 0, reservation("j/t/1", node="n2")), reserve("n3", 0)]
    )
    assert [(a.node, len(a.accepted), len(a.refused)) for a in answers] == [("n1", 1, 0), ("n2", 0, 1), ("n3", 0, 0)]


async def test_a_node_may_stand_twice_in_one_call(ledger: Ledger) -> None:
    answers = await ledger.commit(
        [reserve("n1", 0, reservation("j/t/0")), reserve("n1", 1, reservation("j/t/1", generation=2))]
    )
    assert [(a.revision, len(a.accepted)) for a in answers] == [(1, 1), (2, 1)]


async def test_an_attempt_that_is_held_anywhere_is_refused_with_the_place(ledger: Ledger) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0"))])
    (answer,) = await ledger.commit(
        [reserve("n2", 0, reservation("j/t/0", node="n2"), reservation("j/t/1", node="n2"))]
    )
    assert [(r.reason, r.held_on) for r in answer.refused] == [(Reason.ALREADY_HELD, "n1")]
    assert answer.accepted == (("j/t/1", 1),)


async def test_the_same_attempt_on_the_same_node_with_other_shares_is_refused(ledger: Ledger) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0"))])
    (answer,) = await ledger.commit([reserve("n1", 1, reservation("j/t/0", mcpu=4000))])
    assert [(r.reason, r.held_on) for r in answer.refused] == [(Reason.ALREADY_HELD, "n1")]


async def test_the_same_call_again_is_accepted_and_changes_nothing(ledger: Ledger) -> None:
    call = [reserve("n1", 0, reservation("j/t/0"), reservation("j/t/1"))]
    first = await ledger.commit(call)
    assert await ledger.commit(call) == first
    assert (await ledger.rows(["n1"]))[0].revision == 1


async def test_an_older_attempt_is_refused_while_a_newer_is_held(ledger: Ledger) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0", attempt=3))])
    (answer,) = await ledger.commit([reserve("n2", 0, reservation("j/t/0", attempt=2, node="n2"))])
    assert [r.reason for r in answer.refused] == [Reason.OLDER_ATTEMPT]


async def test_a_newer_attempt_may_be_held_beside_an_older_one(ledger: Ledger) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0", attempt=1))])
    (answer,) = await ledger.commit([reserve("n2", 0, reservation("j/t/0", attempt=2, node="n2"))])
    assert answer.accepted == (("j/t/0", 2),)
    released = await ledger.release([("j/t/0", 1)])
    assert [(r.node, r.attempts) for r in released] == [("n1", (("j/t/0", 1),))]
    assert [r.attempt for r in (await ledger.rows(["n2"]))[0].reservations] == [("j/t/0", 2)]


async def test_release_empties_the_row_and_leaves_the_revision(ledger: Ledger) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0"), reservation("j/t/1"))])
    released = await ledger.release([("j/t/0", 1), ("j/t/7", 1)])
    assert [(r.node, r.changes, r.attempts) for r in released] == [("n1", 2, (("j/t/0", 1),))]
    (row,) = await ledger.rows(["n1"])
    assert (row.revision, row.changes, [r.attempt for r in row.reservations]) == (1, 2, [("j/t/1", 1)])
    (answer,) = await ledger.commit([reserve("n1", 1, reservation("j/t/2"))])
    assert answer.accepted == (("j/t/2", 1),)


async def test_release_tells_the_nodes_in_ascending_name(ledger: Ledger) -> None:
    await ledger.commit([reserve("n2", 0, reservation("j/t/0", node="n2")), reserve("n1", 0, reservation("j/t/1"))])
    assert [r.node for r in await ledger.release([("j/t/0", 1), ("j/t/1", 1)])] == ["n1", "n2"]


async def test_a_release_asked_again_names_the_node_again(ledger: Ledger) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0"))])
    first = await ledger.release([("j/t/0", 1)])
    assert await ledger.release([("j/t/0", 1)]) == first


@pytest.mark.parametrize("attempt", [1, 2], ids=["older", "the same"])
async def test_an_attempt_that_is_over_is_never_held_again(ledger: Ledger, attempt: int) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0", attempt=2))])
    await ledger.release([("j/t/0", 2)])
    (answer,) = await ledger.commit([reserve("n2", 0, reservation("j/t/0", attempt=attempt, node="n2"))])
    assert [r.reason for r in answer.refused] == [Reason.OLDER_ATTEMPT]
    (answer,) = await ledger.commit([reserve("n2", 0, reservation("j/t/0", attempt=3, node="n2"))])
    assert answer.accepted == (("j/t/0", 3),)


async def test_an_attempt_that_is_over_before_it_was_held_is_refused(ledger: Ledger) -> None:
    assert await ledger.release([("j/t/0", 1)]) == ()
    (answer,) = await ledger.commit([reserve("n1", 0, reservation("j/t/0"))])
    assert [r.reason for r in answer.refused] == [Reason.OLDER_ATTEMPT]


async def test_confirmed_holds_say_so_until_they_are_released(ledger: Ledger) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0"), reservation("j/t/1"))])
    await ledger.confirm([("j/t/1", 1), ("j/t/9", 1)])
    assert (await ledger.rows(["n1"]))[0].confirmed == (("j/t/1", 1),)
    await ledger.release([("j/t/1", 1)])
    (row,) = await ledger.rows(["n1"])
    assert (row.confirmed, [r.attempt for r in row.reservations]) == ((), [("j/t/0", 1)])


async def test_rows_come_in_the_order_asked(ledger: Ledger) -> None:
    await ledger.commit([reserve("n2", 0, reservation("j/t/0", node="n2"))])
    assert [(row.node, row.revision) for row in await ledger.rows(["n3", "n2", "n1"])] == [
        ("n3", 0),
        ("n2", 1),
        ("n1", 0),
    ]


async def test_a_call_above_the_limit_is_refused_and_writes_nothing(ledger: Ledger) -> None:
    many = [reservation(f"j/t/{i}") for i in range(RESERVATIONS_MAX + 1)]
    with pytest.raises(InvalidInput, match="at most 50 reservations"):
        await ledger.commit([reserve("n1", 0, *many)])
    assert (await ledger.rows(["n1"]))[0].reservations == ()


async def test_of_many_schedulers_on_one_revision_exactly_one_wins(ledger: Ledger) -> None:
    calls = [ledger.commit([reserve("n1", 0, reservation(f"j/t/{i}"))]) for i in range(10)]
    answers = [answer for (answer,) in await asyncio.gather(*calls)]
    assert sum(len(answer.accepted) for answer in answers) == 1
    assert all(answer.revision == 1 for answer in answers)


async def test_of_many_schedulers_with_one_attempt_exactly_one_wins(ledger: Ledger) -> None:
    calls = [ledger.commit([reserve(f"n{i}", 0, reservation("j/t/0", node=f"n{i}"))]) for i in range(10)]
    answers = [answer for (answer,) in await asyncio.gather(*calls)]
    assert sum(len(answer.accepted) for answer in answers) == 1
    assert sum(1 for answer in answers for refused in answer.refused if refused.reason is Reason.ALREADY_HELD) == 9


async def test_the_ledger_says_that_it_is_ready(ledger: Ledger) -> None:
    assert await ledger.ready() == ""


class TestRedisAlone:
    async def test_a_field_that_is_no_reservation_is_named(self, redis_url: str) -> None:
        prefix = f"test:{uuid.uuid4().hex}"
        client = redis_client(redis_url, name="test")
        await client.hset(f"{prefix}:node:n1", "h:j/t/0#1", b'{"generation":1}')
        ledger = RedisLedger(client, prefix=prefix)
        with pytest.raises(Refused, match="ledger row n1, field h:j/t/0#1"):
            await ledger.rows(["n1"])
        await ledger.close()

    async def test_more_entries_than_one_call_may_have_are_refused(self, redis_url: str) -> None:
        ledger = RedisLedger.of(redis_url, name="test")
        with pytest.raises(InvalidInput, match="at most 200 entries"):
            await ledger.release([(f"j/t/{i}", 1) for i in range(CALL_MAX + 1)])
        await ledger.close()

    async def test_what_is_over_is_forgotten_by_redis_after_a_day(self, redis_url: str) -> None:
        prefix = f"test:{uuid.uuid4().hex}"
        client = redis_client(redis_url, name="test")
        ledger = RedisLedger(client, prefix=prefix)
        await ledger.release([("j/t/0", 1)])
        assert 86_000 < await client.ttl(f"{prefix}:over:j/t/0") <= 86_400
        await ledger.close()
