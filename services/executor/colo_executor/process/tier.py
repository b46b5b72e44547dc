"""The batch tier of this machine: its groups, its ceiling, and the restore of all kernel values."""

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from colo_common.adapters import core_scheduling
from colo_common.events.enforcement import KnobValue, ZoneCeiling
from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import Placement
from colo_common.model.reasons import Reason
from colo_executor.batch_cpus import check_given
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.desired import (
    BATCH,
    DesiredPolicy,
    MachineFacts,
    exclusive_batch_cpus,
    most_mcpu,
    replica_knobs,
    replica_quota_us,
    tier_knobs,
)
from colo_executor.device_access import rules_in
from colo_executor.inventory import MachineInventory
from colo_executor.journal import JournalFile
from colo_executor.journal_lines import Created
from colo_executor.knob_table import PERIOD_US, QUOTA_MIN_US, UNLIMITED, WEIGHT_MOST, Knob
from colo_executor.knobs import quota_us
from colo_executor.local import CeilingRefused, CeilingWritten, Drift, FreezeRefused, FreezeWritten
from colo_executor.located_devices import DeviceAddress
from colo_executor.old_sets import in_put_back_order
from colo_executor.online import NEEDED, CpusRefused
from colo_executor.order import KnobWrite, ordered_writes, quota_writes
from colo_executor.process.batch_sets import BatchSets
from colo_executor.process.device_files import device_knobs
from colo_executor.process.found import class_of
from colo_executor.process.group_identity import heeded_knobs
from colo_executor.process.kill_tier import CONTROLLERS, SUFFIX, KillTier
from colo_executor.process.machine import cpu_rows, huge_pages_asked, machine_of, online_cpus
from colo_executor.process.old_values import OldValues
from colo_executor.process.reconcile import put_back, values_of
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.systemd_units import units_of_this_machine
from colo_executor.process.watchdog_group import WATCHDOG_SUFFIX, WatchdogGroup
from colo_executor.unit_properties import unit_property_at

__all__ = ["ONLINE_SUFFIX", "Tier", "group_of"]

ONLINE_SUFFIX: Final = "-online"
"""The name of the online tier's subtree is that of the batch tier with this suffix; the collector has the same constant."""


def group_of(token: str) -> str:
    """The group of a replica attempt, relative to the subtree."""
    return f"{BATCH}/{token}"


