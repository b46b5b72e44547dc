"""A whole cluster in one thread on virtual time: the real service shells, on a simulated bus, store and machines, with faults.

Equal seeds give equal histories, to the byte. Invariants are checked all the time (`InvariantChecker`) and at the end
(`quiescence`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final

from msgspec import Struct

from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_sim.fault_injector import FaultInjector
from colo_sim.quiescence import differences, pending_work
from colo_sim.rolling_update import RollingUpdate
from colo_sim.wire_filter import WireFilter
from colo_sim.world_cluster import START_MS, SimCluster
from colo_sim.world_process import SimProcess
from colo_sim.world_settings import WorldSettings

__all__ = ["START_MS", "OnlineHarm", "Outcome", "World", "WorldSettings"]

_CHECK_EVERY_MS: Final = 1_000


class OnlineHarm(Struct, frozen=True, kw_only=True):
    """What the machines themselves tell of their online work, whatever any service believes; sums over all machines.

    `added_ms` of `node_ms` is the time in which batch work hurt it, `longest_added_ms` the longest of it in one piece.
    """

    node_ms: int = 0
    alone_ms: int = 0
    added_ms: int = 0
    longest_added_ms: int = 0


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of one simulated world: `events` happened in `simulated_ms`; `judged` counts the invariant checks by kind.

    `reached` counts faults, network faults, process deaths by the step that they came before, and the states, transitions and
    end causes that occurred. `moves` counts replicas that were placed on another node than before, and `moves_back` those of them
    that came back within ten minutes to a node that they had left (A -> B -> A).
    """

    seed: int
    digest: str
    events: int
    lines: int
    messages: int
    simulated_ms: int
    judged: dict[str, int]
    reached: dict[str, int]
    online: OnlineHarm = OnlineHarm()
    moves: int = 0
    moves_back: int = 0


class World(SimCluster):
    """A simulated cluster with faults. `run` runs it to its end and closes it; after `run_until` the caller must close it."""

    def __init__(
        self,
        settings: WorldSettings,
        on_line: Callable[[str], None] | None = None,
        versions: Sequence[WireFilter] = (),
    ) -> None:
        """`versions`: what processes of another version say and understand. Raises InvalidInput where that is missing."""
        super().__init__(settings, on_line)
        for process in (*self.processes(), self.submitter):
            self.event_queue.after(self.rng.randint(0, 2_000), self._start_process, process)
        self.fault_injector = FaultInjector(self, settings.faults, may_lose_for_good=settings.seed % 4 == 0)
        if settings.other_versions:
            if not versions:
                raise InvalidInput(
                    "other_versions", "must be 0 where no other version is given", settings.other_versions
                )
            RollingUpdate(self, versions, self.fault_injector.replace)

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start_process(self, process: SimProcess[Any]) -> None:
        """Start the process, unless its node lost power before."""
        self.fault_injector.revive(process)

    @property
    def elapsed_ms(self) -> int:
        """Virtual milliseconds since the start of the world."""
        return self.event_queue.now_ms - START_MS

    def run_until(self, elapsed_ms: int) -> None:
        """Run until this moment, counted from the start. Raises InvariantBroken for the first broken invariant."""
        while self.event_queue.step(START_MS + elapsed_ms):
            pass

    def run(self) -> Outcome:
        """Run until no work is pending, then close. Raises InvariantBroken for a broken invariant, or when work stays pending."""
        try:
            return self._run()
        finally:
            self.close()

    def close(self) -> None:
        """Kill all processes. Messages, store and machines can still be read."""
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
        self._check_machines()
        self.note("settling")
        self._run_while(differences, quiet_ms + self.settings.settle_most_ms, "the views never agree")
        self.note("settled")
        self._run_while(pending_work, self.elapsed_ms + self.settings.quiescence_most_ms, "work stays pending")
        self._check_machines()
        self.note("quiescent")
        return self.outcome()

    def _check_machines(self) -> None:
        for node in self.nodes.values():
            node.advance()
            node.machine.check()

    def _run_while(self, problems: Callable[[SimCluster], list[str]], until_ms: int, message: str) -> None:
        while found := problems(self):
            if self.elapsed_ms >= until_ms:
                raise InvariantBroken(message, found=found[:12], seed=self.settings.seed)
            self.run_until(self.elapsed_ms + _CHECK_EVERY_MS)

    def outcome(self) -> Outcome:
        """The result so far."""
        return Outcome(
            seed=self.settings.seed,
            digest=self.world_log.digest(),
            events=self.event_queue.done,
            lines=self.world_log.lines,
            messages=self.bus.messages,
            simulated_ms=self.elapsed_ms,
            judged=dict(sorted(self.invariant_checker.counts.items())),
            reached=dict(sorted((self.chance.reached + self.invariant_checker.reached).items())),
            online=self._online(),
            moves=self.invariant_checker.moves.count,
            moves_back=self.invariant_checker.moves.back,
        )

    def _online(self) -> OnlineHarm:
        rows = [node.machine.ledger() for node in self.nodes.values()]
        return OnlineHarm(
            node_ms=sum(row.node_ms for row in rows),
            alone_ms=sum(row.alone.harm_ms for row in rows),
            added_ms=sum(row.added_harm_ms for row in rows),
            longest_added_ms=max(row.longest_added_harm_ms for row in rows),
        )
