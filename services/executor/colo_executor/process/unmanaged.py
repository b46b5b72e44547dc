"""Keeps the values that the operator wants in groups that colo did not make; the journal has what they held before."""

from collections.abc import Callable, Mapping, Sequence

from colo_common.events.enforcement import KnobValue
from colo_common.model.invalid import InvalidInput
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.knobs import Knob, holds
from colo_executor.local import Drift
from colo_executor.order import KnobWrite, ordered_writes
from colo_executor.process.reconcile import values_of
from colo_executor.process.systemd_units import SystemdUnits
from colo_executor.unit_properties import property_of, property_path
from colo_executor.unmanaged import UnmanagedGroup, unmanaged_knobs, unmanaged_values

__all__ = ["UnmanagedTier"]

_READ = (Knob.CPU_WEIGHT, Knob.CPU_QUOTA, Knob.CPU_PERIOD, Knob.CPU_BURST, Knob.MEMORY_LIMIT, Knob.CPUSET_CPUS)


class UnmanagedTier:
    """The groups of the operator's policy, each within the tree of its top group, which `open_tree` opens by name.

    A group that is not there is left out until it is. Nothing is ever made, removed or moved here.
    """

    def __init__(
        self,
        groups: Sequence[UnmanagedGroup],
        open_tree: Callable[[str], CgroupTree],
        units: SystemdUnits | None = None,
    ) -> None:
        """`units`: what is written to a group that is a unit of systemd is made a property of the unit, too."""
        self._groups = tuple(groups)
        self._units = units
        self._pending: dict[str, tuple[int, dict[Knob, int | str]]] = {}
        self._trees: dict[str, CgroupTree] = {}
        self._open_tree = open_tree

    def tree_of(self, name: str) -> CgroupTree:
        """The tree of the top group of that name."""
        if name not in self._trees:
            self._trees[name] = self._open_tree(name)
        return self._trees[name]

    def managed(self) -> frozenset[str]:
        """The files that the policy keeps, also of groups that are not there, relative to the cgroup root, and its properties."""
        found: set[str] = set()
        for each in self._groups:
            top, _, group = each.group.partition("/")
            tree, unit = self.tree_of(top), each.group.rpartition("/")[2]
            for knob in unmanaged_knobs(each):
                found |= {tree.path_of(knob, group), property_path(unit, property_of(knob, tree.version))}
        return frozenset(found)

    @property
    def cleared(self) -> tuple[UnmanagedGroup, ...]:
        """The groups that keep off the CPUs which LSE and LSR work has as its own."""
        return tuple(each for each in self._groups if each.clear_of_own_cpus)

    def tell_systemd(self, group: str, version: int, values: Mapping[Knob, int | str]) -> None:
        """Let the next `keep` make these values properties of the unit that owns the group, if one does."""
        if self._units is not None:
            self._pending[group] = (version, {**self._pending.get(group, (version, {}))[1], **values})

    def keep_no_cpus(self, group: str) -> None:
        """Let the next `keep` tell systemd no value of the group's CPUs."""
        if group in self._pending:
            version, values = self._pending[group]
            self._pending[group] = (version, {knob: values[knob] for knob in values if knob is not Knob.CPUSET_CPUS})

    def keep(self, *, observes: bool = False) -> Drift:
        """Write what differs from the policy. Reports the values written, by `observes` those that would be, and each failure."""
        knobs: list[KnobValue] = []
        failed: list[str] = []
        written: list[tuple[str, int, dict[Knob, int | str]]] = []
        for each in self._groups:
            top, _, group = each.group.partition("/")
            try:
                tree = self.tree_of(top)
                if not tree.exists(group):
                    continue
                writes, values = self._writes(tree, group, each, observes=observes)
                for write in writes:
                    knobs.append(tree.observed(write) if observes else tree.write(write))
                values |= {write.knob: write.value for write in writes}
                if values and not observes:
                    written.append((each.group, tree.version, values))
            except FileNotFoundError as error:
                failed.append(f"{each.group}: the kernel has no such file here ({error.filename})")
            except (CgroupError, InvalidInput, OSError, ValueError) as error:
                failed.append(f"{each.group}: {error}")
        failed += [] if observes else self._keep_properties(written)
        return Drift(knobs=tuple(knobs), failed=tuple(failed), observed=observes)

    def _keep_properties(self, written: Sequence[tuple[str, int, dict[Knob, int | str]]]) -> list[str]:
        """Let systemd write the same values at its next reload. What it refused the next call tries again."""
        units = self._units
        if units is None:
            return []
        for group, version, values in written:
            self.tell_systemd(group, version, values)
        for group, (version, values) in list(self._pending.items()):
            try:
                units.keep(group, version, values)
            except CgroupError as error:
                return [f"{group}: is written, and systemd undoes it at its next reload: {error}"]
            # A launch may have given the group other CPUs meanwhile.
            if self._pending.get(group) == (version, values):
                del self._pending[group]
        return []

    def _writes(
        self, tree: CgroupTree, group: str, each: UnmanagedGroup, *, observes: bool
    ) -> tuple[tuple[KnobWrite, ...], dict[Knob, int | str]]:
        """The writes to the group's files, and the values that systemd has to hand a controller down for."""
        have = values_of(tree, group, _READ)
        weight, period_us = have.get(Knob.CPU_WEIGHT), have.get(Knob.CPU_PERIOD)
        target = unmanaged_values(
            each, None if weight is None else int(weight), None if period_us is None else int(period_us)
        )
        only_unit: dict[Knob, int | str] = {}
        for knob, value in list(target.items()):
            if knob not in have:
                if not observes and property_of(knob, tree.version) and self.is_unit(each.group):
                    only_unit[knob] = target.pop(knob)
                    continue
                raise CgroupError(f"cgroup v{tree.version} has no file for {knob.value} there")
            if holds(knob, tree.version, value, have[knob]):
                # Rounded by the kernel, or as it should be.
                target[knob] = have[knob]
        if target.get(Knob.MEMORY_LIMIT) != have.get(Knob.MEMORY_LIMIT) and Knob.MEMORY_LIMIT in target:
            used_bytes = tree.memory_used_bytes(group)
            if used_bytes > each.memory_most_bytes:
                # Under v2 the kernel would end processes of the group at once.
                raise CgroupError(f"uses {used_bytes} bytes, more than memory_most_bytes; nothing is changed there")
        return ordered_writes({group: have}, {group: target}), only_unit

    def is_unit(self, group: str) -> bool:
        """Whether systemd owns the group. Raises CgroupError when it does not answer."""
        return self._units is not None and bool(self._units.unit_of(group))