class Tier:
    """Owns the batch subtree. Methods raise CgroupError or OSError. One lock serialises quota writes, another one groups and sets.

    `online_tree` is the subtree of the online tier; `restore` puts both back.
    """

    def __init__(self, policy: ProcessPolicy, journal: JournalFile) -> None:
        self._policy = policy
        self._desired: DesiredPolicy = policy.desired
        self._journal = journal
        self._turn = threading.Lock()
        self._quotas: dict[str, int] = {}
        self._limits: dict[str, int] = {}
        self.lost: list[str] = []
        self.machine: MachineFacts | None = None
        self.ceiling_mcpu: int | None = None
        self.located: tuple[DeviceAddress, ...] = journal.state.located.devices
        self.old = OldValues(journal, self._tree_of, policy.sys_root)
        self.tree = self.open(policy.subtree)
        self.sets = BatchSets(
            self.tree, policy.ceiling_by, lambda: self.machine, lambda: self.ceiling_mcpu, is_apart=self._is_apart
        )
        self._lock_fd = self.tree.lock()
        self.online_tree = self.open(f"{policy.subtree}{ONLINE_SUFFIX}")
        self.units = units_of_this_machine(policy.cgroup_root, self.old.note_first)
        self._kill_tier = KillTier(self.open(f"{policy.subtree}{SUFFIX}", CONTROLLERS))
        self._watchdog = WatchdogGroup(self.open(f"{policy.subtree}{WATCHDOG_SUFFIX}"), policy.sys_root)

    def open(self, name: str, controllers: Mapping[int, Sequence[str]] | None = None) -> CgroupTree:
        """The tree of the top group of that name: of what is changed there the journal keeps the old values."""
        tree = CgroupTree(
            self._policy.cgroup_root,
            name,
            created=self._note_created,
            changing=self.old.changing,
            controllers=controllers,
        )
        tree.own(self._journal.state.created)
        return tree

    def _is_apart(self) -> bool:
        return self._policy.hygiene.core_scheduling != "no" and not core_scheduling.lacking()

    def reserve_adopted(self, token: str, placement: Placement) -> None:
        """Reserve the zones of an attempt of an earlier executor, before `prepare` writes to the kernel."""
        self.sets.placements[group_of(token)] = placement

    def prepare(self, share: Callable[[CpuSet], CpuSet] = lambda cpus: cpus) -> list[str]:
        """Make the subtree and its batch group, set the tier's knobs, and read the ceiling from the kernel.

        `share` returns the CPUs of the machine that batch work may use. Returns a sentence for what the kernel refused, which each
        reconcile tries again: an executor that did not start for it would look after nothing.
        """
        self._make_top()
        self.machine = machine_of(
            self._policy.sys_root,
            heeded_knobs(self.tree.has(), self._policy.proc_root),
            self.tree.huge_page_sizes(),
        )
        self.sets.open(share(self.machine.cpus), self.machine.cpus)
        self.sets.rows = cpu_rows(self._policy.sys_root)
        if self.tree.exists(BATCH):
            self._read_quota()
        with self.sets.turn:
            self.sets.find()
            self.sets.narrow()
            _, refused = self._make_batch(None)
        # An executor that died may have left batch work frozen: nobody judges whether it still has to be.
        if self.can_freeze:
            self._set_or_keep(KnobWrite(path=BATCH, knob=Knob.FROZEN, value=0), refused)
        self._quotas = {}
        self._read_quota()
        return [*refused, *([self._no_cpu()] if self.sets.is_closed else ())]

    def _no_cpu(self) -> str:
        cpus = CpuSet() if self.machine is None else self.machine.cpus
        rules = "the rules of this node (rules_reserved_cpus and its like)"
        return f"of the CPUs {cpus} {rules} and LSE work leave none to batch work: no more of it is started"

    def machine_now(self) -> MachineFacts | None:
        """The machine with the CPUs that are online now, where these are others than before; else None.

        Its memory zones stay those of the start.
        """
        if self.machine is None or online_cpus(self._policy.sys_root) == self.machine.cpus:
            return None
        found = machine_of(self._policy.sys_root, self.machine.has, self.machine.huge_page_sizes)
        return replace(self.machine, cpus=found.cpus, zones=found.zones)

    def take_machine(self, machine: MachineFacts) -> None:
        """Count with these CPUs from now on; `sets.set_pool` writes them."""
        self.machine, self.sets.rows = machine, cpu_rows(self._policy.sys_root)

    def _read_quota(self) -> None:
        quota = self.tree.quota_us(BATCH)
        self._quotas[BATCH] = quota
        self.ceiling_mcpu = None if quota == UNLIMITED else quota * 1_000 // PERIOD_US

    @property
    def can_freeze(self) -> bool:
        """Whether the kernel can freeze all of batch work at once."""
        return self.machine is not None and Knob.FROZEN in self.machine.has

    def set_frozen(self, *, is_frozen: bool) -> FreezeWritten | FreezeRefused:
        """Freeze the batch group with all that is in it, or let it run. What operators suspended stays suspended."""
        if is_frozen and not self.can_freeze:
            return FreezeRefused(is_frozen=True, detail="the kernel has no freezer here")
        try:
            # With the lock, or a reconcile would take the new state for somebody else's.
            with self._turn:
                knob = self.tree.write(KnobWrite(path=BATCH, knob=Knob.FROZEN, value=int(is_frozen)))
        except (CgroupError, OSError) as error:
            return FreezeRefused(is_frozen=is_frozen, detail=str(error))
        return FreezeWritten(is_frozen=is_frozen, knobs=(knob,))

    def read_frozen(self) -> bool:
        """Whether the kernel shows the batch group as to be frozen."""
        return self.can_freeze and self.tree.value(Knob.FROZEN, BATCH) == "1"

    def _make_top(self) -> None:
        """Make the subtree's top group, and lock it: two executors would each undo what the other one writes."""
        existed = self.tree.exists("")
        if existed:
            self.claim()
        self.tree.make("")
        if self._lock_fd < 0 or not existed:
            self.close()
            self._lock_fd = self.tree.lock()

    def claim(self) -> None:
        """Take the groups for our own that a journal was lost for: they have our names, and ours in them. `lost` has their paths.

        A whole journal says which are ours: a top group that somebody else made in advance is not, and is not removed at the end.
        """
        known = tuple(self._journal.state.created)
        if known and not self._journal.damaged_lines:
            return
        for tree, is_ours in (
            (self.tree, self.tree.exists(BATCH)),
            (self.online_tree, any(class_of(name) for name in self.online_tree.children(""))),
            (self._kill_tier.tree, self._kill_tier.tree.exists("")),
            (self._watchdog.tree, self._watchdog.tree.exists("")),
        ):
            for path in tree.own_group("") if is_ours else ():
                self._note_created(path)
        self.lost += (path for path in self._journal.state.created if path not in known)

    def _make_batch(self, ceiling_mcpu: int | None) -> tuple[list[KnobValue], list[str]]:
        """Make the batch group, unless it is there, and set the tier's knobs. Returns those that are set, and what was refused.

        Raises for a new group without the values that it cannot be without. The caller holds the lock of the sets.
        """
        is_new = not self.tree.exists(BATCH)
        self.tree.make(BATCH)
        # Ours by its name, so that the reflex need not note an old value, whatever the journal has lost.
        for path in self.tree.own_group(BATCH):
            self._note_created(path)
        refused: list[str] = []
        try:
            self.sets.write()
        except (CgroupError, OSError) as error:
            if is_new:
                raise
            refused.append(str(error))
        if self.machine is None:
            return [], refused
        machine = replace(self.machine, cpus=self.sets.cpus)
        written = []
        for write in tier_knobs(self._desired, machine, ceiling_mcpu):
            if is_new and write.knob in NEEDED:
                knob = self._set(write)
            else:
                knob = self._set_or_keep(write, refused)
            written += [] if knob is None else [knob]
        return written, list(dict.fromkeys(refused))

    def _set_or_keep(self, write: KnobWrite, refused: list[str]) -> KnobValue | None:
        """Set the knob; what the kernel refuses each reconcile tries again."""
        try:
            return self._set(write)
        except (CgroupError, OSError) as error:
            self.tree.keep(write)
            refused.append(str(error))
            return None

    def close(self) -> None:
        """Let another executor have the subtree."""
        self.old.forget_refused()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def inventory(self, placement: Placement) -> MachineInventory:
        """The machine's huge pages of the sizes and zones that the placement requests. Devices are unknown to this runtime."""
        sizes = () if self.machine is None else self.machine.huge_page_sizes
        return huge_pages_asked(self._policy.sys_root, placement, sizes)

    def add(self, token: str, placement: Placement) -> tuple[KnobValue, ...]:
        """Make the attempt's group with all its values; a failure leaves nothing behind."""
        if self.machine is None:
            raise CgroupError("the batch tier is not prepared")
        group = group_of(token)
        if self.tree.exists(group):
            raise CgroupError(f"the control group {group} exists already")
        if self.sets.is_closed:
            raise CpusRefused(Reason.CPUS_SHORT, self._no_cpu())
        self._remake()
        with self.sets.turn:
            machine = replace(self.machine, cpus=self.sets.pool)
            check_given(placement, machine, tuple(self.sets.placements.values()))
            try:
                self.sets.admit(group, placement)
                machine = replace(machine, cpus=self.sets.cpus)
                self.tree.make(group)
                others = self.sets.others(group, placement)
                writes = replica_knobs(self._desired, machine, placement, group, None, others)
                knobs = [self.tree.write(write) for write in writes if write.knob is not Knob.CPU_QUOTA]
                knobs += self._add_quota(group, placement)
                devices = device_knobs(self._policy, machine.has, placement, group, self.located)
                knobs += [self.tree.write(write) for write in devices]
            except (CgroupError, OSError):
                self._forget_quota(group)
                self.tree.remove(group)
                self.sets.dismiss(group)
                raise
        return tuple(knobs)

    def _add_quota(self, group: str, placement: Placement) -> list[KnobValue]:
        """Give a new group the quota of its replica's limit, and let it follow the ceiling from now on."""
        if (most := most_mcpu(self._desired, placement)) is None:
            self._keep_unlimited(group)
            return []
        with self._turn:
            quota = replica_quota_us(most, self.ceiling_mcpu)
            self._limits[group], self._quotas[group] = most, quota
            if self.machine is None or Knob.CPU_QUOTA not in self.machine.has:
                return []
            return [self.tree.write(KnobWrite(path=group, knob=Knob.CPU_QUOTA, value=quota))]

    def _forget_quota(self, group: str) -> None:
        with self._turn:
            self._quotas.pop(group, None)
            self._limits.pop(group, None)

    def _keep_unlimited(self, group: str) -> None:
        """Let `reconcile` take away a quota that another program gives to a replica that has none of its own."""
        if self.machine is not None and Knob.CPU_QUOTA in self.machine.has:
            self.tree.keep(KnobWrite(path=group, knob=Knob.CPU_QUOTA, value=UNLIMITED))

    def devices_of(self, token: str) -> str:
        """The rules of devices that the kernel shows for the attempt, "" where everything is open or nothing is shown."""
        try:
            shown = self.tree.value(Knob.DEVICES, group_of(token))
        except (CgroupError, FileNotFoundError):
            return ""
        return "" if rules_in(shown) is None else shown

    def adopt(self, token: str, placement: Placement, devices: str = "") -> None:
        """Keep the values of an attempt of an earlier executor, and let its quota follow the ceiling again.

        `devices` are the rules of devices that it was started with. Later settings and other devices apply to
        later attempts.
        """
        if self.machine is not None:
            if devices and Knob.DEVICES in self.machine.has:
                self.tree.keep(KnobWrite(path=group_of(token), knob=Knob.DEVICES, value=devices))
            machine = replace(self.machine, cpus=self.sets.cpus)
            others = self.sets.others(group_of(token), placement)
            for write in replica_knobs(self._desired, machine, placement, group_of(token), None, others):
                if write.knob is not Knob.CPU_QUOTA:
                    self.tree.keep(write)
        with self._turn, contextlib.suppress(CgroupError, OSError):
            group, most = group_of(token), most_mcpu(self._desired, placement)
            quota = self.tree.quota_us(group)
            # A quota that no limit explains is one of an attempt that the journal lacks: it stays its limit.
            if most is None and quota == UNLIMITED:
                self._keep_unlimited(group)
            else:
                self._quotas[group] = quota
                self._limits[group] = quota * 1_000 // PERIOD_US if most is None else most

    def boost_weight(self, token: str) -> None:
        """Give an attempt that was sent SIGTERM the greatest weight among batch work; online work still precedes it."""
        with contextlib.suppress(CgroupError, OSError):
            self.tree.write(KnobWrite(path=group_of(token), knob=Knob.CPU_WEIGHT, value=WEIGHT_MOST))

    def kill_now(self, token: str) -> bool:
        """Whether the attempt has no process left; else every one gets SIGKILL where it can die also on a busy machine."""
        return self._kill_tier.kill_now(self.tree, group_of(token), token)

    def take_watchdog(self, pid: int) -> None:
        """Move the watchdog of this executor into its group, and end those of earlier ones."""
        # Ours by its name, whatever the journal has lost.
        for path in self._watchdog.tree.own_group(""):
            self._note_created(path)
        self._watchdog.take(pid)

    def clear_left(self) -> bool:
        """End what an earlier executor was killing; False when something is still there."""
        return self._kill_tier.clear_now()

    def drop(self, token: str) -> bool:
        """Remove the attempt's group, once it has no process; False when the kernel refused."""
        group = group_of(token)
        with self.sets.turn:
            self._lower_ended(group)
            if not self.tree.remove_now(group):
                return False
            placement = self.sets.placements.pop(group, None)
            self._forget_quota(group)
            if placement is not None and exclusive_batch_cpus(placement):
                # What cannot be written now is written with the next change of the sets.
                with contextlib.suppress(CgroupError, OSError):
                    self.sets.write()
        return True

    def _lower_ended(self, group: str) -> None:
        """Give a group without a process the least quota: v1 compares the tier's with it for some 50 ms after the group is removed,
        and would refuse a shrink below it.
        """
        if self.tree.version != 1:
            return
        with self._turn, contextlib.suppress(CgroupError, OSError):
            if self._limits.pop(group, None) is not None:
                self._write_quotas([KnobWrite(path=group, knob=Knob.CPU_QUOTA, value=QUOTA_MIN_US)])

    def reconcile(self, yields: Collection[str] = ()) -> Drift:
        """Put back the values that another program changed, but in the groups `yields`. Takes the locks only when one differs."""
        remade = self._remake()
        if remade != Drift():
            return remade
        groups = dict.fromkeys(drift.write.path for drift in self.tree.drifted())
        if not groups:
            return Drift()
        with self.sets.turn, self._turn:
            return put_back(self.tree, self.tree.drifted(groups), yields)

    def _remake(self) -> Drift:
        """Make the tier's groups again where another program deleted them, with the ceiling that they had."""
        if self.tree.is_whole(BATCH):
            return Drift()
        with self.sets.turn, self._turn:
            self._make_top()
            written, refused = self._make_batch(self.ceiling_mcpu)
            self._quotas[BATCH] = self.tree.quota_us(BATCH)
        return Drift(knobs=tuple(replace(knob, before="deleted") for knob in written), failed=tuple(refused))

    def set_ceiling(
        self, ceiling_mcpu: int, zones: tuple[ZoneCeiling, ...] | None = None, *, has_whole_cores: bool = False
    ) -> CeilingWritten | CeilingRefused:
        """Write the tier's quota and the lower quotas of capped replicas, in an order that the kernel accepts; then the CPU sets.

        The quota comes first, because it keeps the ceiling while the sets of many replicas are written. `zones` None leaves those
        and the whole cores as they are.
        """
        try:
            knobs = self._set_quota(ceiling_mcpu)
        except (CgroupError, OSError, ValueError) as error:
            return CeilingRefused(ceiling_mcpu=ceiling_mcpu, detail=str(error))
        refusal = ""
        if zones is not None:
            try:
                knobs += self.sets.set_zones(zones, has_whole_cores=has_whole_cores)
            except (CgroupError, OSError) as error:
                refusal = str(error)
        try:
            # With the zones the whole cores have followed already, or were refused and are tried again later.
            if zones is None or not self.sets.has_whole_cores:
                self.sets.follow_ceiling()
        except (CgroupError, OSError) as error:
            return CeilingRefused(ceiling_mcpu=ceiling_mcpu, detail=str(error))
        return CeilingWritten(
            ceiling_mcpu=ceiling_mcpu,
            knobs=tuple(knobs),
            zones=self.sets.zones,
            has_whole_cores=self.sets.has_whole_cores,
            sets_refused=refusal,
        )

    def lift_ceiling(self) -> list[str]:
        """Take away the ceilings that an earlier executor or its watchdog left. Returns a sentence for what the kernel refused.

        What somebody else writes there afterwards stays: no reflex looks after it.
        """
        refused = [] if self._watchdog.end() else ["the watchdog of an earlier executor did not die"]
        try:
            if self.ceiling_mcpu is not None:
                self._set_quota(None)
                self.tree.forget(BATCH, Knob.CPU_QUOTA)
            self.sets.set_zones(())
            self.sets.follow_ceiling()
        except (CgroupError, OSError) as error:
            refused.append(str(error))
        return refused

    def _set_quota(self, ceiling_mcpu: int | None) -> list[KnobValue]:
        with self._turn:
            target = {BATCH: UNLIMITED if ceiling_mcpu is None else quota_us(ceiling_mcpu)}
            for group, most in self._limits.items():
                target[group] = replica_quota_us(most, ceiling_mcpu)
            have = {group: self._quotas.get(group, UNLIMITED) for group in target}
            try:
                knobs = self._write_quotas(quota_writes(have, target))
            except CgroupError:
                # Another program changed a quota, a period or a burst, which the kernel judges together.
                knobs = self._write_quotas(self._from_kernel(target))
            self.ceiling_mcpu = ceiling_mcpu
        return knobs

    def _write_quotas(self, writes: Iterable[KnobWrite]) -> list[KnobValue]:
        knobs = []
        for write in writes:
            try:
                knobs.append(self.tree.write(write))
            except FileNotFoundError:
                if write.path == BATCH:
                    raise
                # The group of a replica that is being removed, or that somebody else deleted: the others must shrink all the same.
                continue
            if write.knob is Knob.CPU_QUOTA:
                self._quotas[write.path] = int(write.value)
        return knobs

    def _from_kernel(self, target: Mapping[str, int]) -> tuple[KnobWrite, ...]:
        """The writes that lead the quotas to `target` from what the kernel shows, with the periods and bursts beside them."""
        has = frozenset() if self.machine is None else self.machine.has
        have: dict[str, dict[Knob, int | str]] = {}
        aims: dict[str, dict[Knob, int | str]] = {}
        for group, quota in target.items():
            if self.tree.exists(group):
                have[group] = values_of(self.tree, group, (Knob.CPU_QUOTA, Knob.CPU_PERIOD, Knob.CPU_BURST))
                aims[group] = {Knob.CPU_QUOTA: quota}
                if Knob.CPU_PERIOD in has:
                    aims[group][Knob.CPU_PERIOD] = PERIOD_US
        if BATCH not in have:
            raise CgroupError(f"the control group {self.tree.name}/{BATCH} is gone")
        return ordered_writes(have, aims)

    def read_ceiling(self) -> int | None:
        """The ceiling that the kernel shows. Where somebody changed it, the quotas of capped replicas are read again, too."""
        with self._turn:
            quota = self.tree.quota_us(BATCH)
            if quota != self._quotas.get(BATCH, quota):
                self.ceiling_mcpu = None if quota == UNLIMITED else quota * 1_000 // PERIOD_US
                self._quotas[BATCH] = quota
                for group in self._limits:
                    with contextlib.suppress(FileNotFoundError):
                        self._quotas[group] = self.tree.quota_us(group)
            return self.ceiling_mcpu

    def shown(self, path: str) -> str:
        """What a file of others holds now. Raises CgroupError or OSError."""
        return self._tree_of(path).text_at(path)

    def put_back_all_but(self, managed: Collection[str], *, observes: bool = False) -> Drift:
        """Put back the old values of groups of others, but for the `managed` files. A value that is back is forgotten.

        By `observes` nothing is written: what would be is reported. A file that is gone has no value to get back.
        """
        knobs: list[KnobValue] = []
        failed: list[str] = []
        over: list[str] = []
        if not observes:
            over, failed = self._put_back_properties(managed)
        images = {path: value for path, value in self._old_files() if self._is_of_others(path) and path not in managed}
        if not observes:
            self.old.widen_sets(images)
        for path, value in in_put_back_order(images):
            try:
                shown = self.old.shown(path, value)
            except FileNotFoundError:
                shown = value
            except (CgroupError, OSError) as error:
                failed.append(str(error))
                continue
            if shown == value:
                over.append(path)
            else:
                knobs.append(KnobValue(path=path, value=value, before=shown))
        if not observes:
            refused = self.old.put_back_all((knob.path, knob.value) for knob in knobs)
            failed += refused.values()
            knobs = [knob for knob in knobs if knob.path not in refused]
            if over := [*over, *(knob.path for knob in knobs)]:
                self.old.forget(over)
        return Drift(knobs=tuple(knobs), failed=tuple(failed), observed=observes)

    def _put_back_properties(self, managed: Collection[str] = ()) -> tuple[list[str], list[str]]:
        """Give the properties of units their old values, but for the `managed` ones: which have them, why others have not.

        Before the files of the same groups, which systemd writes with it.
        """
        over: list[str] = []
        failed: list[str] = []
        for path, value in reversed(self.old.values().items()):
            found = unit_property_at(path)
            if found is None or path in managed:
                continue
            unit, name = found
            if self.units is None:
                failed.append(f"{unit}: no systemd answers here, which has the property {name} of us")
                continue
            try:
                self.units.put_back(unit, name, value)
            except CgroupError as error:
                failed.append(str(error))
            else:
                over.append(path)
        if over and self.units is not None:
            try:
                self.units.remove_files()
            except CgroupError as error:
                failed.append(str(error))
        return over, failed

    def restore(self) -> tuple[str, ...]:
        """Remove the executor's groups and put every old value back. Returns one sentence for each failure.

        Groups that no journal knows are removed, too.
        """
        failures = []
        self.claim()
        self._lift_limits()
        if not self._kill_tier.clear():
            failures.append("a replica that was being killed did not die")
        for token in self.tree.children(BATCH):
            self._kill_tier.kill(self.tree, group_of(token), token)
        for name in self.online_tree.children(""):
            self.online_tree.kill(name)
        groups = [(self.tree, group_of(token)) for token in self.tree.children(BATCH)]
        groups += [(self.online_tree, name) for name in self.online_tree.children("")]
        for tree, group in groups:
            if not tree.remove(group):
                failures.append(f"{group} could not be removed")
        # The last thing that is ended: until here it gives batch work the floor when this process dies.
        if not self._watchdog.end():
            failures.append("the watchdog of the executor did not die")
        for path in reversed(self._journal.state.created):
            if not self._tree_of(path).remove_path(path):
                failures.append(f"{path} could not be removed")
        failures += self._put_back_properties()[1]
        images = dict(self._old_files())
        self.old.widen_sets(images)
        failures += self.old.put_back_all(in_put_back_order(images)).values()
        if not failures:
            self._journal.forget()
        return tuple(failures)

    def _old_files(self) -> list[tuple[str, str]]:
        """The files whose old value is known, the one that was changed last first."""
        found = reversed(self.old.values().items())
        return [(path, value) for path, value in found if unit_property_at(path) is None]

    def _is_of_others(self, path: str) -> bool:
        return not any(tree.holds(path) for tree in self._trees()) and bool(self.tree.top_of(path))

    def _lift_limits(self) -> None:
        """Lift the ceiling, the freeze and what lets batch work give way: a killed process without CPU does not exit."""
        with self._turn:
            for write in (
                KnobWrite(path=BATCH, knob=Knob.FROZEN, value=0),
                KnobWrite(path="", knob=Knob.CPU_IDLE, value=0),
                KnobWrite(path="", knob=Knob.CPU_BVT, value=0),
                KnobWrite(path=BATCH, knob=Knob.CPU_BVT, value=0),
                KnobWrite(path=BATCH, knob=Knob.CPU_QUOTA, value=UNLIMITED),
            ):
                with contextlib.suppress(CgroupError, OSError):
                    self.tree.write(write)

    def _set(self, write: KnobWrite) -> KnobValue | None:
        # The kernel refuses a weight while idle is set, and idle has the stronger effect.
        if write.knob is Knob.CPU_WEIGHT and self._desired.idle and self._is_idle():
            return None
        return self.tree.write(write)

    def _is_idle(self) -> bool:
        if self.machine is None or Knob.CPU_IDLE not in self.machine.has:
            return False
        return self.tree.value(Knob.CPU_IDLE, "") == "1"

    def _note_created(self, path: str) -> None:
        # Groups of attempts need no entry: they are removed with their tier.
        above = path.rpartition("/")[0].split("/")
        sibling_trees = (self.online_tree.name, self._kill_tier.tree.name)
        is_attempt = above[-1] in sibling_trees or above[-2:] == [self._policy.subtree, BATCH]
        if not is_attempt and path not in self._journal.state.created:
            # Also when the disk is full: the group has our name, so it is known without the entry.
            self._journal.note(Created(path=path))

    def _trees(self) -> tuple[CgroupTree, ...]:
        return self.online_tree, self._kill_tier.tree, self._watchdog.tree, self.tree

    def _tree_of(self, path: str) -> CgroupTree:
        for tree in self._trees():
            if tree.holds(path):
                return tree
        top = self.tree.top_of(path)
        return self.open(top) if top else self.tree
