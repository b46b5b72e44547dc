"""Several services of one kind in one process, one for each partition that it holds: such as those of the jobs.

Each begins as a process does, from what is stored, when its partition comes here, and ends like a crash when that is lost: its
inputs go back to the bus, and whoever holds the partition goes on. The others in the process notice nothing.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple

import structlog
from msgspec import Struct

from colo_common.events.registry import request_spec_of
from colo_common.events.requests import Refusal
from colo_common.events.wire import decode_request, encode_reply
from colo_common.model.invalid import InvalidInput
from colo_common.model.partition import Fence, Share, partition_of
from colo_common.ports import Answerer, Bus, Clock, Fenced, Survey
from colo_common.runtime.intake import refusal_of
from colo_common.runtime.lease_keeper import HeldTerm, LeaseKeeper
from colo_common.runtime.metrics import Metrics, ServiceMetrics
from colo_common.runtime.service import Service
from colo_common.runtime.shares import watch_doubtful
from colo_common.runtime.status import StatusAnswer

__all__ = ["HeldPartition", "MakePartitionService", "PartitionService", "PartitionServices"]

_AGAIN_S: Final = 0.5
_LOADS: Final = "is still loading"


class HeldPartition:
    """The HeldTerm of one partition among those that an instance holds."""

    #: Every write names the one fence.
    partitions: Final = 1

    def __init__(self, keeper: LeaseKeeper, fence: Fence) -> None:
        self.share = Share(fence[0], keeper.partitions)
        self._keeper = keeper
        self._fence = fence

    @property
    def term(self) -> tuple[Fence, ...]:
        """See HeldTerm.term."""
        return (self._fence,)

    async def confirm(self) -> None:
        """See HeldTerm.confirm. A process that stood still learns here that the partition is another one's by now."""
        if not self._keeper.is_current:
            await self._keeper.renew()
        if self._fence not in self._keeper.held:
            raise Fenced("another instance holds the partition")

    def fence_of(self, key: str) -> int:
        """See HeldTerm.fence_of."""
        del key
        return self._fence[1]


class PartitionService(NamedTuple):
    """The service of one partition, what runs beside it, and what is called when it has ended."""

    service: Service
    works: Sequence[Coroutine[Any, Any, None]]
    at_end: Callable[[], None]


#: Makes the service of a partition, which neither listens for requests nor answers how it is. Called at each of its starts.
MakePartitionService = Callable[[HeldTerm], PartitionService]


class _Serving:
    """One start of the service of a partition."""

    def __init__(self, fence: Fence, part: PartitionService, answers: Sequence[type[Struct]]) -> None:
        self.fence = fence
        self.part = part
        self.answerers = part.service.answerers(answers)
        self.stop = asyncio.Event()


