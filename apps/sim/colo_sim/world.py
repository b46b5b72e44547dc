"""A whole cluster in one thread and in virtual time: the real services, on a bus, a store and machines that suffer faults.

One seed gives one history, to the byte. The world is judged all the time (`Referee`) and at its end (`rest`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from msgspec import Struct

from colo_common.model.invalid import InvariantBroken
from colo_sim.fault_injector import FaultInjector
from colo_sim.quiescence import differences, pending_work
from colo_sim.world_cluster import START_MS, Cluster
from colo_sim.world_process import SimProcess
from colo_sim.world_settings import WorldSettings

__all__ = ["START_MS", "Outcome", "World", "WorldSettings"]

_LOOK_MS: Final = 1_000


class Outcome(Struct, frozen=True, kw_only=True):
    """What a world came to. `events` were done in `simulated_ms`; `judged` says how often the invariant_checker looked at what.

    `reached` counts faults, network_faults, deaths by the step before which they came, and states, transitions and ends that
    were seen.
    """

    seed: int
    digest: str
    events: int
    lines: int
    messages: int
    simulated_ms: int
    judged: dict[str, int]
    reached: dict[str, int]


class World(Cluster):
    """A cluster that lives: `run` to its end. Who lets it live otherwise closes it, best by `with`."""

    def __init__(self, settings: WorldSettings, tell: Callable[[str], None] | None = None) -> None:
        super().__init__(settings, tell)
        for process in (*self.processes(), self.submitter):
            self.event_queue.after(self.rng.randint(0, 2_000), self._begin, process)
        self.fault_injector = FaultInjector(self, settings.faults, may_lose_for_good=settings.seed % 4 == 0)

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, process: SimProcess[Any]) -> None:
        """A node may have lost its power before its processes began."""
        self.fault_injector.revive(process)

    @property
    def elapsed_ms(self) -> int:
        """Time since the beginning."""
        return self.event_queue.now_ms - START_MS

    def run_until(self, elapsed_ms: int) -> None:
        """Live to this moment, counted from the beginning. Raises InvariantBroken for whatever is broken on the way."""
        while self.event_queue.step(START_MS + elapsed_ms):
            pass

    def run(self) -> Outcome:
        """Live until everything is done, and end. Raises InvariantBroken for whatever is broken on the way or never ends."""
        try:
            return self._run()
        finally:
            self.close()

    def close(self) -> None:
        """End what goes on. What was said and what is held can still be looked at."""
        nodes = [process for node in self.nodes.values() for process in node.processes]
        processes = [*self.services, *nodes, self.submitter]
        for process in processes:
            process.close()
        self.event_queue.failure = None
        while not all(process.is_closed for process in processes) and self.event_queue.step(self.event_queue.now_ms):
            pass

    def _run(self) -> Outcome:
        quiet_ms = self.settings.faults.quiet_after_ms
        self.run_until(quiet_ms)
        self.note("settling")
        self._run_while(differences, quiet_ms + self.settings.settle_most_ms, "the views never agree")
        self.note("settled")
        self._run_while(pending_work, self.elapsed_ms + self.settings.rest_most_ms, "the world does not come to rest")
        self.note("at rest")
        return self.outcome()

    def _run_while(self, problems: Callable[[Cluster], list[str]], until_ms: int, message: str) -> None:
        while found := problems(self):
            if self.elapsed_ms >= until_ms:
                raise InvariantBroken(message, found=found[:12], seed=self.settings.seed)
            self.run_until(self.elapsed_ms + _LOOK_MS)

    def outcome(self) -> Outcome:
        """What the world came to so far."""
        return Outcome(
            seed=self.settings.seed,
            digest=self.world_log.digest(),
            events=self.event_queue.done,
            lines=self.world_log.lines,
            messages=self.bus.messages,
            simulated_ms=self.elapsed_ms,
            judged=dict(sorted(self.invariant_checker.counts.items())),
            reached=dict(sorted((self.chance.reached + self.invariant_checker.reached).items())),
        )
