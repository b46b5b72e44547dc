"""Asks the jobs service which attempts a node has started, in a task of its own, in parts, until the service answers."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final

import structlog
from msgspec import Struct

from colo_common.events.requests import Refusal
from colo_common.events.started import StartedReplicas, StartedReply
from colo_common.model.partition import Share
from colo_common.model.placement import Attempt
from colo_common.ports import Bus, PortError, Unavailable
from colo_common.runtime.ask import ask
from colo_common.runtime.backoff import Backoff
from colo_scheduler.commit.jobs_asked import StartedKnown

__all__ = ["Starts"]

#: The number of attempts in one request: the answer takes the jobs service less than a millisecond.
PART: Final = 500
#: The most attempts that wait for a request. The core asks again for attempts without room, when they are twice as old.
_MOST: Final = 500_000


class Starts:
    """The attempts that wait to be asked for."""

    def __init__(self, bus: Bus, rng: random.Random, part: int = PART) -> None:
        """`part`: the number of attempts in one request."""
        self._part_size = part
        self._bus = bus
        self._backoff = Backoff(rng)
        self._attempts: dict[Attempt, None] = {}
        self._has_some = asyncio.Event()
        self._log = structlog.get_logger("scheduler")

    def ask(self, attempts: Sequence[Attempt]) -> None:
        """Ask for these attempts in their turn; returns at once."""
        self._attempts |= dict.fromkeys(attempts[: max(0, _MOST - len(self._attempts))])
        self._has_some.set()

    async def keep(self, inject: Callable[[Struct], Awaitable[None]]) -> None:
        """Ask, and inject the answers, until cancelled. A part that the jobs service refuses is dropped without an answer."""
        is_away = False
        while True:
            await self._has_some.wait()
            part = tuple(islice(self._attempts, self._part_size))
            try:
                answer = await self._ask_all(part)
            except Unavailable as error:
                if not is_away:
                    self._log.info("starts-not-asked", error=str(error))
                is_away = True
                await asyncio.sleep(self._backoff.next_s())
                continue
            except PortError as error:
                answer = Refusal(code=502, field="attempts", rule=str(error))
            is_away = False
            for attempt in part:
                self._attempts.pop(attempt, None)
            if not self._attempts:
                self._has_some.clear()
            if isinstance(answer, StartedReply):
                self._backoff.reset()
                await inject(StartedKnown(started=answer.started, over=answer.over, waiting=answer.waiting))
            else:
                self._log.warning("starts-refused", attempts=len(part), why=str(answer))
                await asyncio.sleep(self._backoff.next_s())

    async def _ask_all(self, part: Sequence[Attempt]) -> Struct:
        """The answer of all partitions of the jobs, each about its own; one that refuses, refuses all. Raises as `ask` does."""
        first = await ask(self._bus, StartedReplicas(attempts=tuple(part)))
        if not isinstance(first, StartedReply) or first.partitions == 1:
            return first
        found = first
        for partition in range(1, first.partitions):
            share = Share(partition, first.partitions)
            own = tuple(attempt for attempt in part if share.owns(attempt[0].split("/", 1)[0]))
            answer = await ask(self._bus, StartedReplicas(attempts=own, partition=partition)) if own else None
            if answer is not None and not isinstance(answer, StartedReply):
                return answer
            if answer is not None:
                found = StartedReply(
                    started=found.started + answer.started,
                    over=found.over + answer.over,
                    waiting=found.waiting + answer.waiting,
                )
        return found
