"""Scripts of Redis over a connection of their own: what is asked for at the same moment goes in one write.

A script call is what the services do most. Through the library's client each one takes a connection from the pool, packs its
arguments in Python, sets a timer for each step and gives the connection back; here the connection is kept, arguments are packed in
C and one timer watches over everything that travels together. The server still runs each script as a step of its own, in the order
asked; only one that it does not know yet comes after those that went with it.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import redis.asyncio
from redis.connection import PythonRespSerializer
from redis.exceptions import DataError, NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as TooLate

from colo_common.adapters.redis_client import ANSWER_WITHIN_S

try:
    import hiredis
except ImportError:  # The library's own packing does the same more slowly.
    _PACK: Any = None
else:
    _PACK = hiredis.pack_command

__all__ = ["Argument", "Script", "ScriptCalls"]

Argument = str | bytes | int

# What one timer watches over, and what is lost together when the server is; more callers go in the next write.
_TOGETHER_MAX: Final = 256
_PIECE_BYTES: Final = 6_000


class Script(NamedTuple):
    """A script by its text and the name under which a server keeps it."""

    text: str
    sha: str

    @classmethod
    def of(cls, text: str) -> "Script":
        """Take a script in Lua."""
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


class _Call(NamedTuple):
    script: Script
    packed: bytes
    answer: "asyncio.Future[Any]"


class ScriptCalls:
    """Runs scripts over one connection of the client's pool, taken at the first call and kept until `close`.

    A call that is refused fails alone; where the server is not reached, or does not answer within `within_s`, all that went with it
    fail, and nothing of it is sent again: a compare-and-set would meet its own write. The connection is then closed, so that no
    answer is taken for another's, and the next call makes it anew. What is asked for while others are on their way goes after
    them, so that a caller may wait until the limit of those before its own begins. Whoever is cancelled gets no answer; whether the
    script ran is as unknown as after any answer that was lost.
    """

    def __init__(self, client: redis.asyncio.Redis, *, within_s: float = ANSWER_WITHIN_S) -> None:
        pool: Any = client.connection_pool
        self._pool = pool
        self._within_s = within_s
        self._pack = _packing(pool.get_encoder().encode)
        self._connection: Any = None
        self._kept_timeout_s: float | None = None
        self._waiting: list[_Call] = []
        self._sending: asyncio.Task[None] | None = None

    async def run(self, script: Script, arguments: Sequence[Argument], keys: Sequence[str] = ()) -> Any:
        """What the script answers. Raises what the library raises."""
        packed = self._pack(("EVALSHA", script.sha, len(keys), *keys, *arguments))
        loop = asyncio.get_running_loop()
        call = _Call(script, packed, loop.create_future())
        self._waiting.append(call)
        if self._sending is None:
            # It begins in the next turn of the loop; until then others may join.
            self._sending = loop.create_task(self._send_all())
        return await call.answer

    async def close(self) -> None:
        """Give up what is under way, whose callers are cancelled, and give the connection back."""
        task = self._sending
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if self._sending is task:  # It never began, and has ended nobody's wait.
                self._give_up(())
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.socket_timeout = self._kept_timeout_s
            await connection.disconnect()
            await self._pool.release(connection)

    async def _send_all(self) -> None:
        calls: Sequence[_Call] = ()
        try:
            while self._waiting:
                calls = [call for call in self._waiting[:_TOGETHER_MAX] if not call.answer.done()]
                del self._waiting[:_TOGETHER_MAX]
                if calls:
                    await self._settle(calls)
            self._sending = None
        except BaseException:
            self._give_up(calls)
            raise

    def _give_up(self, calls: Sequence[_Call]) -> None:
        """End every wait; the next call begins anew."""
        for call in (*calls, *self._waiting):
            call.answer.cancel()
        self._waiting.clear()
        self._sending = None

    async def _settle(self, calls: Sequence[_Call]) -> None:
        """Give each call its answer or its error."""
        answers: Sequence[Any]
        try:
            async with asyncio.timeout(self._within_s):
                answers = await self._answers(calls)
        except Exception as error:
            if isinstance(error, TimeoutError):
                error = TooLate(f"no answer within {self._within_s:g} s")
            answers = [error] * len(calls)
        for call, answer in zip(calls, answers, strict=True):
            if call.answer.done():
                continue
            if isinstance(answer, Exception):
                call.answer.set_exception(answer)
            else:
                call.answer.set_result(answer)

    async def _answers(self, calls: Sequence[_Call]) -> list[Any]:
        """An answer or an error of the server's for each call."""
        try:
            connection = await self._connected()
            answers = await _exchange(connection, [call.packed for call in calls])
            unknown = [number for number, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
            if unknown:
                # A server that was started anew, or told to forget: it ran none of these, so they may be sent again.
                texts = {calls[number].script.sha: calls[number].script.text for number in unknown}
                loads = [self._pack(("SCRIPT", "LOAD", text)) for text in texts.values()]
                again = await _exchange(connection, loads + [calls[number].packed for number in unknown])
                loaded = dict(zip(texts, again, strict=False))
                for number, answer in zip(unknown, again[len(loads) :], strict=True):
                    load = loaded[calls[number].script.sha]
                    answers[number] = load if isinstance(load, Exception) else answer
        except BaseException:
            if self._connection is not None:
                # Answers may still be on their way: nobody else may read them.
                await self._connection.disconnect(nowait=True)
            raise
        return answers

    async def _connected(self) -> Any:
        """The connection, made anew where the server has closed it, or has said what nobody asked for."""
        connection = self._connection
        if connection is None:
            connection = self._connection = await self._pool.get_connection()
            # Its limits for each step are not needed under the one for all of them.
            self._kept_timeout_s, connection.socket_timeout = connection.socket_timeout, None
            return connection
        if connection.is_connected and await _is_over(connection):
            await connection.disconnect(nowait=True)
        if not connection.is_connected:
            await connection.connect()
        return connection


async def _is_over(connection: Any) -> bool:
    """Whether no more may be asked, as far as it can be told without a round trip."""
    # Releases of the library before 8 lack the first, or both.
    should_reconnect = getattr(connection, "should_reconnect", None)
    can_read = getattr(connection, "can_read", None) or connection.can_read_destructive
    try:
        return bool((should_reconnect is not None and should_reconnect()) or await can_read())
    except (RedisError, OSError):
        return True


async def _exchange(connection: Any, commands: Sequence[bytes]) -> list[Any]:
    """Send everything, after a ping where the connection was idle for long, then read an answer or an error for each."""
    await connection.send_packed_command(commands[0] if len(commands) == 1 else b"".join(commands))
    answers: list[Any] = []
    for _ in commands:
        try:
            answers.append(await connection.read_response())
        except ResponseError as error:
            answers.append(error)
    return answers


def _packing(encode: Callable[[Any], bytes]) -> Callable[[tuple[Argument, ...]], bytes]:
    """What makes a command of its words. It raises DataError for a word that is none."""
    if _PACK is None:
        serializer: Any = PythonRespSerializer
        pack = serializer(_PIECE_BYTES, encode).pack
        return lambda words: b"".join(pack(*words))
    return _pack_quickly


def _pack_quickly(words: tuple[Argument, ...]) -> bytes:
    try:
        packed: bytes = _PACK(words)
    except TypeError as error:
        raise DataError(str(error)) from error
    return packed
