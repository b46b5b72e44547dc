"""The ledger's promises, asked of every implementation alike: in memory and in a real Redis."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from colo_common.adapters.redis_client import redis_client
from colo_common.model.invalid import InvalidInput
from colo_common.model.reasons import Reason
from colo_common.ports import Refused, Unavailable
from colo_scheduler.ledger.memory import MemoryLedger
from colo_scheduler.ledger.port import CALL_MAX, HOLDS_MAX, Hold, Ledger, NodeCommit, NodeRow, encode_hold
from colo_scheduler.ledger.redis import RedisLedger
from tests.support.builders import a_placement


class TimedLedger(MemoryLedger):
    """A ledger in memory with a clock that is set."""

    def __init__(self) -> None:
        self.now = 0
        super().__init__(lambda: self.now)


@asynccontextmanager
async def ledger_of(request: pytest.FixtureRequest, memory: Callable[[], Ledger]) -> AsyncIterator[Ledger]:
    """The ledger that the parameter names: one in memory, or one of a prefix of its own in Redis."""
    if request.param == "memory":
        yield memory()
        return
    url = request.getfixturevalue("redis_url")
    real = RedisLedger(redis_client(url, name="test"), prefix=f"test:{uuid.uuid4().hex}")
    yield real
    await real.close()


@pytest.fixture(params=["memory", "redis"])
async def ledger(request: pytest.FixtureRequest) -> AsyncIterator[Ledger]:
    async with ledger_of(request, TimedLedger) as found:
        yield found


def reservation(replica: str, *, attempt: int = 1, node: str = "n1", generation: int = 1, mcpu: int = 1000) -> Hold:
    return Hold(placement=a_placement(replica, node=node, attempt=attempt, mcpu=mcpu), generation=generation)


def reserve(node: str, expect: int, *reservations: Hold) -> NodeCommit:
    return NodeCommit(node=node, expect=expect, holds=reservations)


async def test_a_node_without_a_row_has_revision_0_and_holds_nothing(ledger: Ledger) -> None:
    (row,) = await ledger.rows(["n1"])
    assert (row.node, row.revision, row.changes, row.holds) == ("n1", 0, 0, ())
    assert dict(await ledger.changes()) == {}


async def test_a_commit_that_was_decided_on_an_earlier_life_of_the_ledger_writes_nothing(ledger: Ledger) -> None:
    compared = await ledger.identity()
    await ledger.commit([reserve("n1", 0, reservation("j/t/0"))], compared=compared)
    for earlier in ("another", f"{compared}0", f"0{compared}"):
        with pytest.raises(Unavailable, match="began again"):
            await ledger.commit([reserve("n1", 1, reservation("j/t/1"))], compared=earlier)
    (row,) = await ledger.rows(["n1"])
    assert [hold.attempt for hold in row.holds] == [("j/t/0", 1)]


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
    assert (row.revision, row.holds, row.confirmed) == (1, (one, two), ())
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
    assert [r.attempt for r in row.holds] == [("j/t/0", 1)]


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


@pytest.mark.parametrize("is_overtaken", [False, True], ids=["one after the other", "another came first"])
async def test_a_chained_call_counts_only_on_what_its_own_scheduler_wrote(ledger: Ledger, is_overtaken: bool) -> None:
    chained = replace(reserve("n1", 1, reservation("j/t/1", generation=2)), is_chained=True)
    if is_overtaken:
        await ledger.commit([reserve("n1", 0, reservation("k/t/0"))], owner="other")
    (first,) = await ledger.commit([reserve("n1", 0, reservation("j/t/0"))], owner="one")
    (second,) = await ledger.commit([chained], owner="one")
    assert first.accepted == (() if is_overtaken else (("j/t/0", 1),))
    assert second.accepted == (() if is_overtaken else (("j/t/1", 1),))
    assert [refused.reason for refused in second.refused] == ([Reason.LEDGER_CONFLICT] if is_overtaken else [])
    (row,) = await ledger.rows(["n1"])
    assert (row.revision, row.unreadable) == (1 if is_overtaken else 2, ())
    # Byte for byte the same call is the same still.
    if not is_overtaken:
        assert await ledger.commit([chained], owner="one") == (second,)


async def test_a_chained_call_is_refused_where_the_last_call_was_not_the_own_one_although_an_earlier_one_was(
    ledger: Ledger,
) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0"))], owner="one")
    await ledger.commit([reserve("n1", 1, reservation("k/t/0", generation=2))], owner="other")
    chained = replace(reserve("n1", 2, reservation("j/t/1", generation=3)), is_chained=True)
    (answer,) = await ledger.commit([chained], owner="one")
    assert [refused.reason for refused in answer.refused] == [Reason.LEDGER_CONFLICT]


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
    assert [(r.reason, r.least, r.held_on) for r in answer.refused] == [(Reason.OLDER_ATTEMPT, 3, "")]


async def test_a_newer_attempt_may_be_held_beside_an_older_one(ledger: Ledger) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0", attempt=1))])
    (answer,) = await ledger.commit([reserve("n2", 0, reservation("j/t/0", attempt=2, node="n2"))])
    assert answer.accepted == (("j/t/0", 2),)
    released = await ledger.release([("j/t/0", 1)])
    assert [(r.node, r.attempts) for r in released] == [("n1", (("j/t/0", 1),))]
    assert [r.attempt for r in (await ledger.rows(["n2"]))[0].holds] == [("j/t/0", 2)]


async def test_release_empties_the_row_and_leaves_the_revision(ledger: Ledger) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0"), reservation("j/t/1"))])
    released = await ledger.release([("j/t/0", 1), ("j/t/7", 1)])
    assert [(r.node, r.changes, r.attempts) for r in released] == [("n1", 2, (("j/t/0", 1),))]
    (row,) = await ledger.rows(["n1"])
    assert (row.revision, row.changes, [r.attempt for r in row.holds]) == (1, 2, [("j/t/1", 1)])
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
    assert [(r.reason, r.least, r.held_on) for r in answer.refused] == [(Reason.OLDER_ATTEMPT, 3, "")]
    (answer,) = await ledger.commit([reserve("n2", 0, reservation("j/t/0", attempt=3, node="n2"))])
    assert answer.accepted == (("j/t/0", 3),)


async def test_an_attempt_that_is_over_before_it_was_held_is_refused(ledger: Ledger) -> None:
    assert await ledger.release([("j/t/0", 1)]) == ()
    (answer,) = await ledger.commit([reserve("n1", 0, reservation("j/t/0"))])
    assert [r.reason for r in answer.refused] == [Reason.OLDER_ATTEMPT]


async def test_what_ended_under_the_number_on_another_node_releases_nothing(ledger: Ledger) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0"), reservation("j/t/1"), reservation("j/t/2"))])
    attempts = [("j/t/0", 1), ("j/t/1", 1), ("j/t/2", 1), ("j/t/3", 1)]
    released = await ledger.release(attempts, ["n2", "n1", "", "n2"])
    assert [(r.node, r.attempts) for r in released] == [("n1", (("j/t/1", 1), ("j/t/2", 1)))]
    (row,) = await ledger.rows(["n1"])
    assert (row.changes, [r.attempt for r in row.holds]) == (3, [("j/t/0", 1)])
    # Nor is it over: a newer attempt is not asked for, and what was lost of it may be put back.
    assert [r.node for r in await ledger.release([("j/t/0", 1)], ["n1"])] == ["n1"]
    # Where nothing is held it is over wherever it ended.
    (answer,) = await ledger.commit([reserve("n1", 1, reservation("j/t/3"))])
    assert [r.reason for r in answer.refused] == [Reason.OLDER_ATTEMPT]


async def test_confirmed_holds_say_so_until_they_are_released(ledger: Ledger) -> None:
    await ledger.commit([reserve("n1", 0, reservation("j/t/0"), reservation("j/t/1"))])
    await ledger.confirm([("j/t/1", 1), ("j/t/9", 1)])
    assert (await ledger.rows(["n1"]))[0].confirmed == (("j/t/1", 1),)
    await ledger.release([("j/t/1", 1)])
    (row,) = await ledger.rows(["n1"])
    assert (row.confirmed, [r.attempt for r in row.holds]) == ((), [("j/t/0", 1)])


async def test_of_an_attempt_that_is_twice_in_a_call_one_is_written(ledger: Ledger) -> None:
    call = [reserve("n1", 0, reservation("j/t/0"), reservation("j/t/0", mcpu=2), reservation("j/t/0", attempt=2))]
    (answer,) = await ledger.commit(call)
    assert answer.accepted == (("j/t/0", 1), ("j/t/0", 2))
    assert [(r.attempt, r.reason, r.held_on) for r in answer.refused] == [(1, Reason.ALREADY_HELD, "n1")]
    (older,) = await ledger.commit(
        [reserve("n2", 0, reservation("j/t/5", attempt=2, node="n2"), reservation("j/t/5", node="n2"))]
    )
    assert (older.accepted, older.refused[0].reason) == ((("j/t/5", 2),), Reason.OLDER_ATTEMPT)


async def test_rows_come_in_the_order_asked(ledger: Ledger) -> None:
    await ledger.commit([reserve("n2", 0, reservation("j/t/0", node="n2"))])
    assert [(row.node, row.revision) for row in await ledger.rows(["n3", "n2", "n1"])] == [
        ("n3", 0),
        ("n2", 1),
        ("n1", 0),
    ]


async def test_a_call_above_the_limit_is_refused_and_writes_nothing(ledger: Ledger) -> None:
    many = [reservation(f"j/t/{i}") for i in range(HOLDS_MAX + 1)]
    with pytest.raises(InvalidInput, match="at most 50 holds"):
        await ledger.commit([reserve("n1", 0, *many)])
    assert (await ledger.rows(["n1"]))[0].holds == ()


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


# ---- shards


async def test_a_commit_under_an_old_fence_gets_nothing(ledger: Ledger) -> None:
    old = await ledger.leases.renew("one", 60_000, 1)
    await ledger.leases.renew("one", 0, 1)
    new = await ledger.leases.renew("two", 60_000, 1)
    (answer,) = await ledger.commit([reserve("n1", 0, reservation("j/t/0"))], old)
    assert [refused.reason for refused in answer.refused] == [Reason.SHARD_LOST]
    assert (await ledger.rows(["n1"]))[0].holds == ()
    (answer,) = await ledger.commit([reserve("n1", 0, reservation("j/t/0"))], new)
    assert answer.accepted == (("j/t/0", 1),)


async def test_a_call_that_was_accepted_is_accepted_again_although_its_shard_was_lost_since(ledger: Ledger) -> None:
    fences = await ledger.leases.renew("one", 60_000, 1)
    call = [reserve("n1", 0, reservation("j/t/0"))]
    await ledger.commit(call, fences)
    await ledger.leases.renew("one", 0, 1)
    (answer,) = await ledger.commit(call, fences)
    assert answer.accepted == (("j/t/0", 1),)


async def test_a_shard_that_nobody_holds_admits_no_fence(ledger: Ledger) -> None:
    (answer,) = await ledger.commit([reserve("n1", 0, reservation("j/t/0"))], [(0, 0)])
    assert [refused.reason for refused in answer.refused] == [Reason.SHARD_LOST]


class TestRedisAlone:
    async def test_what_cannot_be_read_of_a_row_is_told_and_the_rest_of_it_stands(self, redis_url: str) -> None:
        prefix = f"test:{uuid.uuid4().hex}"
        client = redis_client(redis_url, name="test")
        ledger = RedisLedger(client, prefix=prefix)
        good, elsewhere = reservation("j/t/0"), reservation("j/t/9", node="n2")
        await ledger.commit([reserve("n1", 0, good)])
        await client.hset(f"{prefix}:node:n1", "h:j/t/1#1", b'{"generation":1}')
        await client.hset(f"{prefix}:node:n1", "h:j/t/2#1", b"\xff\xfe")
        await client.hset(f"{prefix}:node:n1", "h:j/t/9#1", encode_hold(elsewhere))
        row, other = await ledger.rows(["n1", "n2"])
        assert row.holds == (good,)
        assert [line.split(":", 2)[1] for line in row.unreadable] == ["j/t/1#1", "j/t/2#1", "j/t/9#1"]
        assert row.unreadable[2] == "h:j/t/9#1: holds j/t/9#1 on n2"
        assert other.unreadable == ()
        await ledger.close()

    @pytest.mark.parametrize("broken", ["no hash", "no revision"])
    async def test_a_broken_row_disturbs_no_other_node(self, redis_url: str, broken: str) -> None:
        prefix = f"test:{uuid.uuid4().hex}"
        client = redis_client(redis_url, name="test")
        ledger = RedisLedger(client, prefix=prefix)
        if broken == "no hash":
            await client.set(f"{prefix}:node:n1", b"rubbish")
        else:
            await client.hset(f"{prefix}:node:n1", "rev", b"rubbish")
        await client.hset(f"{prefix}:changes", "n1", b"rubbish")
        row, other = await ledger.rows(["n1", "n2"])
        assert (row.revision, len(row.unreadable), other.unreadable) == (-1, 1, ())
        assert dict(await ledger.changes()) == {"n1": -1}
        first, second = await ledger.commit(
            [reserve("n1", 0, reservation("j/t/0")), reserve("n2", 0, reservation("j/t/1", node="n2"))]
        )
        assert (len(first.refused), len(second.accepted)) == (1, 1)
        assert first.refused[0].reason in (Reason.LEDGER_DISAGREES, Reason.LEDGER_CONFLICT)
        await ledger.close()

    @pytest.mark.parametrize("broken", ["over is a hash", "over is rubbish", "newest is no number"])
    async def test_what_cannot_be_read_of_a_replica_refuses_that_replica_alone(
        self, redis_url: str, broken: str
    ) -> None:
        prefix = f"test:{uuid.uuid4().hex}"
        client = redis_client(redis_url, name="test")
        ledger = RedisLedger(client, prefix=prefix)
        match broken:
            case "over is a hash":
                await client.hset(f"{prefix}:over:j/t/x", "a", b"b")
            case "over is rubbish":
                await client.set(f"{prefix}:over:j/t/x", b"rubbish")
            case _:
                await client.hset(f"{prefix}:newest", "j/t/x", b"rubbish")
        bad = reserve("n2", 0, reservation("j/t/x", node="n2"), reservation("j/t/1", node="n2"))
        first, second, third = await ledger.commit(
            [reserve("n1", 0, reservation("j/t/0")), bad, reserve("n3", 0, reservation("j/t/2", node="n3"))]
        )
        assert (first.accepted, second.accepted, third.accepted) == (
            (("j/t/0", 1),),
            (("j/t/1", 1),),
            (("j/t/2", 1),),
        )
        assert [(r.replica, r.reason) for r in second.refused] == [("j/t/x", Reason.LEDGER_DISAGREES)]
        rows = await ledger.rows(["n1", "n2", "n3"])
        assert [[r.attempt[0] for r in row.holds] for row in rows] == [["j/t/0"], ["j/t/1"], ["j/t/2"]]
        # Its release replaces what cannot be read, and goes on with the others.
        released = await ledger.release([("j/t/0", 1), ("j/t/x", 1), ("j/t/1", 1)])
        assert [(deleted.node, deleted.attempts) for deleted in released] == [
            ("n1", (("j/t/0", 1),)),
            ("n2", (("j/t/1", 1),)),
        ]
        again = reserve("n4", 0, reservation("j/t/x", attempt=2, node="n4"))
        assert (await ledger.commit([again]))[0].accepted == (("j/t/x", 2),)
        assert (await ledger.commit([reserve("n5", 0, reservation("j/t/x", node="n5"))]))[0].refused[0].reason is (
            Reason.OLDER_ATTEMPT
        )
        await ledger.close()

    @pytest.mark.parametrize("index", ["held", "newest"])
    async def test_without_its_index_the_ledger_accepts_nothing_and_writes_nothing(
        self, redis_url: str, index: str
    ) -> None:
        prefix = f"test:{uuid.uuid4().hex}"
        client = redis_client(redis_url, name="test")
        ledger = RedisLedger(client, prefix=prefix)
        await client.set(f"{prefix}:{index}", b"rubbish")
        (answer,) = await ledger.commit([reserve("n1", 0, reservation("j/t/0"), reservation("j/t/1"))])
        assert (answer.revision, answer.changes, answer.accepted) == (0, 0, ())
        assert {refused.reason for refused in answer.refused} == {Reason.LEDGER_DISAGREES}
        assert await client.keys(f"{prefix}:*") == [f"{prefix}:{index}".encode()]
        await ledger.close()

    async def test_nothing_is_released_or_confirmed_while_nobody_can_read_what_is_held(self, redis_url: str) -> None:
        prefix = f"test:{uuid.uuid4().hex}"
        client = redis_client(redis_url, name="test")
        ledger = RedisLedger(client, prefix=prefix)
        await client.set(f"{prefix}:held", b"rubbish")
        with pytest.raises(Refused, match="held"):
            await ledger.release([("j/t/0", 1)])
        with pytest.raises(Refused, match="WRONGTYPE"):
            await ledger.confirm([("j/t/0", 1)])
        assert await client.keys(f"{prefix}:*") == [f"{prefix}:held".encode()]
        await ledger.close()

    async def test_without_counts_of_changes_everything_else_goes_on(self, redis_url: str) -> None:
        prefix = f"test:{uuid.uuid4().hex}"
        client = redis_client(redis_url, name="test")
        ledger = RedisLedger(client, prefix=prefix)
        await client.set(f"{prefix}:changes", b"rubbish")
        (answer,) = await ledger.commit([reserve("n1", 0, reservation("j/t/0"))])
        assert (answer.accepted, answer.changes) == ((("j/t/0", 1),), -1)
        (row,) = await ledger.rows(["n1"])
        assert (len(row.holds), row.changes) == (1, -1)
        (deleted,) = await ledger.release([("j/t/0", 1)])
        assert (deleted.attempts, deleted.changes) == ((("j/t/0", 1),), -1)
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


async def test_rows_that_were_lost_are_put_back_and_what_was_decided_on_them_meanwhile_is_refused(
    ledger: Ledger,
) -> None:
    one, two, over = (reservation(f"j/t/{number}", generation=7) for number in range(3))
    await ledger.release([over.attempt])
    lost = NodeRow(node="n1", revision=7, changes=9, holds=(one, two, over), confirmed=(two.attempt,))
    await ledger.put_back([lost], 5)
    (row,) = await ledger.rows(["n1"])
    assert (row.holds, row.confirmed) == ((one, two), (two.attempt,)), "what is over stays so"
    assert row.revision > 7
    assert row.changes > 9
    assert await ledger.floor() == 5
    (answer,) = await ledger.commit([reserve("n1", 7, reservation("j/t/9", generation=8))])
    assert answer.accepted == ()
    # Another scheduler that knows less, and one that knows more.
    await ledger.put_back([replace(lost, revision=3, changes=3, holds=(one,))], 0)
    assert (await ledger.rows(["n1"]))[0] == row
    await ledger.put_back([replace(lost, holds=(one, reservation("j/t/3", generation=7)))], 0)
    (more,) = await ledger.rows(["n1"])
    assert [hold.attempt for hold in more.holds] == [("j/t/0", 1), ("j/t/1", 1), ("j/t/3", 1)]
    assert more.revision > row.revision
    (answer,) = await ledger.commit([reserve("n2", 5, reservation("j/t/3", node="n2"))])
    assert [refused.reason for refused in answer.refused] == [Reason.ALREADY_HELD]


async def test_a_number_of_a_row_that_was_lost_and_written_anew_counts_for_no_commit_once_the_lost_row_was_put_back(
    ledger: Ledger,
) -> None:
    await ledger.release([("j/t/0", 1)])
    known = NodeRow(node="n1", revision=1, changes=1, holds=(reservation("j/t/0"),))
    await ledger.commit([reserve("n1", 0, reservation("k/t/0"))])
    await ledger.put_back([known], 0)
    (answer,) = await ledger.commit([reserve("n1", 1, reservation("j/t/1"))])
    assert [refused.reason for refused in answer.refused] == [Reason.LEDGER_CONFLICT]
    (row,) = await ledger.rows(["n1"])
    assert [hold.attempt for hold in row.holds] == [("k/t/0", 1)]
    await ledger.put_back([replace(row, holds=(*row.holds, reservation("j/t/0")))], 0)
    assert await ledger.rows(["n1"]) == (row,), "a row that has nothing besides keeps its number"
