"""The CPU sets of batch work: those of its pool that the ceilings leave, for the tier's groups and for each replica's."""

import contextlib
import threading
from collections.abc import Callable
from typing import Final, Literal

from msgspec.structs import replace

from colo_common.events.enforcement import KnobValue, ZoneCeiling
from colo_common.model.cpu_topology import CpuRow
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement
from colo_common.model.qos import QosClass
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.desired import BATCH, MachineFacts, exclusive_batch_cpus, replica_sets
from colo_executor.knob_table import Knob
from colo_executor.order import KnobWrite, cpuset_writes
from colo_executor.suppress_cpus import left_by_zones, narrowed, zones_left

__all__ = ["BatchSets"]

_WAIT_S: Final = 0.05
"""So long the reflex waits for groups that are being made or removed: its next turn must not be late."""


class BatchSets:
    """Writes `cpuset.cpus` of the batch tier. Methods raise CgroupError or OSError; `turn` serialises them, and is held by the
    caller where a method says so.

    `placements` are the replicas by their groups. `is_closed`: rules and LSE work leave batch work no CPU; it keeps the set that it
    has, and no more of it may start. The ceiling of a zone is kept by the set in any case, that of the node
    (`ceiling_mcpu`) where `by` is cpuset. `machine` returns the facts, None before they are read.
    """

    def __init__(
        self,
        tree: CgroupTree,
        by: Literal["quota", "cpuset"],
        machine: Callable[[], MachineFacts | None],
        ceiling_mcpu: Callable[[], int | None],
    ) -> None:
        # A lock of its own: the reflex, which writes quotas, must not wait while the sets of many replicas are rewritten, or while
        # groups are made and removed, for which the kernel has one lock that all containers of the machine share.
        self.turn = threading.Lock()
        self.placements: dict[str, Placement] = {}
        self.pool, self._lent = CpuSet(), CpuSet()
        self.rows: tuple[CpuRow, ...] = ()
        self.cpus = CpuSet()
        self.is_closed = False
        self.zones: tuple[ZoneCeiling, ...] = ()
        self._tree = tree
        self._by = by
        self._machine = machine
        self._ceiling_mcpu = ceiling_mcpu

    @property
    def can_write(self) -> bool:
        """Whether the kernel can keep batch work off CPUs."""
        machine = self._machine()
        return machine is not None and Knob.CPUSET_CPUS in machine.has

    def open(self, cpus: CpuSet, every: CpuSet) -> None:
        """Take these CPUs for the pool; where there are none those that an earlier executor left to batch work, or `every` one."""
        self.is_closed = not cpus
        self.pool = cpus or self._left() & every or every

    def _left(self) -> CpuSet:
        """The CPUs that the kernel shows for the tier."""
        if not self.can_write or not self._tree.exists(BATCH):
            return CpuSet()
        with contextlib.suppress(CgroupError, InvalidInput, OSError):
            return CpuSet.parse(self._tree.value(Knob.CPUSET_CPUS, BATCH), BATCH)
        return CpuSet()

    def narrow(self) -> None:
        """Count with the CPUs that the ceilings leave now; the caller writes them. It holds `turn`."""
        self.cpus = self._narrowed()

    def find(self) -> None:
        """Take the ceilings of zones that an earlier executor left for those that hold.

        Not where the ceiling of the node narrows the set, too: nobody could tell which of them it was.
        """
        self.zones = ()
        if self._by == "quota" and (left := self._left()):
            self.zones = zones_left(left, self.pool, self.rows)

    def others(self, group: str, placement: Placement | None) -> CpuSet:
        """The CPUs that the group's replica leaves to others: those that other batch replicas have alone, and LSR's to LS work.

        CPUs of LSR work are shared with BE work only, so work of the class LS keeps off them also where its band is mid or batch.
        """
        found = self._lent if placement is not None and placement.qos is QosClass.LS else CpuSet()
        for path, placement in self.placements.items():
            if path != group:
                found = found | exclusive_batch_cpus(placement)
        return found

    def set_pool(self, cpus: CpuSet, lent: CpuSet) -> None:
        """Let batch work run on `cpus`, or on those of them that the ceilings leave; `lent` are LSR's. With none it keeps its set.

        Each replica runs on the CPUs of its zones. The writes are in an order that the kernel accepts. After a failure the old sets
        are written back, as far as possible.
        """
        if not cpus:
            self.is_closed = True
            return
        before = self.pool, self._lent, self.is_closed
        self.pool, self._lent, self.is_closed = cpus, lent, False
        keeps_off = any(placement.qos is QosClass.LS for placement in self.placements.copy().values())
        try:
            with self.turn:
                self._follow(is_due=keeps_off and lent != before[1])
        except (CgroupError, OSError):
            self.pool, self._lent, self.is_closed = before
            raise

    def follow_ceiling(self) -> None:
        """Write the sets where the ceiling of the node changes them."""
        if self._by == "cpuset":
            with self.turn:
                self._follow()

    def set_zones(self, zones: tuple[ZoneCeiling, ...]) -> tuple[KnobValue, ...]:
        """Write the sets as these ceilings of zones leave them; the files of the tier's groups, as they were read back.

        Raises CgroupError also when groups are being made or removed for longer than the reflex may wait.
        """
        if zones == self.zones:
            return ()
        if not self.can_write:
            raise CgroupError("the kernel has no CPU sets here")
        if not self.turn.acquire(timeout=_WAIT_S):
            raise CgroupError("groups of batch work are being made or removed")
        try:
            before, self.zones = self.zones, zones
            try:
                return self._follow()
            except (CgroupError, OSError):
                self.zones = before
                raise
        finally:
            self.turn.release()

    def write(self) -> tuple[KnobValue, ...]:
        """Write the sets of the tier's groups and of all replicas, in an order that the kernel accepts. The caller holds `turn`."""
        machine = self._machine()
        if machine is None or Knob.CPUSET_CPUS not in machine.has:
            return ()
        machine = replace(machine, cpus=self.cpus)
        target = {"": self.cpus, BATCH: self.cpus}
        for token in self._tree.children(BATCH):
            group = f"{BATCH}/{token}"
            placement = self.placements.get(group)
            others = self.others(group, placement)
            free = self.cpus - others or self.cpus
            target[group] = free if placement is None else replica_sets(machine, placement, others)[0]
        have = {}
        for path in list(target):
            try:
                have[path] = CpuSet.parse(self._tree.value(Knob.CPUSET_CPUS, path), path)
            except FileNotFoundError:
                # The group of a replica is just being removed.
                del target[path]
        shown: dict[str, KnobValue] = {}
        try:
            for write in cpuset_writes(Knob.CPUSET_CPUS, have, target):
                try:
                    knob = self._tree.write(write)
                except FileNotFoundError:
                    continue
                first = shown.get(write.path, knob)
                shown[write.path] = replace(knob, before=first.before)
        finally:
            for path, cpus in target.items():
                # Kept also where the file had the same value before, so that nothing was written, and what the kernel refused.
                self._tree.keep(KnobWrite(path=path, knob=Knob.CPUSET_CPUS, value=cpus.format()))
        return tuple(shown[path] for path in ("", BATCH) if path in shown)

    def _follow(self, *, is_due: bool = False) -> tuple[KnobValue, ...]:
        """Write the CPUs of batch work where the pool or a ceiling changes them, and where `is_due` says so."""
        before = self.cpus
        self.cpus = self._narrowed()
        if self.cpus == before and not is_due:
            return ()
        try:
            return self.write()
        except (CgroupError, OSError):
            self.cpus = before
            with contextlib.suppress(CgroupError, OSError):
                self.write()
            raise

    def _narrowed(self) -> CpuSet:
        """The CPUs of the pool that the zones leave, or by `by` those of them that the ceiling of the node leaves as well."""
        left = left_by_zones(self.zones, self.pool, self._lent, self.rows)
        ceiling_mcpu = self._ceiling_mcpu()
        if self._by == "quota" or ceiling_mcpu is None:
            return left
        return narrowed(ceiling_mcpu, left, self._lent, self.rows)