class PartitionServices:
    """Runs the service of each partition that this instance holds, until `stop` is set; then all shut down within 10 s.

    A request is answered by the holder of its partition: that of its `partition`, or that of its `job`. Every instance receives it,
    and who does not hold the partition leaves it to the others. `run` raises what a service raised, and Fenced when another
    instance got a part of the share while the store could not be reached from here.
    """

    def __init__(
        self,
        name: str,
        keeper: LeaseKeeper,
        *,
        bus: Bus,
        survey: Survey,
        clock: Clock,
        metrics: Metrics,
        answers: Sequence[type[Struct]],
        make: MakePartitionService,
    ) -> None:
        self.name = name
        self._keeper = keeper
        self._bus = bus
        self._survey = survey
        self._answers = tuple(answers)
        self._make = make
        self._serving: dict[int, _Serving] = {}
        # Of all that run, and of those that end for as long as that takes.
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._has_begun = asyncio.Event()
        self._status = StatusAnswer(
            name,
            keeper.owner,
            clock,
            ServiceMetrics(metrics, name),
            problems=self.problems,
            leases=keeper,
        )
        self._log = structlog.get_logger(source="partitions").bind(service=name)

    @property
    def services(self) -> Mapping[int, Service]:
        """The services that run, by partition."""
        return {partition: one.part.service for partition, one in self._serving.items()}

    async def problems(self) -> dict[str, str]:
        """For each part, empty or one sentence that says why it is not ready. An instance that holds nothing stands by."""
        keeper = self._keeper
        waits = "" if keeper.is_current else "has not got its share of the work yet"
        found = {"leases": keeper.problem or waits, "nats": await self._bus.ready()}
        for one in tuple(self._serving.values()):
            for part, problem in (await one.part.service.problems()).items():
                found[part] = found.get(part) or problem
        return found

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        loop = asyncio.get_running_loop()
        answerers = {subject: self._answerer(subject) for subject in self._subjects()}
        works: tuple[Coroutine[Any, Any, None], ...] = (
            self._keeper.run(self._changed, asyncio.Event()),
            watch_doubtful(self.name, self._keeper, self._survey),
            self._bus.answer(self.name, answerers | self._status.answerers()),
        )
        always = [loop.create_task(work) for work in works]
        stopped = loop.create_task(stop.wait())
        try:
            while not stopped.done():
                self._has_begun.clear()
                begun = loop.create_task(self._has_begun.wait())
                done, _ = await asyncio.wait(
                    {stopped, begun, *always, *self._tasks}, return_when=asyncio.FIRST_COMPLETED
                )
                begun.cancel()
                for task in done - {begun}:
                    self._tasks.discard(task)
                    task.result()
            await self._drain()
        finally:
            self._is_stopping = True
            for task in (stopped, *always, *self._tasks):
                task.cancel()
            await asyncio.gather(stopped, *always, *self._tasks, return_exceptions=True)
            await self._keeper.leave()

    async def _drain(self) -> None:
        """Let all services end by themselves; the leases are renewed until then."""
        self._is_stopping = True
        for one in self._serving.values():
            one.stop.set()
        await asyncio.gather(*self._tasks)
        self._serving.clear()

    # ------------------------------------------------------------ partitions

    async def _changed(self, held: tuple[Fence, ...]) -> None:
        self._keeper.term = held
        for partition, one in tuple(self._serving.items()):
            if one.fence not in held:
                del self._serving[partition]
                # Nobody waits for its end: what it would still write is refused.
                one.part.service.end_term()
        for fence in held:
            if fence[0] not in self._serving:
                self._begin(fence)

    def _begin(self, fence: Fence) -> None:
        if self._is_stopping:
            return
        one = _Serving(fence, self._make(HeldPartition(self._keeper, fence)), self._answers)
        self._serving[fence[0]] = one
        task = asyncio.get_running_loop().create_task(self._serve(one), name=f"{self.name}-{fence[0]}")
        self._tasks.add(task)
        self._has_begun.set()

    async def _serve(self, one: _Serving) -> None:
        """Run one start of a service to its end, and begin again when it was fenced and its partition is still held here."""
        loop = asyncio.get_running_loop()
        service = one.part.service
        serving = loop.create_task(service.run(one.stop))
        works = [loop.create_task(work) for work in one.part.works]
        try:
            done, _ = await asyncio.wait({serving, *works}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except Fenced:
            self._log.info("partition-left", partition=one.fence[0])
        finally:
            for task in (serving, *works):
                task.cancel()
            await asyncio.gather(serving, *works, return_exceptions=True)
            one.part.at_end()
        if self._serving.get(one.fence[0]) is not one or self._is_stopping:
            return
        # A store that lost the leases refuses every fence until it was asked again.
        await asyncio.sleep(_AGAIN_S)
        if self._serving.get(one.fence[0]) is not one or self._is_stopping:
            return
        del self._serving[one.fence[0]]
        await self._keeper.renew()
        if one.fence in self._keeper.held and one.fence[0] not in self._serving:
            self._begin(one.fence)

    # ------------------------------------------------------------ requests

    def _subjects(self) -> list[str]:
        return [request_spec_of(body).subject.of() for body in self._answers]

    def _answerer(self, subject: str) -> Answerer:
        count = self._keeper.partitions

        async def answer(data: bytes, headers: Mapping[str, str]) -> bytes:
            try:
                body = decode_request(subject, data)
            except InvalidInput as error:
                return encode_reply(refusal_of(error))
            asked = getattr(body, "partition", None)
            partition = partition_of(getattr(body, "job", ""), count) if asked is None else asked
            if partition >= count:
                rule = f"must be below {count}, the number of partitions"
                return encode_reply(Refusal(code=400, field="partition", rule=rule, got=str(partition)))
            one = self._serving.get(partition)
            if one is None:
                return b""
            if not one.part.service.is_loaded:
                return encode_reply(Refusal(code=503, field="service", rule=_LOADS))
            return await one.answerers[subject](data, headers)

        return answer
