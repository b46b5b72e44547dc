"""A term: the time in which a process alone holds the partitions of its service and runs it. Before, it stands by.

A term that ends because the lease was lost ends like a crash: nothing is recorded or published any more, the inputs go back to the
bus, and the process begins again from what is stored. So nothing of an old view survives in memory.
"""

import asyncio
from collections.abc import Awaitable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

from colo_common.events.effects import Write
from colo_common.events.registry import request_subject
from colo_common.events.status import GetServiceStatus, ServiceStatus
from colo_common.events.wire import decode_reply, encode_request
from colo_common.model.invalid import InvalidInput
from colo_common.model.partition import Fence, partition_of
from colo_common.ports import Bus, Clock, Fenced, FencedStore, PortError, Row, StoreConflict, Survey
from colo_common.runtime.lease_keeper import HeldTerm, LeaseKeeper
from colo_common.runtime.metrics import Metrics, ServiceMetrics
from colo_common.runtime.status import StatusAnswer
from colo_common.runtime.trials import trials_kind

__all__ = ["HeldStore", "ServiceTerm"]

_ASK_S: Final = 0.5
_ASK_EVERY_S: Final = 1.0
#: A holder that is busy, or whose answer is late, still holds: silence counts after the time in which a lost lease moves.
_SILENT_MOST_S: Final = 10.0


class HeldStore:
    """The store of a service with leases: a write names the fences of its partitions, and is refused when they are old.

    With one partition every write names it, and raises Fenced. Where the work is shared, the rows of `kinds` belong to the
    partition of their id, and a write of a row that another instance holds by now is a StoreConflict: its own stay writable.
    What a process notes of itself (`trials_kind`) is no work of the service, and is written whatever it holds.
    """

    def __init__(self, store: FencedStore, service: str, leases: HeldTerm, kinds: Collection[str] = ()) -> None:
        self._store = store
        self._service = service
        self._leases = leases
        self._kinds = frozenset(kinds)
        self._own_kind = trials_kind(service)

    async def get(self, kind: str, id_: str) -> Row | None:
        """See Store.get."""
        return await self._store.get(kind, id_)

    async def load(self, kind: str) -> tuple[Row, ...]:
        """See Store.load."""
        return await self._store.load(kind)

    async def write(self, writes: Sequence[Write]) -> None:
        """See Store.write."""
        if all(write.kind == self._own_kind for write in writes):
            await self._store.write(writes)
            return
        if self._leases.partitions > 1:
            await self._write_shared(writes)
            return
        fences = self._leases.term
        if not fences:
            raise Fenced("no partition is held")
        await self._store.write_fenced(writes, self._service, fences)

    async def _write_shared(self, writes: Sequence[Write]) -> None:
        own = [write for write in writes if write.kind in self._kinds]
        count, held = self._leases.partitions, dict(self._leases.term)
        fences = [(partition, held.get(partition, 0)) for partition in sorted({partition_of(w.id, count) for w in own})]
        if not fences:
            await self._store.write(writes)
            return
        try:
            await self._store.write_fenced(writes, self._service, fences)
        except Fenced as error:
            raise StoreConflict(own[0].kind, own[0].id, own[0].expect, own[0].expect) from error

    async def identity(self) -> str:
        """See Store.identity."""
        return await self._store.identity()

    async def ready(self) -> str:
        """See Store.ready."""
        return await self._store.ready()

    async def close(self) -> None:
        """See Store.close."""
        await self._store.close()


class ServiceTerm:
    """Waits for the partition of a service and watches over it. `lost` raises Fenced when the term is over."""

    def __init__(self, service: str, leases: LeaseKeeper, bus: Bus, survey: Survey, clock: Clock) -> None:
        self.leases = leases
        self._service = service
        self._bus = bus
        self._survey = survey
        self._clock = clock
        self._begun = asyncio.Event()
        self._never = asyncio.Event()
        self._has_holder = False
        self._keeping: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self.lost: asyncio.Future[None] | None = None

    @property
    def is_on(self) -> bool:
        """Whether the term has begun."""
        return self._begun.is_set()

    def problems(self) -> Mapping[str, str]:
        """Why an instance that stands by could not take over, or "": it is ready while another one serves."""
        why = "" if self._has_holder else "nobody holds the work of this service yet"
        return {"leases": self.leases.problem or why}

    async def begin(self, stop: asyncio.Event) -> bool:
        """Stand by until the partition is held; False when `stop` was set before."""
        loop = asyncio.get_running_loop()
        self.lost = loop.create_future()
        self._keeping = loop.create_task(self.leases.run(self._changed, self._never))
        waits = (loop.create_task(self._begun.wait()), loop.create_task(stop.wait()))
        standing_by: asyncio.Task[None] = loop.create_task(self._stand_by())
        try:
            await asyncio.wait((*waits, self._keeping, standing_by), return_when=asyncio.FIRST_COMPLETED)
            if self._keeping.done():
                self._keeping.result()
            if standing_by.done():
                standing_by.result()
        finally:
            for task in (*waits, standing_by):
                task.cancel()
            await asyncio.gather(*waits, standing_by, return_exceptions=True)
        if not stop.is_set():
            self._watching = loop.create_task(self._watch())
        return not stop.is_set()

    async def end(self) -> None:
        """Give the partition up. Called when everything is sent: the lease is renewed until then."""
        tasks = [task for task in (self._keeping, self._watching) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.leases.leave()

    async def _watch(self) -> None:
        """While the store cannot be reached from here, ask on the bus whether it can from elsewhere, and another one took over."""
        while True:
            await asyncio.sleep(max(_ASK_EVERY_S, self.leases.certain_for_s()))
            own = max((fence for _, fence in self.leases.term), default=0)
            if self.leases.is_doubtful and await self._highest_fence() > own:
                self._is_over()

    async def _changed(self, held: tuple[Fence, ...]) -> None:
        if not self._begun.is_set():
            if held:
                self.leases.term = held
                self._begun.set()
        elif held != self.leases.term:
            self._is_over()

    def _is_over(self) -> None:
        if self.lost is not None and not self.lost.done():
            self.lost.set_exception(Fenced("another instance holds the partition"))

    async def _stand_by(self) -> None:
        """Answer how this instance is, and look who serves, until cancelled."""
        status = StatusAnswer(
            self._service,
            self.leases.owner,
            self._clock,
            ServiceMetrics(Metrics(), self._service),
            problems=self._own_problems,
            leases=self.leases,
        )
        loop = asyncio.get_running_loop()
        answering = loop.create_task(self._bus.answer(self._service, status.answerers()))
        answered_s = loop.time() - _SILENT_MOST_S
        try:
            while True:
                if await self._highest_fence() > 0:
                    answered_s = loop.time()
                self._has_holder = loop.time() - answered_s < _SILENT_MOST_S
                await asyncio.sleep(_ASK_EVERY_S)
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    def _own_problems(self) -> Awaitable[Mapping[str, str]]:
        async def found() -> Mapping[str, str]:
            return {**self.problems(), "nats": await self._bus.ready()}

        return found()

    async def _highest_fence(self) -> int:
        """The highest fence under which an instance that answers holds something; 0 when none does."""
        question = GetServiceStatus(service=self._service)
        highest = 0
        with suppress(PortError):
            for data in await self._survey.ask_all(request_subject(question), encode_request(question), _ASK_S):
                with suppress(InvalidInput):
                    answer = decode_reply(GetServiceStatus, data)
                    highest = max(highest, answer.fence if isinstance(answer, ServiceStatus) else 0)
        return highest
