"""A user of a simulated world asks again until it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from colo_common.events.requests import Refusal
from colo_common.model.invalid import InvariantBroken
from colo_common.ports import Unavailable
from colo_common.runtime.ask import ask
from colo_sim.world_boot import Boot
from colo_sim.world_connection import Connection

__all__ = ["ask_until_done"]

_RETRY_MS: Final = (300, 3_000)


async def ask_until_done(
    body: Struct, boot: Boot, connection: Connection, *, is_done: Callable[[Struct], bool], again: frozenset[int]
) -> None:
    """Ask until the answer means that it is done; a refusal with one of the codes `again` is for a while.

    Raises InvariantBroken for any other refusal.
    """
    while True:
        try:
            answer: Struct | None = await ask(connection, body)
        except Unavailable:
            answer = None
        if answer is not None and is_done(answer):
            return
        if isinstance(answer, Refusal) and answer.code not in again:
            raise InvariantBroken("a good request was refused", body=body, answer=answer)
        await asyncio.sleep(boot.chance.rng.randint(*_RETRY_MS) / 1_000)
