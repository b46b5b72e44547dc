"""The online tier of this machine: the groups of online replicas, and the CPUs that they share with the batch tier."""

import contextlib
import threading
from collections.abc import Callable, Collection

from colo_common.events.enforcement import KnobValue
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement
from colo_common.model.qos import QosClass
from colo_common.model.reasons import Reason
from colo_executor.cgroup import CgroupError
from colo_executor.desired import DesiredPolicy, MachineFacts
from colo_executor.kept_cpus import KeptCpus, OwnCpus
from colo_executor.knob_table import Knob
from colo_executor.local import Drift
from colo_executor.online import (
    NEEDED,
    CpuHold,
    CpuPools,
    CpusRefused,
    given_cpus,
    hold_of,
    online_group,
    online_knobs,
    online_sets,
    online_top_knobs,
    pools_of,
)
from colo_executor.order import KnobWrite
from colo_executor.process.fast import ClosedCpus
from colo_executor.process.reconcile import put_back
from colo_executor.process.tier import Tier

__all__ = ["OnlineTier"]


class OnlineTier:
    """Owns the groups of online replicas. Methods raise CgroupError or OSError, `add` also CpusRefused; a lock serialises calls.

    The groups are a subtree at the top of the hierarchy, because the batch tier's group gives way to the rest of the machine. The
    subtree is made for the first online replica.
    """

    def __init__(self, tier: Tier, desired: DesiredPolicy, *, is_on: bool, kept: KeptCpus) -> None:
        self.tree = tier.online_tree
        self._tier = tier
        self._desired = desired
        self._is_on = is_on
        self._kept = kept
        self._wanted: KeptCpus | None = None
        self._is_unsettled = False
        self._turn = threading.Lock()
        self._holds: dict[str, CpuHold] = {}
        self._attached: dict[str, tuple[CpuHold, str]] = {}
        self.own_changed: Callable[[], object] = lambda: None
        """Called when LSE or LSR work may have got or given up CPUs of its own; it must not fail."""

    def reserve_adopted(self, token: str, placement: Placement) -> None:
        """Reserve the CPUs of an attempt of an earlier executor, before the first write to the kernel."""
        with contextlib.suppress(InvalidInput):
            self._holds[token] = hold_of(placement, placement.replica)

    def adopt(self, token: str, placement: Placement) -> None:
        """Keep the values of an attempt of an earlier executor, so that `reconcile` watches them."""
        hold, machine = self._holds.get(token), self._tier.machine
        if hold is None or machine is None:
            return
        pools = pools_of(machine.cpus, self._all_holds(), self._kept)
        group = online_group(placement.qos, token)
        for write in online_knobs(self._desired, machine, placement, hold, pools, group):
            self.tree.keep(write)

    def reconcile(self, yields: Collection[str] = ()) -> Drift:
        """Put back the values of online groups that another program changed, but of the groups `yields`."""
        if self._wanted is not None:
            self.keep(self._wanted)
        if self._is_unsettled and (refusal := self.settle()):
            return Drift(failed=refusal)
        groups = dict.fromkeys(drift.write.path for drift in self.tree.drifted())
        if not groups:
            return Drift()
        with self._turn:
            return put_back(self.tree, self.tree.drifted(groups), yields)

    def follow_cpus(self) -> CpuSet | None:
        """Write all sets anew when CPUs of the machine came or went, and return those online now; else None.

        What the kernel refuses the next call tries again.
        """
        with self._turn:
            before, now = self._tier.machine, self._tier.machine_now()
            if before is None or now is None:
                return None
            if not pools_of(now.cpus, self._all_holds(), self._kept).be:
                raise CgroupError(f"of the CPUs {now.cpus}, which are online now, none would be left to batch work")
            self._tier.take_machine(now)
            try:
                # The groups of the tier grow after the one that they are in.
                self._weigh(now)
                self._settle(now)
            except (CgroupError, OSError):
                self._tier.take_machine(before)
                raise
            return now.cpus

    def batch_cpus(self, cpus: CpuSet) -> CpuSet:
        """The CPUs of `cpus` that are left to batch work."""
        return pools_of(cpus, self._all_holds(), self._kept).be

    def closed(self) -> ClosedCpus:
        """The CPUs that are closed to batch work. Takes no lock: the reflex asks."""
        found = [
            (hold, self.tree.usage_path(online_group(hold.qos, token))) for token, hold in self._holds.copy().items()
        ]
        found = [each for each in (*found, *self._attached.copy().values()) if each[0].qos is QosClass.LSE]
        cpus = CpuSet()
        for hold, _ in found:
            cpus = cpus | hold.cpus
        paths = tuple(path for _, path in found)
        machine = self._tier.machine
        is_kept = machine is not None and Knob.CPUSET_CPUS in machine.has
        return ClosedCpus(cpus, paths, self._kept.withheld, is_kept)

    def own(self) -> OwnCpus:
        """The CPUs that LSE and LSR work has as its own. Takes no lock."""
        cpus = CpuSet()
        for hold in self._all_holds():
            cpus = cpus | hold.cpus if hold.qos.has_own_cpus else cpus
        return OwnCpus(cpus=cpus, pinned=self._kept.pinned)

    def attach(self, token: str, placement: Placement, usage_path: str) -> None:
        """Clear the CPUs of work in a group of others of other work; a failure changes nothing. `usage_path`: its CPU time."""
        with self._turn:
            machine = self._able_machine()
            hold = given_cpus(placement, placement.replica, machine, self._all_holds(), self._kept)
            self._attached[token] = hold, usage_path
            try:
                self._settle(machine)
            except (CgroupError, OSError):
                del self._attached[token]
                with contextlib.suppress(CgroupError, OSError):
                    self._settle(machine)
                raise

    def reserve_attached(self, token: str, placement: Placement, usage_path: str) -> None:
        """Reserve the CPUs of attached work of an earlier executor, before the first write to the kernel."""
        with contextlib.suppress(InvalidInput):
            self._attached[token] = hold_of(placement, placement.replica), usage_path

    def release(self, token: str) -> None:
        """Give back the CPUs of attached work. What the kernel refuses the next change of the sets tries again."""
        with self._turn:
            machine = self._tier.machine
            if self._attached.pop(token, None) is not None and machine is not None:
                with contextlib.suppress(CgroupError, OSError):
                    self._settle(machine)

    def attached_cpus(self, token: str) -> tuple[OwnCpus, CpuSet]:
        """The CPUs that attached work keeps off, and those that it has alone or shares with BE work only. Takes no lock."""
        found, machine = self._attached.get(token), self._tier.machine
        if found is None or machine is None:
            return OwnCpus(), CpuSet()
        hold, own = found[0], self.own()
        if hold.qos.has_own_cpus:
            return OwnCpus(cpus=own.cpus - hold.cpus), hold.cpus
        cpus, _ = online_sets(hold, machine, pools_of(machine.cpus, self._all_holds(), self._kept))
        # A kubelet pins CPUs to the pods that these processes may be.
        return OwnCpus(cpus=machine.cpus - cpus - own.pinned, pinned=own.pinned), CpuSet()

    def add(self, token: str, placement: Placement) -> tuple[KnobValue, ...]:
        """Clear the attempt's CPUs of other work and make its group with all its values; a failure changes nothing."""
        group = online_group(placement.qos, token)
        with self._turn:
            machine = self._able_machine()
            hold = given_cpus(placement, placement.replica, machine, self._all_holds(), self._kept)
            if self.tree.exists(group):
                raise CgroupError(f"the control group {group} exists already")
            self._holds[token] = hold
            try:
                pools = self._settle(machine)
                self.tree.make("")
                for write in online_top_knobs(self._desired, machine, self._holds.values()):
                    self.tree.write(write)
                self.tree.make(group)
                writes = online_knobs(self._desired, machine, placement, hold, pools, group)
                return tuple(self.tree.write(write) for write in writes)
            except (CgroupError, OSError):
                del self._holds[token]
                self.tree.remove(group)
                with contextlib.suppress(CgroupError, OSError):
                    self._settle(machine)
                    self._weigh(machine)
                raise

    def drop(self, token: str, placement: Placement) -> bool:
        """Remove the attempt's group and give its CPUs back; False when the kernel refused the one or the other."""
        with self._turn:
            if not self.tree.remove_now(online_group(placement.qos, token)):
                # A process of the attempt may still run on these CPUs.
                return False
            self._holds.pop(token, None)
            machine = self._tier.machine
            try:
                if machine is not None:
                    self._settle(machine)
                    self._weigh(machine)
            except (CgroupError, OSError):
                return False
        return True

    def settle(self) -> tuple[str, ...]:
        """Bring the shared CPUs and the sums of the tier's group up to date with the holds of adopted attempts.

        Returns a sentence when the kernel refuses the sets, which the next reconcile tries again.
        """
        with self._turn:
            machine = self._tier.machine
            if machine is None:
                return ()
            try:
                self._settle(machine)
            except (CgroupError, OSError) as error:
                self._is_unsettled = True
                return (str(error),)
            self._is_unsettled = False
            if self._holds:
                # An earlier version may have written less there; what the kernel refuses, the next start or end tries again.
                with contextlib.suppress(CgroupError, OSError):
                    self._weigh(machine)
        return ()

    def kept_before(self, kept: KeptCpus) -> None:
        """Keep what an earlier executor was told last, before the first write to the kernel; the node's own rules win."""
        self._kept = KeptCpus(withheld=self._kept.withheld or kept.withheld, pinned=kept.pinned - self._kept.withheld)

    def keep(self, kept: KeptCpus) -> None:
        """Give these CPUs to nobody from now on, and write both pools. What the kernel refuses `reconcile` tries again."""
        with self._turn:
            before, self._wanted = self._kept, kept
            machine = self._tier.machine
            if machine is not None and not pools_of(machine.cpus, self._all_holds(), kept).be:
                self._wanted = None
                raise CgroupError(f"of the CPUs {machine.cpus} none would be left to batch work")
            self._kept = kept
            try:
                if machine is not None and kept != before:
                    self._settle(machine)
            except (CgroupError, OSError):
                self._kept = before
                if machine is not None:
                    with contextlib.suppress(CgroupError, OSError):
                        self._settle(machine)
                raise
            self._wanted = None

    def _all_holds(self) -> tuple[CpuHold, ...]:
        return (*self._holds.copy().values(), *(hold for hold, _ in self._attached.copy().values()))

    def _able_machine(self) -> MachineFacts:
        if not self._is_on:
            raise CpusRefused(Reason.RUNTIME_ABSENT, "the operator of this node admits no online work (setting online)")
        machine = self._tier.machine
        lacking = [knob.value for knob in NEEDED if machine is None or knob not in machine.has]
        if machine is None or lacking:
            raise CpusRefused(Reason.RUNTIME_ABSENT, f"the kernel of this node lacks {', '.join(lacking)}")
        try:
            self.tree.check_writable()
        except CgroupError as error:
            raise CpusRefused(Reason.RUNTIME_ABSENT, str(error)) from error
        return machine

    def _settle(self, machine: MachineFacts) -> CpuPools:
        """Write the CPUs of both pools as the holds leave them."""
        pools = pools_of(machine.cpus, self._all_holds(), self._kept)
        self._tier.sets.set_pool(pools.be, pools.be - pools.ls)
        for token, hold in sorted(self._holds.items()):
            if hold.qos.has_own_cpus or Knob.CPUSET_CPUS not in machine.has:
                continue
            cpus, _ = online_sets(hold, machine, pools)
            if not cpus:
                # Rules that leave none to it came while no executor ran: it stays where it is.
                continue
            with contextlib.suppress(FileNotFoundError):
                group = online_group(hold.qos, token)
                self.tree.write(KnobWrite(path=group, knob=Knob.CPUSET_CPUS, value=cpus.format()))
        self.own_changed()
        return pools

    def _weigh(self, machine: MachineFacts) -> None:
        for write in online_top_knobs(self._desired, machine, self._holds.values()):
            with contextlib.suppress(FileNotFoundError):
                self.tree.write(write)
