"""Several instances that share the work of a service: each acts on the partitions that it holds, and knows of the others' as well.

An instance that starts hears and learns everything first, and then takes its share. It stops at once to act on the partitions that
it gives up because another instance came. When it would write or publish for a partition that it lost unnoticed, its process ends
like a crash, as a term does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from colo_common.events.registry import request_subject
from colo_common.events.status import GetServiceStatus, ServiceStatus
from colo_common.events.wire import decode_reply, encode_request
from colo_common.model.invalid import InvalidInput
from colo_common.model.partition import Fence, PartitionsHeld
from colo_common.ports import Fenced, PortError, Survey
from colo_common.runtime.lease_keeper import LeaseKeeper

__all__ = ["ServiceShares", "SharingService", "watch_doubtful"]

_ASK_S: Final = 0.5
_ASK_EVERY_S: Final = 1.0
#: A new instance takes its share when it is ready, and after this time anyway.
_LEARNS_MOST_S: Final = 5.0
_LEARNS_STEP_S: Final = 0.1


class SharingService(Protocol):
    """The part of a Service that is told what it holds."""

    async def problems(self) -> Mapping[str, str]:
        """See Service.problems."""
        ...

    async def takes_over(self, held: PartitionsHeld) -> None:
        """See Service.takes_over."""
        ...


class ServiceShares:
    """Keeps the share of one instance until it is cancelled. `run` raises Fenced when another instance has a part of it."""

    def __init__(self, service: str, leases: LeaseKeeper, survey: Survey) -> None:
        self.leases = leases
        self._service = service
        self._survey = survey
        self._never = asyncio.Event()

    def problems(self) -> Mapping[str, str]:
        """Why no share can be had, or ""."""
        return {"leases": self.leases.problem}

    async def run(self, service: SharingService) -> None:
        """Take a share when the service is ready, tell it what it holds whenever that changes, and watch over it."""
        await self._until_learned(service.problems)

        async def changed(held: tuple[Fence, ...]) -> None:
            self.leases.term = held
            await service.takes_over(PartitionsHeld(fences=held))

        loop = asyncio.get_running_loop()
        watching = watch_doubtful(self._service, self.leases, self._survey)
        tasks = [loop.create_task(self.leases.run(changed, self._never)), loop.create_task(watching)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def leave(self) -> None:
        """Give the share up. Called when everything is sent."""
        await self.leases.leave()

    async def _until_learned(self, problems: Callable[[], Awaitable[Mapping[str, str]]]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEARNS_MOST_S):
                # What it still learns comes from many sides, which set no event.
                while any((await problems()).values()):  # noqa: ASYNC110
                    await asyncio.sleep(_LEARNS_STEP_S)


async def watch_doubtful(service: str, leases: LeaseKeeper, survey: Survey) -> None:
    """Raise Fenced when another instance got a part of the share while the store could not be reached; until cancelled."""
    while True:
        await asyncio.sleep(max(_ASK_EVERY_S, leases.certain_for_s()))
        if leases.is_doubtful and await _is_taken(service, leases, survey):
            raise Fenced("another instance holds a part of the work")


async def _is_taken(service: str, leases: LeaseKeeper, survey: Survey) -> bool:
    question = GetServiceStatus(service=service)
    own = dict(leases.term)
    is_taken = False
    with suppress(PortError):
        for data in await survey.ask_all(request_subject(question), encode_request(question), _ASK_S):
            with suppress(InvalidInput):
                answer = decode_reply(GetServiceStatus, data)
                if isinstance(answer, ServiceStatus) and answer.boot_id != leases.owner:
                    is_taken |= any(own.get(each, answer.fence) < answer.fence for each in answer.held)
    return is_taken
