"""Keeps the values that the operator wants in groups that colo did not make; the journal has what they held before."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from colo_common.events.enforcement import KnobValue, LikelyWriter
from colo_common.model.invalid import InvalidInput
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.drift_writers import asked_unit, writer_by_property
from colo_executor.group_pattern import is_pattern
from colo_executor.knob_table import Knob
from colo_executor.knobs import holds, value_of
from colo_executor.local import Drift
from colo_executor.order import KnobWrite, ordered_writes
from colo_executor.process.matching_groups import matching_groups
from colo_executor.process.reconcile import values_of
from colo_executor.process.systemd_units import SystemdUnits
from colo_executor.unit_properties import property_of, property_path
from colo_executor.unmanaged import (
    PROTECTION,
    UnmanagedGroup,
    unmanaged_knobs,
    unmanaged_values,
    with_better,
    with_groups_above,
)

__all__ = ["UnmanagedTier"]

_READ: Final = (
    Knob.CPU_WEIGHT,
    Knob.CPU_BVT,
    Knob.CPU_QUOTA,
    Knob.CPU_PERIOD,
    Knob.CPU_BURST,
    Knob.MEMORY_LIMIT,
    *PROTECTION,
    Knob.CPUSET_CPUS,
)
_MATCHES_MOST: Final = 256
"""So many groups one pattern may keep; a kubelet runs about as many pods."""
_SEEN_MOST: Final = 65_536
_ASKED_MOST: Final = 20
"""Of so many changed files a look asks systemd who wrote them; each takes some ten milliseconds."""


class UnmanagedTier:
    """The groups of the operator's policy, each within the tree of its top group, which `open_tree` opens by name.

    A group that is not there is left out until it is, also one that a pattern stands for. A group that is named counts before a
    pattern that stands for it, and an earlier pattern before a later one. Nothing is ever made, removed or moved here.
    """

    def __init__(
        self,
        groups: Sequence[UnmanagedGroup],
        open_tree: Callable[[str], CgroupTree],
        units: SystemdUnits | None = None,
        old_value: Callable[[str], str | None] = lambda path: None,
        *,
        is_observed: bool = False,
    ) -> None:
        """`units`: what is written to a group that is a unit of systemd is made a property of the unit, too.

        `old_value` is what a file held before colo changed it, None where it did not. `is_observed`: what the policy says is told
        and not written; what attached work needs is written all the same.
        """
        self.is_observed = is_observed
        self._groups = tuple(groups)
        self.attached: dict[str, UnmanagedGroup] = {}
        """By token what is kept in groups that replicas are attached to; each counts before what the policy says of the group."""
        self._units = units
        self._pending: dict[str, tuple[int, dict[Knob, int | str]]] = {}
        self._trees: dict[str, CgroupTree] = {}
        self._open_tree = open_tree
        self._old_value = old_value

    def tree_of(self, name: str) -> CgroupTree:
        """The tree of the top group of that name."""
        if name not in self._trees:
            self._trees[name] = self._open_tree(name)
        return self._trees[name]

    def managed(self) -> frozenset[str]:
        """The files below the cgroup root and the properties that the policy keeps, also of named groups that are not there.

        Raises CgroupError for a pattern whose groups cannot be told.
        """
        found: set[str] = set()
        there, failed = self._there(_SEEN_MOST)
        if failed:
            raise CgroupError("; ".join(failed))
        named = (each for each in self._groups if not is_pattern(each.group))
        for each in (*named, *self.attached.copy().values(), *with_groups_above(there)):
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

    def forget(self, group: str) -> None:
        """Let the next `keep` tell systemd nothing of the group, unless it is written again."""
        self._pending.pop(group, None)

    def keep_no_cpus(self, group: str) -> None:
        """Let the next `keep` tell systemd no value of the group's CPUs."""
        if group in self._pending:
            version, values = self._pending[group]
            self._pending[group] = (version, {knob: values[knob] for knob in values if knob is not Knob.CPUSET_CPUS})

    def keep(self, *, observes: bool = False, only: str = "", yields: Collection[str] = ()) -> Drift:
        """Write what differs from the policy. Reports the values written, by `observes` those that would be, and each failure.

        `only`: in this group and, for the memory that it protects, in those above it. The groups `yields` are left as they are.
        Where the policy is only observed, what it would write is withheld.
        """
        there, failed = self._there(_MATCHES_MOST)
        if observes or not self.is_observed:
            return self._keep(there, failed, observes=observes, only=only, yields=yields)
        there_attached, failed_attached = self._there(_MATCHES_MOST, has_policy=False)
        done = self._keep(there_attached, failed_attached, observes=False, only=only, yields=yields)
        if only:
            return done
        would = self._keep(there, failed, observes=True, yields=yields)
        return replace(done, failed=tuple(dict.fromkeys((*done.failed, *would.failed))), withheld=would.knobs)

    def _keep(
        self,
        there: Sequence[UnmanagedGroup],
        failed: list[str],
        *,
        observes: bool,
        only: str = "",
        yields: Collection[str] = (),
    ) -> Drift:
        knobs: list[KnobValue] = []
        changed: list[KnobValue] = []
        written: list[tuple[str, int, dict[Knob, int | str]]] = []
        failed = [] if only else list(failed)
        for tree in self._trees.values():
            # What was given back, or belonged to a group that is gone, may have another old value by now.
            tree.note_again(lambda path: self._old_value(path) is not None)
        left = [each for each in with_groups_above(there) if each.group not in yields and _is_asked(each.group, only)]
        refused: dict[str, str] = {}
        while left:
            refused = {}
            for each in left:
                top, _, group = each.group.partition("/")
                try:
                    tree = self.tree_of(top)
                    if not tree.exists(group):
                        continue
                    writes, values, lacking = self._writes(tree, group, each, observes=observes)
                    failed += lacking
                    for write in writes:
                        is_again = self._old_value(tree.path_of(write.knob, group)) is not None
                        knobs.append(tree.observed(write) if observes else tree.write(write))
                        changed += knobs[-1:] if is_again else ()
                    values |= {write.knob: write.value for write in writes}
                    if values and not observes:
                        written.append((each.group, tree.version, values))
                except FileNotFoundError as error:
                    if tree.exists(group):
                        refused[each.group] = f"{each.group}: the kernel has no such file here ({error.filename})"
                except (CgroupError, InvalidInput, OSError, ValueError) as error:
                    refused[each.group] = f"{each.group}: {error}"
            if observes or len(refused) == len(left):
                break
            # Under v1 a group's quota and CPUs lie within those of the group above, which may have been written after it.
            left = [each for each in left if each.group in refused]
        failed = list(dict.fromkeys((*failed, *refused.values())))
        # Before the properties are set, which then say nothing of who wrote.
        writers = () if only else self.writers(changed)
        failed += [] if observes else self._keep_properties(written, only)
        return Drift(knobs=tuple(knobs), failed=tuple(failed), observed=observes, writers=writers)

    def writers(self, changed: Iterable[KnobValue]) -> tuple[LikelyWriter, ...]:
        """Who wrote to these files of groups of others after colo did, where a property of the group's unit tells."""
        found: list[LikelyWriter] = []
        for change in islice(changed, _ASKED_MOST if self._units is not None else 0):
            asked = asked_unit(change.path)
            if asked is None or self._units is None:
                continue
            group, knob = asked
            try:
                has = self._units.has(group, property_of(knob, 2))
            except CgroupError:
                # A systemd that does not answer is not waited for once a file.
                break
            writer = None if has is None else writer_by_property(knob, change, group.rpartition("/")[2], has)
            found += [] if writer is None else [writer]
        return tuple(found)

    def _there(self, most: int, *, has_policy: bool = True) -> tuple[list[UnmanagedGroup], list[str]]:
        """What is kept in which of the groups that there are, and a sentence for each entry of which that cannot be told."""
        found: dict[str, UnmanagedGroup] = {}
        failed: list[str] = []
        attached = {each.group: each for each in self.attached.copy().values()}
        policy = self._groups if has_policy else ()
        for each in sorted((*attached.values(), *policy), key=lambda each: is_pattern(each.group)):
            top, _, path = each.group.partition("/")
            try:
                groups = matching_groups(self.tree_of(top), path, most)
            except (CgroupError, OSError) as error:
                failed.append(f"{each.group}: {error}")
                continue
            for group in groups:
                name = f"{top}/{group}" if group else top
                first = found.setdefault(name, replace(each, group=name))
                if name in attached and first is not each:
                    found[name] = with_better(first, each)
        return list(found.values()), failed

    def _keep_properties(self, written: Sequence[tuple[str, int, dict[Knob, int | str]]], only: str) -> list[str]:
        """Let systemd write the same values at its next reload. What it refused the next call tries again."""
        units = self._units
        if units is None:
            return []
        for group, version, values in written:
            self.tell_systemd(group, version, values)
        for group, (version, values) in list(self._pending.items()):
            if not _is_asked(group, only):
                continue
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
    ) -> tuple[tuple[KnobWrite, ...], dict[Knob, int | str], list[str]]:
        """The writes to the group's files, the values that systemd has to hand a controller down for, and what cannot be had."""
        have = values_of(tree, group, _READ)
        weight, period_us, identity = (
            None if (value := have.get(knob)) is None else int(value)
            for knob in (Knob.CPU_WEIGHT, Knob.CPU_PERIOD, Knob.CPU_BVT)
        )
        protected: dict[Knob, int] = {
            knob: self._before(tree, group, knob, have[knob]) for knob in PROTECTION if knob in have
        }
        target = unmanaged_values(each, weight, period_us, protected, identity)
        lacking: list[str] = []
        only_unit: dict[Knob, int | str] = {}
        for knob, value in list(target.items()):
            if knob not in have:
                if not observes and property_of(knob, tree.version) and self.is_unit(each.group):
                    only_unit[knob] = target.pop(knob)
                    continue
                if knob in PROTECTION:
                    # The rest of what is kept there does not depend on it.
                    del target[knob]
                    lacking.append(f"{each.group}: {_unprotected(tree.version, knob)}")
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
        return ordered_writes({group: have}, {group: target}), only_unit, lacking

    def _before(self, tree: CgroupTree, group: str, knob: Knob, now: int | str) -> int:
        """What was protected before colo changed it, which is what is now where it did not."""
        old = self._old_value(tree.path_of(knob, group))
        return int(now if old is None else value_of(knob, tree.version, old.strip()))

    def is_unit(self, group: str) -> bool:
        """Whether systemd owns the group. Raises CgroupError when it does not answer."""
        return self._units is not None and bool(self._units.unit_of(group))


def _is_asked(group: str, only: str) -> bool:
    """Whether the group is `only`, "" for every one, or above it."""
    return not only or f"{only}/".startswith(f"{group}/")


def _unprotected(version: int, knob: Knob) -> str:
    why = "cgroup v1 protects no memory, and its soft limit does not either" if version == 1 else "it has no such file"
    return f"{why}; {knob.value} is not kept there"
