"""No answer is taken for another's: callers that leave, servers that end or fall silent, scripts that are forgotten."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import redis.asyncio
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import DataError, ResponseError
from redis.exceptions import TimeoutError as TooLate

from colo_common.adapters.redis_client import redis_client
from colo_common.adapters.redis_scripts import Argument, Script, ScriptCalls
from colo_common.adapters.store_redis import RedisStore
from colo_common.events.effects import Write
from colo_common.ports import PortError, Unavailable
from tests.support.servers import RedisServer, redis_server
from tests.support.waiting import LIMIT_S, eventually

ADD = Script.of("return redis.call('RPUSH', ARGV[1], ARGV[2])")
ECHO = Script.of("return ARGV[1]")
ECHO_ALL = Script.of("return {KEYS, ARGV}")
REFUSE = Script.of("return redis.error_reply('ERR no ' .. ARGV[1])")
PAUSE_MS = 60_000


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of the test's own, in a directory that outlives it."""
    with redis_server(), TemporaryDirectory(prefix="colo-") as folder:  # The first skips where there is no server.
        server = RedisServer(directory=Path(folder))
        server.start_blocking()
        try:
            yield server
        finally:
            server.stop_blocking()


@pytest.fixture
async def client(server: RedisServer) -> AsyncIterator[redis.asyncio.Redis]:
    found = redis_client(server.url, name="test")
    yield found
    await found.aclose()
    await found.connection_pool.disconnect()


async def until_held_up(client: redis.asyncio.Redis) -> None:
    """Wait until a call was sent to the paused server."""

    async def held_up() -> bool:
        return bool((await client.info("clients"))["blocked_clients"])

    await eventually(held_up, "a script that waits for the server")


def kill(server: RedisServer) -> None:
    os.kill(server.pid, signal.SIGKILL)
    server.stop_blocking()


async def test_who_leaves_in_the_middle_of_an_answer_leaves_the_others_theirs(client: redis.asyncio.Redis) -> None:
    calls = ScriptCalls(client, within_s=LIMIT_S)
    await client.client_pause(PAUSE_MS, all=False)
    sent = [asyncio.create_task(calls.run(ECHO, [f"sent {number}"])) for number in range(3)]
    await until_held_up(client)
    later = [asyncio.create_task(calls.run(ECHO, [f"later {number}"])) for number in range(3)]
    await asyncio.sleep(0)
    sent[0].cancel()
    later[1].cancel()
    await client.client_unpause()
    found = await asyncio.gather(*sent, *later, return_exceptions=True)
    assert [type(each) for each in (found[0], found[4])] == [asyncio.CancelledError] * 2
    assert found[1:4] == [b"sent 1", b"sent 2", b"later 0"]
    assert found[5] == b"later 2"
    assert await calls.run(ECHO, ["after"]) == b"after"


async def test_an_answer_that_comes_too_late_is_nobodys(client: redis.asyncio.Redis) -> None:
    calls = ScriptCalls(client, within_s=LIMIT_S)
    assert await calls.run(ECHO, ["before"]) == b"before"
    await client.client_pause(PAUSE_MS, all=False)
    calls._within_s = 0.1
    found = await asyncio.gather(*(calls.run(ECHO, ["late"]) for _ in range(2)), return_exceptions=True)
    assert [type(each) for each in found] == [TooLate] * 2
    calls._within_s = LIMIT_S
    await client.client_unpause()
    assert await asyncio.gather(*(calls.run(ECHO, [str(n)]) for n in range(3))) == [b"0", b"1", b"2"]


async def test_closing_in_the_middle_of_an_answer_cancels_its_callers(client: redis.asyncio.Redis) -> None:
    calls = ScriptCalls(client, within_s=LIMIT_S)
    await client.client_pause(PAUSE_MS, all=False)
    waits = [asyncio.create_task(calls.run(ECHO, ["a"])) for _ in range(2)]
    await until_held_up(client)
    waits.append(asyncio.create_task(calls.run(ECHO, ["b"])))
    await asyncio.sleep(0)
    await calls.close()
    found = await asyncio.gather(*waits, return_exceptions=True)
    assert [type(each) for each in found] == [asyncio.CancelledError] * 3
    await client.client_unpause()
    # The connection went back to the pool, with the limits it had.
    assert await client.ping()
    assert await calls.run(ECHO, ["again"]) == b"again"
    await calls.close()
    connection = await client.connection_pool.get_connection()
    assert connection.socket_timeout == 5.0
    await client.connection_pool.release(connection)


async def test_a_server_that_ends_fails_all_that_went_together_and_gets_nothing_twice(
    server: RedisServer, client: redis.asyncio.Redis
) -> None:
    calls = ScriptCalls(client, within_s=LIMIT_S)
    assert await calls.run(ADD, ["k", "before"]) == 1
    await client.client_pause(PAUSE_MS, all=False)
    waits = [asyncio.create_task(calls.run(ADD, ["k", number])) for number in range(3)]
    await until_held_up(client)
    kill(server)
    found = await asyncio.gather(*waits, return_exceptions=True)
    assert [isinstance(each, NotConnected) for each in found] == [True] * 3
    with pytest.raises(NotConnected):
        await calls.run(ADD, ["k", "away"])
    server.start_blocking()
    # It has lost everything, the script too; what failed is not among what it holds now.
    assert await calls.run(ADD, ["k", "after"]) == 1
    assert await client.lrange("k", 0, -1) == [b"after"]


