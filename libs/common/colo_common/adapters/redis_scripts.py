"""Runs Redis scripts in pipelines: calls made at the same moment are sent in one write.

The server runs each script by itself, in the order of the calls; only a script that it does not have yet runs after the others of
its pipeline.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import redis.asyncio
from redis.exceptions import DataError, NoScriptError
from redis.exceptions import TimeoutError as TooLate

from colo_common.adapters.redis_client import ANSWER_WITHIN_S, ask_for_primary

__all__ = ["Argument", "Script", "ScriptCalls"]

Argument = str | bytes | int

# Most calls of one pipeline, which are lost together when the server is. Further calls go in the next one.
_PIPELINE_MAX: Final = 256
# Milliseconds that a server waits for its replicas, and the key written so that a wait covers what was written before.
_REPLICAS_WITHIN_MS: Final = 1_000
_REPLICATED: Final = "colo:v1:replicated"
# The answer of a server whose `min-replicas-to-write` are away.
_NO_REPLICAS: Final = "NOREPLICAS"
_ARGUMENT_TYPES: Final = frozenset({str, bytes, int})


class Script(NamedTuple):
    """A script: its text, and the SHA-1 under which a server keeps it."""

    text: str
    sha: str

    @classmethod
    def of(cls, text: str) -> "Script":
        """The script of a Lua text."""
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


class _Call(NamedTuple):
    script: Script
    keys: Sequence[str]
    arguments: Sequence[Argument]
    answer: "asyncio.Future[Any]"


class ScriptCalls:
    """Runs scripts over a client, one pipeline at a time.

    A call that the server refuses fails alone. Where the server is not reached, or does not answer within `within_s`, all calls of
    the pipeline fail and none is sent again: a compare-and-set would meet its own write. Calls made while a pipeline is in
    flight go in the next one, so a caller may wait for both limits. A cancelled caller gets no answer; whether its script ran is
    unknown, as after a lost answer.

    With `min_replicas` above 0 an answer counts when that many replicas have everything that was written before it (WAIT); with
    fewer after a second, all calls of the pipeline fail as those do whose answer is lost. A server without its replicas may be a
    primary that was replaced: the calls after that ask the sentinels, where there are any.
    """

    def __init__(
        self, client: redis.asyncio.Redis, *, within_s: float = ANSWER_WITHIN_S, min_replicas: int = 0
    ) -> None:
        self._client = client
        self._within_s = within_s
        self._min_replicas = min_replicas
        self._is_behind = False
        self._waiting: list[_Call] = []
        self._sending: asyncio.Task[None] | None = None

    async def run(self, script: Script, arguments: Sequence[Argument], keys: Sequence[str] = ()) -> Any:
        """Run the script; returns its answer. Raises the library's errors, and DataError for an argument of another type."""
        if not _ARGUMENT_TYPES.issuperset(map(type, arguments)):
            raise DataError("an argument of a script must be str, bytes or int")
        loop = asyncio.get_running_loop()
        call = _Call(script, keys, arguments, loop.create_future())
        self._waiting.append(call)
        if self._sending is None:
            # It starts in the next iteration of the event loop; until then other calls may join.
            self._sending = loop.create_task(self._send_all())
        return await call.answer

    async def close(self) -> None:
        """Drop all calls, sent or not; their callers are cancelled."""
        task = self._sending
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if self._sending is task:  # The task never started, so its callers still wait.
                self._cancel_all(())

    async def _send_all(self) -> None:
        calls: Sequence[_Call] = ()
        try:
            while self._waiting:
                calls = [call for call in self._waiting[:_PIPELINE_MAX] if not call.answer.done()]
                del self._waiting[:_PIPELINE_MAX]
                if calls:
                    await self._settle(calls)
            self._sending = None
        except BaseException:
            self._cancel_all(calls)
            raise

    def _cancel_all(self, calls: Sequence[_Call]) -> None:
        """Cancel every waiting caller; the next call starts a new task."""
        for call in (*calls, *self._waiting):
            call.answer.cancel()
        self._waiting.clear()
        self._sending = None

    async def _settle(self, calls: Sequence[_Call]) -> None:
        """Set the answer or the error of each call."""
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
        """Run the calls; returns an answer or an error of the server for each."""
        answers = await self._pipelined(calls)
        unknown = [number for number, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:
            # The server restarted or flushed its scripts: it ran none of these calls, so they may be sent again.
            texts = list(dict.fromkeys(calls[number].script.text for number in unknown))
            again = await self._pipelined([calls[number] for number in unknown], texts)
            loaded = dict(zip(texts, again, strict=False))
            for number, answer in zip(unknown, again[len(texts) :], strict=True):
                load = loaded[calls[number].script.text]
                answers[number] = load if isinstance(load, Exception) else answer
        return answers

    async def _pipelined(self, calls: Sequence[_Call], texts: Sequence[str] = ()) -> list[Any]:
        """Load the texts, then run the calls, in one write; an answer or an error for each."""
        # A WAIT counts replicas from the last write of its own connection on, and a call that only compares writes nothing.
        first = 1 if self._is_behind else 0
        async with self._client.pipeline(transaction=False) as pipe:
            if first:
                pipe.set(_REPLICATED, 1)
            for text in texts:
                pipe.script_load(text)
            for call in calls:
                pipe.evalsha(call.script.sha, len(call.keys), *call.keys, *call.arguments)
            if self._min_replicas:
                pipe.execute_command("WAIT", self._min_replicas, _REPLICAS_WITHIN_MS)
            answers = await pipe.execute(raise_on_error=False)
        if any(isinstance(answer, Exception) and str(answer).startswith(_NO_REPLICAS) for answer in answers):
            await ask_for_primary(self._client)
        if self._min_replicas:
            self._is_behind = True
            await self._check_replicas(answers.pop())
            self._is_behind = False
        return answers[first:]

    async def _check_replicas(self, count: Any) -> None:
        """Raise the server's error, or TooLate when too few replicas have what was written."""
        if isinstance(count, Exception):
            raise count
        if count < self._min_replicas:
            await ask_for_primary(self._client)
            raise TooLate(f"{count} of {self._min_replicas} replicas have the write after {_REPLICAS_WITHIN_MS} ms")
