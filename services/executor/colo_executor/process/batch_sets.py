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
from colo_executor.desired import BATCH, MachineFacts, exclusive_batch_cpus, given_batch_cpus, replica_sets
from colo_executor.knob_table import Knob
from colo_executor.order import KnobWrite, cpuset_writes
from colo_executor.suppress_cpus import left_by_zones, narrowed, threads_of, whole_cores, zones_left
from colo_executor.zone_ceilings import SharedCores

__all__ = ["BatchSets"]

_WAIT_S: Final = 0.05
"""So long the reflex waits for groups that are being made or removed: its next turn must not be late."""


class BatchSets:
    """Writes `cpuset.cpus` of the batch tier. Methods raise CgroupError or OSError; `turn` serialises them, and is held by the
    caller where a method says so.

    `placements` are the replicas by their groups. `is_closed`: rules and LSE work leave batch work no CPU; it keeps the set that it
    has, and no more of it may start. The ceiling of a zone is kept by the set in any case, that of the node
    (`ceiling_mcpu`) where `by` is cpuset, or while batch work keeps to whole cores (`has_whole_cores`). `machine` returns the
    facts, None before they are read. `is_apart`: the kernel lets batch work share no core with online work, whatever the sets say.
    """

    def __init__(
        self,
        tree: CgroupTree,
        by: Literal["quota", "cpuset"],
        machine: Callable[[], MachineFacts | None],
        ceiling_mcpu: Callable[[], int | None],
        is_apart: Callable[[], bool] = lambda: False,
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
        self.has_whole_cores = False
        self._is_apart = is_apart
        self._tree = tree
        self._by = by
        self._machine = machine
        self._ceiling_mcpu = ceiling_mcpu

    @property
    def can_write(self) -> bool:
        """Whether the kernel can keep batch work off CPUs."""
        machine = self._machine()
        return machine is not None and Knob.CPUSET_CPUS in machine.has

    def shared_cores(self) -> SharedCores:
        """How batch work shares cores. Takes no lock: the reflex asks. Where the ceiling of the node is kept by CPUs anyway, and
        where the kernel keeps the two apart, nothing is gained by whole cores.
        """
        if not self.can_write or self._by == "cpuset" or self._is_apart():
            return SharedCores()
        return SharedCores(threads=threads_of(self.pool, self.rows), held=self._held())

    def _held(self) -> frozenset[int]:
        """The zones in which a replica has its only CPUs, or its only zone."""
        found = set()
        for placement in self.placements.copy().values():
            given = given_batch_cpus(placement)
            zones = {row.zone for row in self.rows if row.cpu in given} if given else {s.zone for s in placement.zones}
            if len(zones) == 1:
                found |= zones
        return frozenset(found)

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

    def admit(self, group: str, placement: Placement) -> None:
        """Count with a new replica, before its group is made: others leave it the CPUs that it has alone, and a zone that batch
        work has left gives a CPU to one that can run nowhere else. The caller holds `turn`.
        """
        before, self.placements[group] = self.cpus, placement
        self.narrow()
        if exclusive_batch_cpus(placement) or self.cpus != before:
            self.write()

    def dismiss(self, group: str) -> None:
        """Forget a replica that was not started, and write what others have without it, as far as the kernel takes that. The caller
        holds `turn`.
        """
        del self.placements[group]
        self.narrow()
        with contextlib.suppress(CgroupError, OSError):
            self.write()

    def find(self) -> None:
        """Take the ceilings of zones, or of whole cores, that an earlier executor left for those that hold.

        Not where the ceiling of the node narrows the set in any case: nobody could tell which of them it was. On a machine of one
        zone nothing but whole cores narrows it.
        """
        self.zones, self.has_whole_cores = (), False
        if self._by == "cpuset" or not (left := self._left()) or not self.pool - left:
            return
        self.has_whole_cores = threads_of(self.pool, self.rows) > 1
        is_narrowed = len({row.zone for row in self.rows}) == 1 or self._narrowed() == left & self.pool
        if not (self.has_whole_cores and is_narrowed):
            self.zones, self.has_whole_cores = zones_left(left, self.pool, self.rows), False

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
        if self._by == "cpuset" or self.has_whole_cores:
            with self.turn:
                self._follow()

    def set_zones(self, zones: tuple[ZoneCeiling, ...], *, has_whole_cores: bool = False) -> tuple[KnobValue, ...]:
        """Write the sets as these ceilings of zones leave them, and as many whole cores as the ceiling of the node needs; the files
        of the tier's groups, as they were read back.

        Raises CgroupError also when groups are being made or removed for longer than the reflex may wait.
        """
        if (zones, has_whole_cores) == (self.zones, self.has_whole_cores) and not has_whole_cores:
            return ()
        if not self.can_write:
            raise CgroupError("the kernel has no CPU sets here")
        if not self.turn.acquire(timeout=_WAIT_S):
            raise CgroupError("groups of batch work are being made or removed")
        try:
            before = self.zones, self.has_whole_cores
            self.zones, self.has_whole_cores = zones, has_whole_cores
            try:
                return self._follow()
            except (CgroupError, OSError):
                self.zones, self.has_whole_cores = before
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
        """The CPUs of the pool that the zones leave; of them those that the ceiling of the node leaves as well, by `by` or while
        batch work keeps to whole cores.
        """
        needs_held = self.has_whole_cores or any(not each.ceiling_mcpu for each in self.zones)
        held = self._held() if needs_held else frozenset()
        threads = 1 if self._by == "cpuset" else threads_of(self.pool, self.rows)
        left = left_by_zones(self.zones, self.pool, self._lent, self.rows, held=held, threads=threads)
        ceiling_mcpu = self._ceiling_mcpu()
        if ceiling_mcpu is None:
            return left
        if self._by == "cpuset":
            return narrowed(ceiling_mcpu, left, self._lent, self.rows)
        if not self.has_whole_cores:
            return left
        return whole_cores(ceiling_mcpu, left, self._lent, self.rows, held=held, threads=threads)
