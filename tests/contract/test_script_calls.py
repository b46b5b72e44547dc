"""Scripts that travel together are each a step of their own, with an answer of their own."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
import redis.asyncio
from redis.exceptions import RedisError, ResponseError

from colo_common.adapters.redis_client import redis_client
from colo_common.adapters.redis_scripts import Script, ScriptCalls

ADD_TEXT = "return redis.call('RPUSH', ARGV[1], ARGV[2])"
REFUSE_TEXT = "return redis.error_reply('ERR no ' .. ARGV[1])"
ADD, REFUSE = Script.of(ADD_TEXT), Script.of(REFUSE_TEXT)


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[redis.asyncio.Redis]:
    found = redis_client(redis_url, name="test")
    yield found
    await found.aclose()
    await found.connection_pool.disconnect()


async def test_what_is_asked_for_at_once_is_done_in_that_order_and_answered_to_each(
    client: redis.asyncio.Redis,
) -> None:
    calls, key = ScriptCalls(client), uuid.uuid4().hex
    assert await asyncio.gather(*(calls.run(ADD, [key, number]) for number in range(20))) == list(range(1, 21))
    assert await client.lrange(key, 0, -1) == [str(number).encode() for number in range(20)]


async def test_a_call_that_is_refused_fails_alone(client: redis.asyncio.Redis) -> None:
    calls, key = ScriptCalls(client), uuid.uuid4().hex
    await calls.run(ADD, [key, "first"])
    with pytest.raises(ResponseError):
        await calls.run(REFUSE, ["first"])
    answers = await asyncio.gather(
        calls.run(ADD, [key, "a"]),
        calls.run(REFUSE, ["one"]),
        calls.run(ADD, [key, "b"]),
        calls.run(REFUSE, ["two"]),
        return_exceptions=True,
    )
    assert (answers[0], answers[2]) == (2, 3)
    assert [str(answer) for answer in answers if isinstance(answer, ResponseError)] == ["no one", "no two"]


async def test_scripts_that_the_server_does_not_know_are_brought_along(client: redis.asyncio.Redis) -> None:
    calls, key = ScriptCalls(client), uuid.uuid4().hex
    # Texts that nobody has sent before, as after a restart of the server.
    add, refuse = Script.of(f"{ADD_TEXT} -- {key}"), Script.of(f"{REFUSE_TEXT} -- {key}")
    answers = await asyncio.gather(
        calls.run(add, [key, "a"]), calls.run(refuse, ["one"]), calls.run(add, [key, "b"]), return_exceptions=True
    )
    assert (answers[0], answers[2]) == (1, 2)
    assert str(answers[1]) == "no one"


async def test_who_is_cancelled_before_it_is_sent_leaves_the_others_alone(client: redis.asyncio.Redis) -> None:
    calls, key = ScriptCalls(client), uuid.uuid4().hex
    tasks = [asyncio.create_task(calls.run(ADD, [key, number])) for number in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[1], asyncio.CancelledError)
    assert found[0] == 1
    assert found[2] in (2, 3)
    assert await calls.run(ADD, [key, "after"]) == found[2] + 1


async def test_where_no_server_is_reached_every_call_fails() -> None:
    away = redis_client("unix:///nowhere/redis.sock", name="test")
    calls = ScriptCalls(away)
    for count in (1, 3):
        answers = await asyncio.gather(*(calls.run(ADD, ["k", n]) for n in range(count)), return_exceptions=True)
        assert [isinstance(answer, RedisError | OSError) for answer in answers] == [True] * count
    await away.aclose()


async def test_closing_ends_every_wait(client: redis.asyncio.Redis) -> None:
    calls = ScriptCalls(client)
    slow = Script.of("while redis.call('TIME')[1] < ARGV[1] do end return 1")
    waits = [asyncio.create_task(calls.run(slow, ["0"])) for _ in range(2)]
    await asyncio.sleep(0)
    await calls.close()
    found = await asyncio.gather(*waits, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in found)
