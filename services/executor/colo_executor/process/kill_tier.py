"""Where batch work dies: a group that neither gives way nor has a ceiling, because a process needs CPU to die too."""

import contextlib
from typing import Final

from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.knobs import Knob
from colo_executor.order import KnobWrite

__all__ = ["CONTROLLERS", "SUFFIX", "KillTier"]

SUFFIX: Final = "-leaving"
"""What the name of the dying work's subtree has more than that of the batch work's."""

CONTROLLERS: Final = {1: ("cpu",), 2: ("cpu", "cpuset")}
"""What a process changes with the group: its CPU alone under v1. v2 moves everything, so CPUs and memory are kept the same."""

_ROUNDS: Final = 4
_SETS: Final = (Knob.CPUSET_CPUS, Knob.CPUSET_MEMS)


class KillTier:
    """Takes the processes of a batch replica out of the batch work's group, and kills them.

    Where all CPUs are wanted, the idle class gets a few thousandths of one and a spent ceiling nothing: a killed process would take
    seconds to let its memory go, and somebody waits for just that. Only SIGKILL is sent from here: what a replica does in its
    grace it does as batch work.
    """

    def __init__(self, tree: CgroupTree) -> None:
        self.tree = tree

    def kill(self, home: CgroupTree, group: str, token: str) -> bool:
        """SIGKILL until nothing of the group is left; False when something stayed for about three seconds. Blocks.

        Where the kernel refuses the way out, the processes are killed where they are.
        """
        with contextlib.suppress(CgroupError, OSError):
            self._take_out(home, group, token)
        # First those that were taken out: a process that forks faster than it is moved may be left behind, slow to die.
        gone = self.tree.kill(token)
        gone = home.kill(group) and gone
        with contextlib.suppress(CgroupError, OSError):
            if self.tree.exists(token):
                self.tree.remove(token)
        return gone

    def clear(self) -> bool:
        """Kill and remove whatever an earlier executor left here; False when something stayed."""
        gone = True
        for token in self.tree.children(""):
            gone = self.tree.kill(token) and self.tree.remove(token) and gone
        return gone

    def _take_out(self, home: CgroupTree, group: str, token: str) -> None:
        pids = home.pids(group)
        if not pids:
            return
        self.tree.make("")
        self.tree.make(token)
        has = self.tree.has()
        for knob in _SETS:
            if knob in has:
                self.tree.write(KnobWrite(path=token, knob=knob, value=home.value(knob, group)))
        for _ in range(_ROUNDS):
            for pid in pids:
                # It may have ended by itself.
                with contextlib.suppress(CgroupError, OSError):
                    self.tree.attach(token, pid)
            pids = home.pids(group)
            if not pids:
                return
