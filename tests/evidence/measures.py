"""What is measured of a placement, by a book of its own that believes no scheduler: every place is checked against what is free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from colo_common.model.invalid import InvariantBroken
from tests.evidence.fleets import Fleet
from tests.evidence.mix import Ask
from tests.evidence.placers import Spot

__all__ = ["Book", "Fragments", "Scatter", "pct"]

IntArray = npt.NDArray[np.int64]


def pct(part: float, whole: float) -> float:
    """How many per cent a part is; 0 of nothing."""
    return 100.0 * part / whole if whole else 0.0


class Scatter(NamedTuple):
    """How replicas lie over zones, counted as they are placed. `avoidable`: those in several zones although some zone of the fleet
    had held all of it at that moment.
    """

    replicas: int = 0
    in_one_zone: int = 0
    zones: int = 0
    sockets: int = 0
    avoidable: int = 0

    def less(self, before: Scatter) -> Scatter:
        """What came after `before`."""
        return Scatter(*(now - then for now, then in zip(self, before, strict=True)))


class Fragments(NamedTuple):
    """Free CPU that cannot be used, in per cent of the fleet's CPU.

    `no_class_pct`: on nodes that can take no request class of the mix, by their totals. `expected_pct`: on nodes that cannot take a
    class, mean over the classes as often as each is asked for (the measure of fragmentation gradient descent, ATC'23, of CPU).
    `expected_zone_pct`: the same of zones that cannot take a class each for itself.
    """

    no_class_pct: float
    expected_pct: float
    expected_zone_pct: float


class Book:
    """What is free in each zone of a fleet, and the scatter of what was placed."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        widest = max(machine.zones for machine in fleet.machines)
        self._cpu: IntArray = np.zeros((len(fleet.machines), widest), dtype=np.int64)
        self._memory: IntArray = np.zeros_like(self._cpu)
        for row, machine in enumerate(fleet.machines):
            self._cpu[row, : machine.zones] = machine.zone_mcpu
            self._memory[row, : machine.zones] = machine.zone_bytes
        self._on = [0] * len(fleet.machines)
        self.scatter = Scatter()

    def place(self, ask: Ask, spot: Spot) -> None:
        """Enter a place. Raises InvariantBroken when it is not all of the request, or more than a zone has free."""
        zones = [share.zone for share in spot.shares]
        whole = (sum(share.cpu_mcpu for share in spot.shares), sum(share.memory_bytes for share in spot.shares))
        if whole != (ask.cpu_mcpu, ask.memory_bytes) or len(set(zones)) != len(zones):
            raise InvariantBroken("a place is not what was asked for", ask=ask, spot=spot)
        is_split = len(zones) > 1
        if is_split:
            could = bool(((self._cpu >= ask.cpu_mcpu) & (self._memory >= ask.memory_bytes)).any())
        self._take(spot, 1)
        self._on[spot.machine] += 1
        if (self._cpu[spot.machine] < 0).any() or (self._memory[spot.machine] < 0).any():
            raise InvariantBroken("a zone was given away twice", ask=ask, spot=spot)
        socket = self._fleet.machines[spot.machine].socket_of_zone
        before = self.scatter
        self.scatter = Scatter(
            before.replicas + 1,
            before.in_one_zone + (not is_split),
            before.zones + len(zones),
            before.sockets + len({socket[zone] for zone in zones}),
            before.avoidable + (is_split and could),
        )

    def end(self, spot: Spot) -> None:
        """Take a place out of the book; what was counted stays counted."""
        self._take(spot, -1)
        self._on[spot.machine] -= 1

    def _take(self, spot: Spot, sign: int) -> None:
        for share in spot.shares:
            self._cpu[spot.machine, share.zone] -= sign * share.cpu_mcpu
            self._memory[spot.machine, share.zone] -= sign * share.memory_bytes

    @property
    def nodes_used(self) -> int:
        """Machines that hold something."""
        return sum(count > 0 for count in self._on)

    @property
    def cpu_pct(self) -> float:
        """CPU held."""
        return pct(self._fleet.cpu_mcpu - int(self._cpu.sum()), self._fleet.cpu_mcpu)

    @property
    def memory_pct(self) -> float:
        """Memory held."""
        return pct(self._fleet.memory_bytes - int(self._memory.sum()), self._fleet.memory_bytes)

    def fragments(self, classes: Sequence[tuple[Ask, int]]) -> Fragments:
        """The CPU that the request classes cannot use. `classes`: each with how often it is asked for."""
        node_cpu, node_memory = self._cpu.sum(axis=1), self._memory.sum(axis=1)
        some = np.zeros(node_cpu.shape, dtype=np.bool_)
        in_nodes = in_zones = 0
        for ask, count in classes:
            node_fits = (node_cpu >= ask.cpu_mcpu) & (node_memory >= ask.memory_bytes)
            zone_fits = (self._cpu >= ask.cpu_mcpu) & (self._memory >= ask.memory_bytes)
            some |= node_fits
            in_nodes += count * int(node_cpu[~node_fits].sum())
            in_zones += count * int(self._cpu[~zone_fits].sum())
        whole = self._fleet.cpu_mcpu * sum(count for _, count in classes)
        return Fragments(
            pct(int(node_cpu[~some].sum()), self._fleet.cpu_mcpu), pct(in_nodes, whole), pct(in_zones, whole)
        )
