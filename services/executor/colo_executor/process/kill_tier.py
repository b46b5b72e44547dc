"""The groups in which batch work is killed: without idle class or ceiling, because a process needs CPU to exit."""

import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.knob_table import Knob
from colo_executor.order import KnobWrite

__all__ = ["CONTROLLERS", "SUFFIX", "KillTier"]

SUFFIX: Final = "-leaving"
"""The name of the kill tier's subtree is that of the batch tier with this suffix."""

CONTROLLERS: Final = {1: ("cpu",), 2: ("cpu", "cpuset")}
"""The controllers of the subtree. v1 changes only the cpu group of a process; v2 moves it whole, so sets are copied."""

_ROUNDS: Final = 4
_WAITS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
_SETS: Final = (Knob.CPUSET_CPUS, Knob.CPUSET_MEMS)


class KillTier:
    """Moves the processes of a batch replica out of the batch tier and kills them.

    On a busy machine the idle class gets a few thousandths of a CPU and an exhausted ceiling nothing, so a killed process would
    free its memory only after seconds. This tier sends SIGKILL only; during its grace a replica stays in the batch tier.
    """

    def __init__(self, tree: CgroupTree) -> None:
        self.tree = tree

    def kill_now(self, home: CgroupTree, group: str, token: str) -> bool:
        """Whether the attempt has no process left, here or at home; else its processes are moved here and get SIGKILL.

        Where the kernel refuses the move, the processes are killed in their group.
        """
        with contextlib.suppress(CgroupError, OSError):
            self.move_out(home, group, token)
        # The moved processes first: a process that forks faster than it is moved may stay behind and die slowly.
        is_empty = self.tree.kill_now(token)
        is_empty = home.kill_now(group) and is_empty
        return is_empty and self.tree.remove_now(token)

    def kill(self, home: CgroupTree, group: str, token: str) -> bool:
        """`kill_now` until nothing is left; False when something stayed for about three seconds. Blocks."""
        return _until(lambda: self.kill_now(home, group, token))

    def left(self) -> tuple[str, ...]:
        """The attempts that an earlier executor was killing here."""
        return self.tree.children("")

    def clear_now(self) -> bool:
        """Kill and remove what an earlier executor left in this tier; False when something is still there."""
        return _whether(self._clear_each)

    def _clear_each(self) -> bool:
        # Each is tried, whatever becomes of the one before it.
        stayed = [token for token in self.left() if not _whether(partial(self._clear_one, token))]
        return not stayed

    def _clear_one(self, token: str) -> bool:
        return self.tree.kill_now(token) and self.tree.remove_now(token)

    def clear(self) -> bool:
        """`clear_now` until nothing is left; False when something stayed for about three seconds. Blocks."""
        return _until(self.clear_now)

    def move_out(self, home: CgroupTree, group: str, token: str) -> None:
        """Move the group's processes into this tier's group `token`, which keeps their CPU and memory sets.

        A process that forks faster than it is moved may stay behind. Raises CgroupError or OSError where the kernel refuses.
        """
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
                # The process may have exited by itself.
                with contextlib.suppress(CgroupError, OSError):
                    self.tree.attach(token, pid)
            pids = home.pids(group)
            if not pids:
                return


def _until(step: Callable[[], bool]) -> bool:
    for wait_s in (*_WAITS_S, 0):
        if _whether(step):
            return True
        time.sleep(wait_s)
    return False


def _whether(step: Callable[[], bool]) -> bool:
    """Whether the step succeeded; one that the kernel refused did not."""
    try:
        return step()
    except (CgroupError, OSError):
        return False
