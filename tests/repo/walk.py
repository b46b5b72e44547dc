"""The files that one message visits: `python -m tests.repo.walk` sends it to a service in memory and lists every file that ran.

A service runs in virtual time behind a bus, a store and a ledger in memory, put together as its process does. The trace begins when
the message reaches the bus and ends when the bus has the answer; a file counts when a function of it ran. Not counted is what a
service does after every event, whatever its type: the check of the core's invariants and the look at its timers. Leases, questions
to other services and metrics run beside messages and are not started here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Publish
from colo_common.events.fact import Fact
from colo_common.events.job import PlacementsRequested
from colo_common.events.node import AllocatableChanged
from colo_common.events.placement import ApplyPlacements
from colo_common.events.registry import event_of
from colo_common.events.wire import event_at
from colo_common.ports import Outgoing
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.service import Service
from colo_common.runtime.stamp import Stamp
from colo_overcommit.core import OvercommitCore
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.shell import overcommit_service
from colo_scheduler.ledger.memory import MemoryLedger
from colo_scheduler.main import scheduler_service
from colo_scheduler.policy import SchedulerPolicy
from tests.repo.tree import ROOT
from tests.support.builders import GIB, a_node, a_sample, a_topology
from tests.support.bus_memory import MemoryBus
from tests.support.scheduler_story import a_placement_request, an_allocatable
from tests.support.vloop import VirtualClock, run_virtual

__all__ = ["WALKS", "Walk", "of_service", "visited"]

_PRODUCT: Final = tuple(f"{ROOT / folder}/" for folder in ("apps", "libs", "services"))
_AFTER_EVERY_EVENT: Final = ("check", "deadline_ms", "_due", "_follow")
_ANSWER_WITHIN_S: Final = 60
_SETTLE_S: Final = 5


class Walk(NamedTuple):
    """A message on its way through a service: what the service knows before, the message, and the type of its answer."""

    service: Callable[[MemoryBus], Service]
    before: Callable[[int], Sequence[Fact]]
    message: Callable[[int], Fact]
    answer: type[Fact]


class _Trace:
    """The files of the product of which a function was called while the trace was on, in the order of their first calls."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self._not_counted: FrameType | None = None

    @contextmanager
    def on(self) -> Iterator[None]:
        """Trace until the block ends or `end` is called."""
        sys.setprofile(self._note)
        try:
            yield
        finally:
            self.end()

    def end(self) -> None:
        """Trace no more."""
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if self._not_counted is not None:
            if event == "return" and frame is self._not_counted:
                self._not_counted = None
        elif event == "call" and code.co_filename.startswith(_PRODUCT) and code.co_name != "<module>":
            if code.co_name.startswith(_AFTER_EVERY_EVENT) and code.co_filename.endswith("/core.py"):
                self._not_counted = frame
            else:
                self.files[code.co_filename] = None


class _AnsweredBus(MemoryBus):
    """A bus that ends the trace when it has stored an answer of this type."""

    def __init__(self, answer: type[Fact], trace: _Trace) -> None:
        super().__init__()
        self.is_answered = asyncio.Event()
        self._answer = event_of(answer)
        self._trace = trace

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        if any(event_at(message.subject) is self._answer for message in messages):
            self._trace.end()
            self.is_answered.set()
        await super().publish(messages)


def visited(walk: Walk) -> tuple[str, ...]:
    """Return the files of the product of which a function ran, from the root, in the order of their first calls."""
    return run_virtual(_walked(walk))


def of_service(files: Sequence[str]) -> tuple[str, ...]:
    """Return the files that are not shared by all services."""
    return tuple(path for path in files if path.startswith("services/"))


async def _walked(walk: Walk) -> tuple[str, ...]:
    trace, clock, stop = _Trace(), VirtualClock(), asyncio.Event()
    bus, stamp = _AnsweredBus(walk.answer, trace), Stamp("walk", "boot", clock)
    running = asyncio.get_running_loop().create_task(walk.service(bus).run(stop))
    await asyncio.sleep(_SETTLE_S)
    await bus.publish([stamp.outgoing(Publish(fact=fact)) for fact in walk.before(clock.now_ms())])
    await asyncio.sleep(_SETTLE_S)
    bus.is_answered.clear()
    outgoing = stamp.outgoing(Publish(fact=walk.message(clock.now_ms())))
    with trace.on():
        await bus.publish([outgoing])
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            await bus.is_answered.wait()
    stop.set()
    await running
    return tuple(Path(name).relative_to(ROOT).as_posix() for name in trace.files)


def _scheduler(bus: MemoryBus) -> Service:
    service, _ = scheduler_service(
        SchedulerPolicy(),
        MemoryLedger(),
        bus,
        VirtualClock(),
        store=MemoryStore(),
        span=lambda _span: None,
        metrics=Metrics(),
        seed=1,
    )
    return service


def _overcommit(bus: MemoryBus) -> Service:
    return overcommit_service(OvercommitCore(OvercommitPolicy()), bus, VirtualClock(), metrics=Metrics(), seed=1)


WALKS: Final[Mapping[str, Walk]] = {
    "a placement request": Walk(
        _scheduler,
        lambda now_ms: (
            a_node("n1", a_topology(zones_per_socket=1)),
            an_allocatable("n1", [(4000, 8 * GIB)], at_ms=now_ms),
        ),
        lambda _now_ms: PlacementsRequested(placement_requests=(a_placement_request("j/t/0"),)),
        ApplyPlacements,
    ),
    "a sample": Walk(
        _overcommit,
        lambda now_ms: (
            a_node("n1", at_ms=now_ms),
            *(a_sample("n1", seq=seq, at_ms=now_ms + seq) for seq in range(1, 5)),
        ),
        lambda now_ms: a_sample("n1", seq=5, at_ms=now_ms, zones=((9000, 40), (9000, 40))),
        AllocatableChanged,
    ),
}
"""A request for work of the batch band and a node with room for it; a sample that changes what its node offers."""


def main() -> int:
    """Print the files of every walk, those of the service apart from those that all services share."""
    for name, walk in WALKS.items():
        files = visited(walk)
        own = of_service(files)
        shared = [path for path in files if path not in own]
        sys.stdout.write(f"{name}: {len(own)} files of its service, {len(shared)} that all services share\n")
        sys.stdout.writelines(f"    {path}\n" for path in (*own, *shared))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
