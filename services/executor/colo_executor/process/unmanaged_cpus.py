"""Keeps groups that colo did not make off the CPUs that LSE and LSR work has as its own, where the operator's policy says so."""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final

import structlog
from msgspec.structs import replace

from colo_common.events.enforcement import KnobValue
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.kept_cpus import OwnCpus
from colo_executor.knob_table import Knob
from colo_executor.local import Drift
from colo_executor.open_cpus import OpenCpus
from colo_executor.order import KnobWrite, cpuset_writes
from colo_executor.process.machine import online_cpus
from colo_executor.process.open_cpus import open_cpus
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.tier import Tier
from colo_executor.process.unmanaged import UnmanagedTier
from colo_executor.unit_properties import property_of, property_path
from colo_executor.unmanaged import UnmanagedGroup
from colo_executor.unmanaged_cpus import NoCpuLeft, base_sets, cleared_sets

__all__ = ["UnmanagedCpus"]

_KUBELET: Final = "kubepods"

Attached = tuple[tuple[UnmanagedGroup, OwnCpus], ...]


class UnmanagedCpus:
    """The CPU sets of the groups of others that are to keep clear. `own` is asked at each call; it must take no lock of the caller.

    Under cgroup v1 the sets of all groups in such a group are kept, too, which the kernel wants within its own; under v2 the kernel
    sees to those. What each of them had before is journaled first, and written back as soon as no CPU is anybody's own.
    """

    def __init__(self, tier: Tier, unmanaged: UnmanagedTier, own: Callable[[], OwnCpus], policy: ProcessPolicy) -> None:
        self._tier = tier
        self._unmanaged = unmanaged
        self._own = own
        self._policy = policy
        self._turn = threading.Lock()
        self._written: dict[str, CpuSet] = {}
        self._asked: dict[str, CpuSet] = {}
        self._is_over = False
        self.attached: Callable[[], Attached] = tuple
        """What is kept in groups that replicas are attached to, each with the CPUs that it keeps off; it must take no lock."""
        self._log = structlog.get_logger("executor")
        self.open = OpenCpus()

    def keep_all(self, *, observes: bool = False, yields: Collection[str] = ()) -> list[Drift]:
        """Give back what the operator's policy names no more, and keep what it names: weights, ceilings and CPUs.

        The groups `yields` are left as they are.
        """
        own, written = self._own(), self._written.copy()
        first = self.follow(observes=observes, yields=yields)
        # Another set than the last one is colo's own change, and not somebody else's.
        changed = (knob for knob in first.knobs if written.get(knob.path) == CpuSet.parse(knob.value))
        found = [replace(first, writers=self._unmanaged.writers(changed)), self.give_back_unkept(observes=observes)]
        if self._own() != own:
            # Online work came meanwhile, and what was just cleared for it may have been given back.
            found.append(self.follow(observes=observes, yields=yields))
        found.append(self._unmanaged.keep(observes=observes, yields=yields))
        self._look()
        return found

    def give_back_unkept(self, *, observes: bool = False) -> Drift:
        """Give every value of others back that neither the policy nor attached work keeps."""
        try:
            return self._tier.put_back_all_but(self.managed(), observes=observes)
        except (CgroupError, OSError) as error:
            return Drift(failed=(str(error),))

    def managed(self) -> frozenset[str]:
        """The files and properties of others that are kept now. Raises CgroupError for a pattern whose groups cannot be told."""
        return self._unmanaged.managed() | self._managed()

    def clear_attached(self, group: str) -> list[KnobValue]:
        """Write the CPUs of a group that a replica is attached to. Raises CgroupError, NoCpuLeft, InvalidInput or OSError."""
        with self._turn:
            found = ((each, own) for each, own in self.attached() if each.group == group)
            return [knob for each, own in found for knob in self._follow(each, own, observes=False)]

    def forget_attached(self, group: str) -> None:
        """Let systemd be told nothing more of a group that no replica is attached to any more."""
        self._asked.pop(group, None)
        self._unmanaged.forget(group)

    def follow(self, *, observes: bool = False, yields: Collection[str] = ()) -> Drift:
        """Write the sets as the CPUs are held now. Reports what was written, by `observes` what would be, and each failure.

        Where the policy is only observed, what it would write is withheld; what nobody's own CPUs need any more is given back.
        """
        knobs: list[KnobValue] = []
        withheld: list[KnobValue] = []
        failed: list[str] = []
        with self._turn:
            for each, own in self._cleared():
                if each.group in yields:
                    continue
                try:
                    is_withheld = not observes and self._is_withheld(each, own)
                    found = withheld if is_withheld else knobs
                    found += self._follow(each, own, observes=observes or is_withheld)
                except NoCpuLeft:
                    failed.append(
                        f"{each.group}: keeps its CPUs: all of them are LSE or LSR work's own, and no group may be without a CPU"
                    )
                except FileNotFoundError as error:
                    failed.append(f"{each.group}: the kernel has no such file here ({error.filename})")
                except (CgroupError, InvalidInput, OSError, ValueError) as error:
                    failed.append(f"{each.group}: keeps its CPUs: {error}")
        return Drift(knobs=tuple(knobs), failed=tuple(failed), observed=observes, withheld=tuple(withheld))

    def _is_withheld(self, each: UnmanagedGroup, own: OwnCpus) -> bool:
        is_kept = not self._is_over and bool(own.cpus or each.cpus)
        return self._unmanaged.is_observed and is_kept and each in self._unmanaged.cleared

    def give_back(self) -> Drift:
        """Write the sets from before, once and for all."""
        with self._turn:
            self._is_over = True
        return self.follow()

    # ------------------------------------------------------------ inside

    def _cleared(self) -> Attached:
        """The groups that keep clear, each with the CPUs that it keeps off."""
        own = OwnCpus() if self._is_over else self._own()
        attached = ((each, OwnCpus() if self._is_over else off) for each, off in self.attached())
        return (*((each, own) for each in self._unmanaged.cleared), *attached)

    def _managed(self) -> frozenset[str]:
        """The files, relative to the cgroup root, and the properties of units that have not their value from before now."""
        found: set[str] = set()
        for each, own in self._cleared():
            if own.cpus or each.cpus:
                tree, group = self._home(each)
                found.update(tree.path_of(Knob.CPUSET_CPUS, path) for path in (group, *self._noted(tree, group)))
                found.add(_property_of(each, tree))
        return frozenset(found)

    def _look(self) -> None:
        """Say once of which own CPUs groups of others run on, too: nobody is promised more than there is."""
        cpus = self._own().cpus
        found = OpenCpus()
        if cpus:
            attached = {each.group: CpuSet.parse(each.cpus) for each, _ in self.attached()}
            found = open_cpus(self._tier.tree, cpus, self._policy.proc_root, attached)
        if found != self.open and found.cpus:
            self._log.warning("own-cpus-open", cpus=found.cpus.format(), groups=list(found.groups))
        self.open = found

    def _home(self, each: UnmanagedGroup) -> tuple[CgroupTree, str]:
        top, _, group = each.group.partition("/")
        return self._unmanaged.tree_of(top), group

    def _noted(self, tree: CgroupTree, group: str) -> dict[str, str]:
        """The sets from before by group, of those whose set was changed."""
        top, name = tree.path_of(Knob.CPUSET_CPUS, "").rpartition("/")[::2]
        here = f"{top}/{group}".rstrip("/")
        found = {}
        for path, value in self._tier.old.values().items():
            directory, _, last = path.rpartition("/")
            if last == name and f"{directory}/".startswith(f"{here}/"):
                found[directory.removeprefix(top).strip("/")] = value
        return found

    def _follow(self, each: UnmanagedGroup, own: OwnCpus, *, observes: bool) -> list[KnobValue]:
        tree, group = self._home(each)
        cpus, most = own.cpus - own.pinned, CpuSet.parse("" if self._is_over else each.cpus)
        before = self._noted(tree, group)
        if not (own.cpus or most):
            self._asked.pop(each.group, None)
            self._unmanaged.keep_no_cpus(each.group)
            if not before:
                return []
        # Such a kubelet gives each container the whole shared pool, which the kernel refuses in a group that has less.
        is_barred = tree.version == 1 and bool(own.pinned and cpus) and each.group.startswith(_KUBELET)
        if is_barred:
            cpus = CpuSet()
        if observes and not (cpus or most):
            return []
        online = online_cpus(self._policy.sys_root)
        present = self._present(tree, group)
        if present is None:
            return self._by_unit(each, tree, group, cpus, most, online, observes=observes)
        noted = {path: CpuSet.parse(value) for path, value in before.items() if path in present}
        if group not in noted and (value := self._tier.old.value(_property_of(each, tree))) is not None:
            # systemd made the file, for the property that it was given.
            noted[group] = CpuSet.parse(value)
        base = base_sets(present, noted, self._written_of(tree, present), online)
        target = cleared_sets(base, cpus, online, most)
        if not observes:
            self._note(tree, before, present, base, target)
        # Where the kernel takes no empty list, all CPUs stand for it.
        is_back = not target[group] and not online - present[group]
        writes = () if is_back else cpuset_writes(Knob.CPUSET_CPUS, present, target)
        knobs = self._write(tree, writes, observes=observes)
        if not observes and tree.version == 2 and (cpus or most):
            self._tell(each, tree.version, target[group])
        if is_barred:
            raise CgroupError("under cgroup v1 a kubelet that pins CPUs could start no more pods there")
        return knobs

    def _written_of(self, tree: CgroupTree, present: Mapping[str, CpuSet]) -> dict[str, CpuSet]:
        """What these groups were given last by this executor."""
        files = {path: tree.path_of(Knob.CPUSET_CPUS, path) for path in present}
        return {path: self._written[file] for path, file in files.items() if file in self._written}

    def _present(self, tree: CgroupTree, group: str) -> dict[str, CpuSet] | None:
        """The sets now: of the group, and under v1 of those in it that have one. None: the kernel has no file of the group."""
        try:
            found = {group: CpuSet.parse(tree.value(Knob.CPUSET_CPUS, group), "cpus")}
        except FileNotFoundError:
            return None
        waiting = [group] if tree.version == 1 else []
        while waiting:
            above = waiting.pop()
            for name in tree.children(above):
                path = f"{above}/{name}" if above else name
                try:
                    cpus = CpuSet.parse(tree.value(Knob.CPUSET_CPUS, path), "cpus")
                except FileNotFoundError:
                    continue
                if cpus:
                    found[path] = cpus
                    waiting.append(path)
        return found

    def _note(
        self,
        tree: CgroupTree,
        before: Mapping[str, str],
        present: Mapping[str, CpuSet],
        base: Mapping[str, CpuSet],
        target: Mapping[str, CpuSet],
    ) -> None:
        """Journal what the groups had before, of those that have not, or will not have, that."""
        changed = [path for path in base if target[path] != base[path] or present[path] != base[path]]
        images = {
            tree.path_of(Knob.CPUSET_CPUS, path): base[path].format()
            for path in changed
            if path not in before or CpuSet.parse(before[path]) != base[path]
        }
        deleted = [tree.path_of(Knob.CPUSET_CPUS, path) for path in before if path not in present]
        for file in deleted:
            self._written.pop(file, None)
        if deleted:
            self._tier.old.forget(deleted)
        if images:
            self._tier.old.note(images)

    def _write(self, tree: CgroupTree, writes: tuple[KnobWrite, ...], *, observes: bool) -> list[KnobValue]:
        knobs = []
        for write in writes:
            try:
                knobs.append(self._written_one(tree, write) if not observes else tree.observed(write))
            except FileNotFoundError:
                # A group in it was just removed.
                continue
            if not observes:
                self._written[tree.path_of(write.knob, write.path)] = CpuSet.parse(knobs[-1].value)
        return knobs

    def _written_one(self, tree: CgroupTree, write: KnobWrite) -> KnobValue:
        """The file as it is read back. All CPUs of the parent are written in words of their own (process/old_values.py)."""
        if write.value:
            return tree.write(write)
        path, before = tree.path_of(write.knob, write.path), tree.value(write.knob, write.path)
        self._tier.old.put_back(path, "")
        return KnobValue(path=path, value=tree.value(write.knob, write.path), before=before)

    def _by_unit(
        self,
        each: UnmanagedGroup,
        tree: CgroupTree,
        group: str,
        cpus: CpuSet,
        most: CpuSet,
        online: CpuSet,
        *,
        observes: bool,
    ) -> list[KnobValue]:
        """Let systemd hand the controller down to a group that has it not, by the property of its unit."""
        if not tree.exists(group) or not (cpus or most):
            return []
        if tree.version == 1:
            raise CgroupError(
                "it has no group under the cpuset controller of cgroup v1, so its processes run on all CPUs"
            )
        if observes or not self._unmanaged.is_unit(each.group):
            raise CgroupError(f"cgroup v2 has no file for {Knob.CPUSET_CPUS.value} there")
        self._tell(each, tree.version, cleared_sets({group: CpuSet()}, cpus, online, most)[group])
        return []

    def _tell(self, each: UnmanagedGroup, version: int, cpus: CpuSet) -> None:
        if self._asked.get(each.group) != cpus:
            self._asked[each.group] = cpus
            self._unmanaged.tell_systemd(each.group, version, {Knob.CPUSET_CPUS: cpus.format()})


def _property_of(each: UnmanagedGroup, tree: CgroupTree) -> str:
    return property_path(each.group.rpartition("/")[2], property_of(Knob.CPUSET_CPUS, tree.version))
