"""Requests between simulated processes: each goes to one responder of its subject, or to all, and is lost when a link is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from colo_common.events.registry import reaches_each
from colo_common.ports import Answerer, Unavailable
from colo_sim.chance import Chance
from colo_sim.event_queue import EventQueue
from colo_sim.world_boot import Boot

__all__ = ["Responder", "RequestRouter"]


class Responder:
    """A process and the subjects that it answers; one that answers `is_alone` receives every request beside others of its kind."""

    def __init__(self, boot: Boot, answerers: Mapping[str, Answerer], *, is_alone: bool = False) -> None:
        self.boot = boot
        self.is_alone = is_alone
        self.answerers = answerers


class RequestRouter:
    """Routes requests to responders, and replies back."""

    def __init__(self, event_queue: EventQueue, chance: Chance) -> None:
        self._event_queue = event_queue
        self._chance = chance
        self._responders: list[Responder] = []

    def add(self, responder: Responder) -> None:
        """Register a responder."""
        self._responders.append(responder)

    def remove(self, responder: Responder) -> None:
        """Remove a responder."""
        self._responders.remove(responder)

    def ask(
        self, asker: Boot, subject: str, data: bytes, headers: Mapping[str, str], answer: asyncio.Future[bytes]
    ) -> None:
        """Send a request; the reply sets `answer`. Raises Unavailable when no running process answers the subject."""
        found = [one for one in self._responders if subject in one.answerers and not one.boot.is_over]
        if not found:
            raise Unavailable(f"nobody answers {subject}")
        if len(found) > 1 and not (reaches_each(subject) or any(one.is_alone for one in found)):
            found = [self._chance.rng.choice(found)]
        for responder in found:
            self._event_queue.after(
                self._chance.latency_ms(), self._arrive, asker, responder, subject, data, headers, answer
            )

    def _arrive(
        self,
        asker: Boot,
        responder: Responder,
        subject: str,
        data: bytes,
        headers: Mapping[str, str],
        answer: asyncio.Future[bytes],
    ) -> None:
        boot = responder.boot
        if not boot.is_over and boot.link.passes_in and asker.link.passes_out:
            boot.note(f"is asked  {subject}")
            boot.spawn(self._answer(asker, boot, responder.answerers[subject], data, headers, answer))

    async def _answer(
        self,
        asker: Boot,
        boot: Boot,
        answerer: Answerer,
        data: bytes,
        headers: Mapping[str, str],
        answer: asyncio.Future[bytes],
    ) -> None:
        body = await answerer(data, headers)
        await boot.step("answer")
        if body and boot.link.passes_out:
            self._event_queue.after(self._chance.latency_ms(), self._deliver_reply, asker, answer, body)

    @staticmethod
    def _deliver_reply(asker: Boot, answer: asyncio.Future[bytes], body: bytes) -> None:
        if not asker.is_over and asker.link.passes_in and not answer.done():
            answer.set_result(body)
