"""Carries out a fault plan: kills processes between two steps, and takes network, power and servers away for a while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from colo_common.model.invalid import InvariantBroken
from colo_common.ports import Row, Unavailable
from colo_scheduler.ledger.memory import MemoryLedger
from colo_sim.faults import NO_NETWORK_FAULTS, FaultKind, FaultPlan
from colo_sim.world_cluster import SimCluster
from colo_sim.world_node import SimNode
from colo_sim.world_process import SimProcess

__all__ = ["FaultInjector"]

_STEPS_MOST: Final = 40
_ARMED_MS: Final = 3_000
_NODES_LEFT: Final = 2
_LOST_MS: Final = 1_000
_PUT_BACK_WITHIN_MS: Final = 10_000
_FORGETS_MS: Final = (500, 5_000, 120_000)
_FOUND_OUT_MS: Final = 10_000
_STEP_MOST_MS: Final = 3_600_000


class FaultInjector:
    """Injects faults into a world by plan. `may_lose_for_good`: one lost node may never come back."""

    def __init__(self, world: SimCluster, plan: FaultPlan, *, may_lose_for_good: bool) -> None:
        self._world = world
        self._plan = plan
        self._may_lose_for_good = may_lose_for_good
        self._spared_until_ms = self._found_again_ms = 0
        self._kinds: list[FaultKind] = [kind for kind, weight in plan.weights for _ in range(weight)]
        self._end_ms = world.event_queue.now_ms + plan.quiet_after_ms
        world.chance.network_faults = plan.network_faults
        world.event_queue.after(plan.quiet_after_ms, self._end_faults)
        self._schedule_fault()

    def _schedule_fault(self) -> None:
        """Schedule the next fault, if its time is before the end of the faults."""
        event_queue = self._world.event_queue
        wait_ms = self._world.rng.randint(*self._plan.every_ms) if self._kinds else 0
        if self._kinds and event_queue.now_ms + wait_ms < self._end_ms:
            event_queue.after(wait_ms, self._inject_random)

    def _inject_random(self) -> None:
        self._inject(self._world.rng.choice(self._kinds))
        self._schedule_fault()

    def _end_faults(self) -> None:
        self._world.chance.network_faults = NO_NETWORK_FAULTS
        self._world.note("faults end")

    def _inject(self, kind: FaultKind) -> None:
        world, rng = self._world, self._world.rng
        world.chance.reached[f"fault {kind}"] += 1
        match kind:
            case "crash-jobs":
                self.kill(self._one_of(world.all_jobs))
            case "crash-scheduler":
                self.kill(self._one_of(world.schedulers))
            case "stop-scheduler":
                self._stop(rng.choice(world.schedulers), self._away_ms())
            case "crash-overcommit":
                self.kill(self._one_of(world.overcommits))
            case "crash-evictor":
                self.kill(self._one_of(world.evictors))
            case "crash-executor":
                self.kill(self._node().executor)
            case "crash-collector":
                self.kill(self._node().collector)
            case "stop-service":
                self._stop(rng.choice(world.services), self._away_ms())
            case "stop-node":
                self._stop(rng.choice(self._node().processes), self._away_ms())
            case "step-clock":
                node = self._node()
                self._step_clock(rng.choice((*world.services, *node.processes)), self._away_ms())
            case "cut-service":
                self._cut((rng.choice(world.services),), self._away_ms())
            case "cut-node":
                self._cut(self._node().processes, self._away_ms())
            case "cut-one-way":
                node = self._node()
                self._cut_one_way(rng.choice((*world.services, *node.processes)), self._away_ms())
            case "lose-node":
                self._lose(self._node())
            case "crash-replica":
                self._crash_replica(self._node())
            case "store-away":
                self._take_store(self._away_ms())
            case "ledger-away":
                self._take_ledger(self._away_ms())
            case "redis-forgets":
                self._lose_redis(world.store.rows(), world.ledger.truth.state(), _LOST_MS)
            case "host-lost":
                dying = (*world.all_jobs, *world.schedulers)
                self._lose_redis(
                    world.store.rows(),
                    world.ledger.truth.state(),
                    _LOST_MS,
                    dying=rng.sample(dying, rng.randint(1, len(dying))),
                )
            case "redis-emptied":
                self._lose_redis({}, MemoryLedger().state(), 0)
            case "streams-forget":
                self._restore_streams(rng.choice(_FORGETS_MS))
            case "tear-journal":
                self._tear_journal(self._node())
            case "move-leases":
                self._move_leases()
            case _:
                raise InvariantBroken("an unknown fault", kind=kind)

    def _one_of(self, processes: Sequence[SimProcess[Any]]) -> SimProcess[Any]:
        return processes[0] if len(processes) == 1 else self._world.rng.choice(processes)

    def _node(self) -> SimNode:
        return self._world.rng.choice(list(self._world.nodes.values()))

    def _away_ms(self) -> int:
        rng = self._world.rng
        most_ms = self._plan.away_most_ms * (10 if rng.randrange(1_000) < self._plan.long_permille else 1)
        return rng.randint(500, most_ms)

    # ------------------------------------------------------------ processes

    def kill(self, process: SimProcess[Any], down_ms: int | None = None) -> None:
        """Kill the process up to 40 steps from now, or after 3 s, and start it again after `down_ms` or a random time."""
        rng, boots = self._world.rng, process.boots
        if process in self._world.services and self._world.event_queue.now_ms < self._spared_until_ms:
            return
        if not process.arm(rng.randint(0, _STEPS_MOST)):
            return
        wait_ms = rng.randint(1, self._plan.down_most_ms) if down_ms is None else down_ms
        process.crashed = lambda: self._world.event_queue.after(wait_ms, self.revive, process)
        self._world.event_queue.after(_ARMED_MS, self._kill_idle, process, boots)

    def replace(self, process: SimProcess[Any]) -> None:
        """Kill the process as soon as it is not spared."""
        left_ms = self._spared_until_ms - self._world.event_queue.now_ms
        if process in self._world.services and left_ms > 0:
            self._world.event_queue.after(left_ms, self.replace, process)
        else:
            self.kill(process)

    def _kill_idle(self, process: SimProcess[Any], boots: int) -> None:
        if process.is_up and process.boots == boots:
            process.crash()
            process.crashed()

    def revive(self, process: SimProcess[Any]) -> None:
        """Start the process, unless it is up or its node has no power."""
        is_off = any(process in node.processes and node.is_off for node in self._world.nodes.values())
        if not process.is_up and not is_off:
            process.start()

    def _stop(self, process: SimProcess[Any], span_ms: int) -> None:
        is_spared = process in self._world.services and self._world.event_queue.now_ms < self._spared_until_ms
        if not process.is_up or process.is_stopped or is_spared:
            return
        process.stop()
        boots = process.boots

        def resume() -> None:
            if process.boots == boots and process.is_stopped:
                process.resume()

        self._world.event_queue.after(span_ms, resume)

    def _step_clock(self, process: SimProcess[Any], span_ms: int) -> None:
        """Set the wall clock of the process's machine wrong, start the process again, and set the clock right after the span."""
        if process.clock.ahead_ms:
            return
        process.clock.ahead_ms = self._world.rng.randint(-_STEP_MOST_MS, _STEP_MOST_MS)
        self._world.invariant_checker.has_set_clocks = True
        self._world.note(f"the clock of {process.key} is set by {process.clock.ahead_ms} ms")
        self.kill(process)

        def set_right() -> None:
            process.clock.ahead_ms = 0
            self._world.note(f"the clock of {process.key} is right again")

        self._world.event_queue.after(_ARMED_MS + self._plan.down_most_ms + span_ms, set_right)

    def _cut_one_way(self, process: SimProcess[Any], span_ms: int) -> None:
        """Cut the link in one direction. A client that hears no answers of its server for ten seconds gives the connection up."""
        if not (process.link.passes_in and process.link.passes_out):
            return
        process.cut_one_way(is_deaf=bool(self._world.rng.randrange(2)))

        def found_out() -> None:
            process.heal_one_way()
            if span_ms > _FOUND_OUT_MS:
                self._cut((process,), span_ms - _FOUND_OUT_MS)

        self._world.event_queue.after(min(span_ms, _FOUND_OUT_MS), found_out)

    def _cut(self, processes: tuple[SimProcess[Any], ...], span_ms: int) -> None:
        if any(process.is_cut for process in processes):
            return
        for process in processes:
            process.cut()
        self._world.event_queue.after(span_ms, self._heal, processes)

    @staticmethod
    def _heal(processes: tuple[SimProcess[Any], ...]) -> None:
        for process in processes:
            process.heal()

    # ------------------------------------------------------------ nodes

    def _lose(self, node: SimNode) -> None:
        if node.is_off:
            return
        world = self._world
        node.advance()
        node.machine.reboot()
        node.is_off = True
        world.note(f"{node.name} loses power")
        for process in node.processes:
            process.crash()
        left = [one for one in world.nodes.values() if not one.is_lost_for_good]
        if self._may_lose_for_good and len(left) > _NODES_LEFT:
            self._may_lose_for_good = False
            node.is_lost_for_good = True
            world.note(f"{node.name} never comes back")
            return
        world.event_queue.after(self._away_ms(), self._power, node)

    def _power(self, node: SimNode) -> None:
        self._world.note(f"{node.name} has power again")
        node.is_off = False
        node.advance()
        for process in node.processes:
            process.start()

    def _tear_journal(self, node: SimNode) -> None:
        """Kill the executor between two steps, and leave a damaged journal to the next one."""
        process = node.executor
        if node.is_off or not process.is_up or process.is_armed:
            return
        self.kill(process)
        revive = process.crashed

        def torn() -> None:
            lost = node.tear_journal(self._world.rng)
            self._world.note(f"the journal of {node.name} lost {lost} entries")
            self._world.chance.reached["journals lost entries"] += lost > 0
            revive()

        process.crashed = torn

    def _crash_replica(self, node: SimNode) -> None:
        if node.is_off:
            return
        running = node.advance().replicas
        if running:
            found = self._world.rng.choice(running)
            self._world.note(f"{found.replica}#{found.attempt} fails")
            node.machine.crash_replica(found.replica)

    # ------------------------------------------------------------ servers

    def _take_store(self, span_ms: int) -> None:
        store = self._world.store
        store.fault = Unavailable("the store is away")
        self._world.note("the store is away")

        def restore() -> None:
            store.fault = None
            self._world.note("the store is back")

        self._world.event_queue.after(span_ms, restore)

    def _take_ledger(self, span_ms: int) -> None:
        ledger = self._world.ledger
        ledger.fault = Unavailable("the ledger is away")
        self._world.note("the ledger is away")

        def restore() -> None:
            ledger.fault = None
            self._world.note("the ledger is back")

        self._world.event_queue.after(span_ms, restore)

    def _lose_redis(
        self,
        rows: Mapping[str, Mapping[str, Row]],
        holds: Mapping[str, Any],
        after_ms: int,
        dying: Sequence[SimProcess[Any]] = (),
    ) -> None:
        """Redis starts again after this time with these rows and holds: the later ones are lost. With it die these services."""
        world = self._world
        if not all(process.is_up and not process.is_stopped and not process.is_armed for process in world.services):
            return
        # Who comes back has to find again what the stream has before the next loss takes that, too.
        if world.event_queue.now_ms < self._found_again_ms:
            return
        # What a service stored that dies before it has put that back is lost with both.
        down_ms = {process: world.rng.randint(1, self._plan.down_most_ms) for process in dying}
        away_ms = max(down_ms.values(), default=0)
        self._spared_until_ms = world.event_queue.now_ms + after_ms + away_ms + _PUT_BACK_WITHIN_MS
        if dying:
            self._found_again_ms = self._spared_until_ms

        def start_again() -> None:
            for process, wait_ms in down_ms.items():
                process.crash()
                world.event_queue.after(wait_ms, self.revive, process)
                world.invariant_checker.has_lost_jobs |= process in world.all_jobs
            world.invariant_checker.has_lost_releases = True
            now = world.store.rows()
            lost = sum(found != rows.get(kind, {}) for kind, found in now.items())
            has_lost_holds = world.ledger.truth.state() != holds
            world.store.lose_since(rows)
            world.ledger.truth.lose_since(holds)
            world.note(f"Redis starts again: rows of {lost} kinds differ")
            world.chance.reached["Redis lost rows"] += lost > 0
            world.chance.reached["Redis lost holds"] += has_lost_holds

        world.event_queue.after(after_ms, start_again)

    def _move_leases(self) -> None:
        """Some leases are gone: whoever held them goes on until it writes or asks again, while another one may get them."""
        world, rng = self._world, self._world.rng
        every = [world.ledger.truth.leases, *world.store.leases.values()]
        lost = sum(leases.lose(rng.getrandbits(16)) for leases in every)
        world.note(f"{lost} leases are gone")
        world.chance.reached["leases were gone"] += lost

    def _restore_streams(self, span_ms: int) -> None:
        """The streams are as they were this long ago, and readers find out that they received what is gone."""
        world = self._world
        lost, found = world.bus.lose_since(world.event_queue.now_ms - span_ms)
        world.note(f"the streams lose {lost} messages")
        world.chance.reached["streams lost messages"] += lost > 0
        world.chance.reached["readers found out"] += found
