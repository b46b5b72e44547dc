"""The batch tier of this machine: its groups, its ceiling, and putting everything back."""

import contextlib
import threading

from colo_common.events.enforcement import KnobValue
from colo_common.model.placement import Placement
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.desired import BATCH, DesiredPolicy, Machine, replica_knobs, replica_quota_us, tier_knobs
from colo_executor.journal import JournalFile
from colo_executor.journal_lines import Created, PreImage
from colo_executor.knobs import PERIOD_US, UNLIMITED, Knob, quota_us
from colo_executor.local import CeilingRefused, CeilingWritten
from colo_executor.order import KnobWrite, quota_writes
from colo_executor.process.machine import machine_of
from colo_executor.process.settings import ProcessPolicy

__all__ = ["Tier", "group_of"]


def group_of(token: str) -> str:
    """The group of a replica attempt, relative to the subtree."""
    return f"{BATCH}/{token}"


class Tier:
    """Owns the subtree. Methods raise CgroupError or OSError; calls that touch quotas take turns."""

    def __init__(self, policy: ProcessPolicy, journal: JournalFile) -> None:
        self._policy = policy
        self._desired: DesiredPolicy = policy.desired
        self._journal = journal
        self._turn = threading.Lock()
        self._quotas: dict[str, int] = {}
        self._requests: dict[str, int] = {}
        self._machine: Machine | None = None
        self.ceiling_mcpu: int | None = None
        self.tree = CgroupTree(
            policy.cgroup_root,
            policy.subtree,
            created=self._note_created,
            changing=lambda path, value: journal.append(PreImage(path=path, value=value)),
        )
        self.tree.own(journal.state.created)

    def prepare(self) -> None:
        """Make the subtree and its batch group, set the tier's knobs, and read the ceiling that is there."""
        self.tree.make("")
        has = self.tree.has()
        self._machine = machine_of(self._policy.sys_root, has)
        writes = tier_knobs(self._desired, self._machine, None)
        for write in writes:
            if write.path == "":
                self._set(write)
        self.tree.make(BATCH)
        for write in writes:
            if write.path != "":
                self._set(write)
        quota = self.tree.quota_us(BATCH)
        self._quotas = {BATCH: quota}
        self.ceiling_mcpu = None if quota == UNLIMITED else quota * 1_000 // PERIOD_US

    def add(self, token: str, placement: Placement) -> tuple[KnobValue, ...]:
        """Make the attempt's group with all its values; on failure nothing is left."""
        if self._machine is None:
            raise CgroupError("the batch tier is not prepared")
        group = group_of(token)
        if self.tree.exists(group):
            raise CgroupError(f"the control group {group} exists already")
        with self._turn:
            try:
                self.tree.make(group)
                writes = replica_knobs(self._desired, self._machine, placement, group, self.ceiling_mcpu)
                knobs = tuple(self.tree.write(write) for write in writes)
            except (CgroupError, OSError):
                self.tree.remove(group)
                raise
            if self._desired.cap_at_request:
                self._requests[group] = placement.cpu_mcpu
                self._quotas[group] = replica_quota_us(self._desired, placement.cpu_mcpu, self.ceiling_mcpu)
        return knobs

    def known(self, token: str, placement: Placement) -> None:
        """An attempt of an earlier executor is adopted: its quota follows the ceiling again."""
        if self._desired.cap_at_request:
            with self._turn, contextlib.suppress(CgroupError, OSError):
                group = group_of(token)
                self._quotas[group] = self.tree.quota_us(group)
                self._requests[group] = placement.cpu_mcpu

    def drop(self, token: str) -> bool:
        """Remove the attempt's group; False when the kernel would not let it go."""
        group = group_of(token)
        with self._turn:
            self._quotas.pop(group, None)
            self._requests.pop(group, None)
        return self.tree.remove(group)

    def set_ceiling(self, ceiling_mcpu: int) -> CeilingWritten | CeilingRefused:
        """Write the tier's quota, and those of capped replicas that it would undercut, in an order that the kernel takes."""
        with self._turn:
            want = {BATCH: quota_us(ceiling_mcpu)}
            for group, request_mcpu in self._requests.items():
                want[group] = replica_quota_us(self._desired, request_mcpu, ceiling_mcpu)
            have = {group: self._quotas.get(group, UNLIMITED) for group in want}
            knobs = []
            try:
                for write in quota_writes(have, want):
                    knobs.append(self.tree.write(write))
                    self._quotas[write.path] = want[write.path]
            except (CgroupError, OSError) as error:
                return CeilingRefused(ceiling_mcpu=ceiling_mcpu, detail=str(error))
            self.ceiling_mcpu = ceiling_mcpu
            return CeilingWritten(ceiling_mcpu=ceiling_mcpu, knobs=tuple(knobs))

    def restore(self) -> tuple[str, ...]:
        """Remove the own groups and put every old value back; what could not be done, one sentence each."""
        failures = []
        self._let_die()
        for token in self.tree.children(BATCH):
            self.tree.kill(group_of(token))
            if not self.tree.remove(group_of(token)):
                failures.append(f"{group_of(token)} could not be removed")
        for path in reversed(self._journal.state.created):
            if not self.tree.remove_path(path):
                failures.append(f"{path} could not be removed")
        for path, value in reversed(list(self._journal.state.pre_images.items())):
            try:
                self.tree.put_back(path, value)
            except FileNotFoundError:
                continue
            except (CgroupError, OSError) as error:
                failures.append(str(error))
        if not failures:
            self._journal.forget()
        return tuple(failures)

    def _let_die(self) -> None:
        """Lift the ceiling and the idle class: on a busy machine a process that gets no CPU does not die of SIGKILL either."""
        with self._turn:
            for write in (
                KnobWrite(path="", knob=Knob.CPU_IDLE, value=0),
                KnobWrite(path=BATCH, knob=Knob.CPU_QUOTA, value=UNLIMITED),
            ):
                with contextlib.suppress(CgroupError, OSError):
                    self.tree.write(write)

    def _set(self, write: KnobWrite) -> None:
        # The weight file refuses every write while idle is set, and idle is the stronger of the two.
        if write.knob is Knob.CPU_WEIGHT and self._desired.idle and self._is_idle():
            return
        self.tree.write(write)

    def _is_idle(self) -> bool:
        if self._machine is None or Knob.CPU_IDLE not in self._machine.has:
            return False
        return self.tree.value(Knob.CPU_IDLE, "") == "1"

    def _note_created(self, path: str) -> None:
        # Groups of attempts need no note of their own: everything below the tier is removed with it.
        if not path.rpartition("/")[0].endswith(f"{self._policy.subtree}/{BATCH}"):
            self._journal.append(Created(path=path))