async def test_a_store_heals_after_its_server_was_killed_and_started_anew(server: RedisServer) -> None:
    store = RedisStore.of(server.url, name="test")
    await store.write([Write(kind="k", id="a", value=b"1", expect=0)])
    kill(server)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await store.write([Write(kind="k", id="a", value=b"2", expect=1)])
    server.start_blocking()
    await store.write([Write(kind="k", id="a", value=b"3", expect=0)])
    kill(server)
    server.start_blocking()
    # The end of the connection was seen meanwhile: before anything is sent, it is made anew.
    await asyncio.sleep(0)
    await store.write([Write(kind="k", id="a", value=b"4", expect=0)])
    await store.close()


async def test_forgotten_scripts_are_loaded_for_the_calls_that_need_them(client: redis.asyncio.Redis) -> None:
    calls = ScriptCalls(client, within_s=LIMIT_S)
    assert await calls.run(ADD, ["k", "0"]) == 1
    await client.script_flush()
    assert await calls.run(ECHO, ["known"]) == b"known"
    found = await asyncio.gather(
        calls.run(ADD, ["k", "1"]),
        calls.run(ECHO, ["echo"]),
        calls.run(REFUSE, ["1"]),
        calls.run(ADD, ["k", "2"]),
        return_exceptions=True,
    )
    assert [str(each) for each in found] == ["2", "b'echo'", "no 1", "3"]
    assert await client.script_exists(ADD.sha, ECHO.sha, REFUSE.sha) == [True, True, True]


async def test_a_script_that_cannot_be_loaded_fails_alone_with_the_servers_sentence(
    client: redis.asyncio.Redis,
) -> None:
    calls = ScriptCalls(client, within_s=LIMIT_S)
    found = await asyncio.gather(calls.run(Script.of("no lua"), []), calls.run(ECHO, ["a"]), return_exceptions=True)
    assert isinstance(found[0], ResponseError)
    assert "compiling" in str(found[0])
    assert found[1] == b"a"


async def test_more_than_travel_together_keep_their_order_over_one_connection(client: redis.asyncio.Redis) -> None:
    calls, key = ScriptCalls(client), uuid.uuid4().hex
    answers = await asyncio.gather(*(calls.run(ADD, [key, number]) for number in range(1_000)))
    assert answers == list(range(1, 1_001))
    assert await client.lrange(key, 0, -1) == [b"%d" % number for number in range(1_000)]
    # It asks over the same one, by the client's name.
    assert [each["name"] for each in await client.client_list()] == ["test"]


async def test_a_connection_that_was_idle_for_long_is_asked_before_it_is_used(client: redis.asyncio.Redis) -> None:
    calls = ScriptCalls(client, within_s=LIMIT_S)
    await calls.run(ECHO, ["a"])
    (kept,) = [each["id"] for each in await client.client_list()]
    before = await client.info("commandstats")
    connection = await client.connection_pool.get_connection()
    connection.next_health_check = 0.0
    await client.connection_pool.release(connection)
    for _ in range(3):
        assert await calls.run(ECHO, ["b"]) == b"b"
    after = await client.info("commandstats")
    for command, more in (("cmdstat_ping", 1), ("cmdstat_evalsha", 3)):
        assert after[command]["calls"] - before[command]["calls"] == more
    assert kept in [each["id"] for each in await client.client_list()]


async def test_an_argument_that_is_none_fails_its_caller_alone(client: redis.asyncio.Redis) -> None:
    calls = ScriptCalls(client, within_s=LIMIT_S)
    wrong: list[Argument] = [None]  # type: ignore[list-item]
    found = await asyncio.gather(calls.run(ECHO, ["a"]), calls.run(ECHO, wrong), return_exceptions=True)
    assert (found[0], type(found[1])) == (b"a", DataError)


async def test_arguments_arrive_as_they_were_given(client: redis.asyncio.Redis) -> None:
    calls = ScriptCalls(client, within_s=LIMIT_S)
    given: list[Argument] = ["", "ä b", b"\r\n\x00\xff", -5, 1 << 62, b"x" * 20_000, "$3\r\nabc", ""]
    keys, arguments = await calls.run(ECHO_ALL, given, keys=("one", "two words"))
    assert keys == [b"one", b"two words"]
    assert arguments == [each if isinstance(each, bytes) else str(each).encode() for each in given]
    await client.script_flush()
    assert await calls.run(ECHO, ["known"]) == b"known"


async def test_a_server_with_a_password_is_written_to_by_who_knows_it(server: RedisServer) -> None:
    admin = redis_client(server.url, name="admin")
    await admin.config_set("requirepass", "secret")
    knows = RedisStore.of(server.url.replace("unix://", "unix://:secret@"), name="knows")
    await knows.write([Write(kind="k", id="a", value=b"1", expect=0)])
    for url in (server.url, server.url.replace("unix://", "unix://:wrong@")):
        stranger = RedisStore.of(url, name="stranger")
        with pytest.raises(PortError):
            await stranger.write([Write(kind="k", id="a", value=b"2", expect=1)])
        await stranger.close()
    await knows.close()
    await admin.connection_pool.disconnect()
