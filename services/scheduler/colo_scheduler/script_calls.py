"""Scripts of Redis that travel together: those that are asked for at the same moment go in one pipeline, each with its own answer.

What a scheduler commits, confirms and releases of one round it asks for at once. Sent one by one each takes a connection, system
calls and turns of the loop; together they take those of one, and the server still runs each script as a step of its own, in the
order asked.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import redis.asyncio
from redis.exceptions import NoScriptError

__all__ = ["Argument", "ScriptCalls"]

Argument = str | bytes | int


class _Call(NamedTuple):
    script: Any
    arguments: Sequence[Argument]
    answer: "asyncio.Future[Any]"


class ScriptCalls:
    """Runs scripts of one client. A call that is refused fails alone; where the server is not reached all that went with it fail.

    Whoever is cancelled gets no answer; whether the script ran is as unknown as after any answer that was lost.
    """

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._waiting: list[_Call] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def run(self, script: Any, arguments: Sequence[Argument]) -> Any:
        """What a script that was registered with the client answers. Raises what the library raises."""
        loop = asyncio.get_running_loop()
        call = _Call(script, arguments, loop.create_future())
        self._waiting.append(call)
        if len(self._waiting) == 1:
            # It begins in the next turn of the loop; until then others may join.
            task = loop.create_task(self._send())
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return await call.answer

    async def close(self) -> None:
        """Give up what is under way; who waits for it is cancelled."""
        tasks = tuple(self._sending)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for call in self._waiting:
            call.answer.cancel()
        self._waiting.clear()

    async def _send(self) -> None:
        calls = [call for call in self._waiting if not call.answer.done()]
        self._waiting.clear()
        try:
            answers = await self._answers(calls)
        except asyncio.CancelledError:
            for call in calls:
                call.answer.cancel()
            raise
        except Exception as error:
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
        if len(calls) == 1:
            return [await calls[0].script(args=calls[0].arguments)]
        async with self._client.pipeline(transaction=False) as pipe:
            for call in calls:
                pipe.evalsha(call.script.sha, 0, *call.arguments)
            answers: list[Any] = await pipe.execute(raise_on_error=False)
        for number, answer in enumerate(answers):
            if isinstance(answer, NoScriptError):
                # A server that was started anew: alone, a script brings itself along.
                try:
                    answers[number] = await calls[number].script(args=calls[number].arguments)
                except redis.exceptions.ResponseError as error:
                    answers[number] = error
        return answers
