"""Keeps the values that the operator wants in groups that colo did not make; the journal has what they held before."""

from collections.abc import Callable, Sequence

from colo_common.events.enforcement import KnobValue
from colo_common.model.invalid import InvalidInput
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.knobs import Knob, agrees, text_of
from colo_executor.local import Drift
from colo_executor.order import KnobWrite, ordered_writes
from colo_executor.process.reconcile import values_of
from colo_executor.unmanaged import UnmanagedGroup, unmanaged_knobs, unmanaged_values

__all__ = ["UnmanagedTier"]

_READ = (Knob.CPU_WEIGHT, Knob.CPU_QUOTA, Knob.CPU_PERIOD, Knob.CPU_BURST, Knob.MEMORY_LIMIT, Knob.CPUSET_CPUS)


class UnmanagedTier:
    """The groups of the operator's policy, each within the tree of its top group, which `open_tree` opens by name.

    A group that is not there is left out until it is. Nothing is ever made, removed or moved here.
    """

    def __init__(self, groups: Sequence[UnmanagedGroup], open_tree: Callable[[str], CgroupTree]) -> None:
        self._groups = tuple(groups)
        self._trees: dict[str, CgroupTree] = {}
        self._open_tree = open_tree

    def tree_of(self, name: str) -> CgroupTree:
        """The tree of the top group of that name."""
        if name not in self._trees:
            self._trees[name] = self._open_tree(name)
        return self._trees[name]

    def managed(self) -> frozenset[str]:
        """The files that the policy keeps, also of groups that are not there, relative to the cgroup root."""
        found: set[str] = set()
        for each in self._groups:
            top, _, group = each.group.partition("/")
            found.update(self.tree_of(top).path_of(knob, group) for knob in unmanaged_knobs(each))
        return frozenset(found)

    def keep(self, *, observes: bool = False) -> Drift:
        """Write what differs from the policy. Reports the values written, by `observes` those that would be, and each failure."""
        knobs: list[KnobValue] = []
        failed: list[str] = []
        for each in self._groups:
            top, _, group = each.group.partition("/")
            try:
                tree = self.tree_of(top)
                if not tree.exists(group):
                    continue
                for write in self._writes(tree, group, each):
                    knobs.append(tree.observed(write) if observes else tree.write(write))
            except FileNotFoundError as error:
                failed.append(f"{each.group}: the kernel has no such file here ({error.filename})")
            except (CgroupError, InvalidInput, OSError, ValueError) as error:
                failed.append(f"{each.group}: {error}")
        return Drift(knobs=tuple(knobs), failed=tuple(failed), observed=observes)

    @staticmethod
    def _writes(tree: CgroupTree, group: str, each: UnmanagedGroup) -> tuple[KnobWrite, ...]:
        have = values_of(tree, group, _READ)
        weight, period_us = have.get(Knob.CPU_WEIGHT), have.get(Knob.CPU_PERIOD)
        target = unmanaged_values(
            each, None if weight is None else int(weight), None if period_us is None else int(period_us)
        )
        for knob, value in list(target.items()):
            if knob not in have:
                raise CgroupError(f"cgroup v{tree.version} has no file for {knob.value} there")
            wrote, shown = (text_of(knob, tree.version, one) for one in (value, have[knob]))
            if agrees(knob, tree.version, wrote, shown):
                # Rounded by the kernel, or as it should be.
                target[knob] = have[knob]
        if target.get(Knob.MEMORY_LIMIT) != have.get(Knob.MEMORY_LIMIT) and Knob.MEMORY_LIMIT in target:
            used_bytes = tree.memory_used_bytes(group)
            if used_bytes > each.memory_most_bytes:
                # Under v2 the kernel would end processes of the group at once.
                raise CgroupError(f"uses {used_bytes} bytes, more than memory_most_bytes; nothing is changed there")
        return ordered_writes({group: have}, {group: target})
