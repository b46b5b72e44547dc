"""The control group of the watchdog, beside the tiers: who ends the executor's own groups, as a kubelet does, leaves it alone."""

import signal
from typing import Final

from colo_executor.cgroup import CgroupTree
from colo_executor.group_signals import send
from colo_executor.knob_table import Knob
from colo_executor.order import KnobWrite
from colo_executor.process.machine import machine_of

__all__ = ["WATCHDOG_SUFFIX", "WatchdogGroup"]

WATCHDOG_SUFFIX: Final = "-watchdog"
"""The name of the watchdog's group is that of the batch tier with this suffix."""


class WatchdogGroup:
    """One top group without any limit, in every hierarchy. Its weight is the kernel's default: on a busy machine it has to run."""

    def __init__(self, tree: CgroupTree, sys_root: str) -> None:
        self.tree = tree
        self._sys_root = sys_root

    def take(self, pid: int) -> None:
        """Move the process here, then end those that earlier executors left here: one of them watches at any time.

        Raises CgroupError or OSError where the kernel refuses the move; nothing is ended then.
        """
        self.tree.make("")
        has = self.tree.has()
        if self.tree.version == 1 and Knob.CPUSET_CPUS in has:
            # Under v1 a new group has neither CPUs nor memory, and takes no process.
            machine = machine_of(self._sys_root, has)
            self.tree.write(KnobWrite(path="", knob=Knob.CPUSET_CPUS, value=machine.cpus.format()))
            self.tree.write(KnobWrite(path="", knob=Knob.CPUSET_MEMS, value=machine.mems.format()))
        self.tree.attach("", pid)
        send(signal.SIGKILL, set(self.tree.pids("")) - {pid}, lambda: self.tree.pids(""))

    def end(self) -> bool:
        """End every watchdog that is here; False when one stayed. Blocks for at most about a second and a half."""
        return self.tree.kill("")
