"""A rolling update of a simulated world: some processes begin as another version, and are replaced one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from colo_sim.wire_filter import WireFilter
from colo_sim.world_cluster import SimCluster
from colo_sim.world_process import SimProcess

__all__ = ["RollingUpdate"]

_FIRST_MS: Final = 10_000


class RollingUpdate:
    """`other_versions` processes of the world, drawn from its seed, begin with one of the `versions`, and end without.

    Each is replaced at a moment before the faults end, and one of three is put back to its version and replaced once more. `kill`
    ends a process, which starts again by itself.
    """

    def __init__(
        self, world: SimCluster, versions: Sequence[WireFilter], kill: Callable[[SimProcess[Any]], None]
    ) -> None:
        self._world = world
        self._kill = kill
        # Of its own, so that the history of a world without an update is as it was.
        rng = Random(f"versions of world {world.settings.seed}")
        end_ms = max(world.settings.faults.quiet_after_ms, 2 * _FIRST_MS)
        processes = world.processes()
        for process in rng.sample(processes, min(world.settings.other_versions, len(processes))):
            wire: WireFilter | None = rng.choice(versions)
            self._set(process, wire)
            other = None
            for at_ms in sorted(rng.randint(_FIRST_MS, end_ms) for _ in range(rng.choice((1, 1, 3)))):
                world.event_queue.after(at_ms, self._replace, process, other)
                wire, other = other, wire

    def _replace(self, process: SimProcess[Any], wire: WireFilter | None) -> None:
        self._set(process, wire)
        self._world.chance.reached["versions changed"] += 1
        self._kill(process)

    def _set(self, process: SimProcess[Any], wire: WireFilter | None) -> None:
        """It takes effect at the next start of the process."""
        name = "its own version" if wire is None else type(wire).__name__
        self._world.note(f"{process.key} is to start with {name}")
        if wire is None:
            self._world.wires.pop(process.key, None)
        else:
            self._world.wires[process.key] = wire
