"""A control group that somebody else made and a replica is attached to: whether it still runs, and what it used since."""

import contextlib
import time
from typing import Final, Literal

from colo_common.model.placement import Placement
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.journal_lines import AttachedTo
from colo_executor.local import ReplicaExited

__all__ = ["AttachedUse", "attached_to"]

_OOM_WITHIN_S: Final = 5.0


def attached_to(tree: CgroupTree, group: str, path: str, boot_id: str) -> AttachedTo:
    """The group as it is now, by which it is known again; `path` is its name below the cgroup root, `group` that in the tree."""
    cpu_used_us, oom_kills, peak_bytes = _counters(tree, group)
    return AttachedTo(
        group=path,
        identity=tree.identity(group),
        boot_id=boot_id,
        cpu_used_us=cpu_used_us,
        oom_kills=oom_kills,
        memory_peak_bytes=peak_bytes,
    )


class AttachedUse:
    """The use of one attached group. What was read last counts when the group is gone, so it has to be looked at regularly."""

    def __init__(self, tree: CgroupTree, group: str, to: AttachedTo, boot_id: str) -> None:
        """`boot_id` is that of now."""
        self.to = to
        self._is_let_go, self._is_killed = False, False
        self._tree = tree
        self._group = group
        self._is_of_this_boot = to.boot_id == boot_id
        self._cpu_used_us, self._oom_kills, self._peak_bytes = to.cpu_used_us, to.oom_kills, to.memory_peak_bytes
        self._seen_bytes = 0
        self._oom_at_s: float | None = None

    def is_there(self) -> bool:
        """Whether the group is the one that the replica was attached to, and none that was made later with its name."""
        try:
            return self._is_of_this_boot and self._tree.identity(self._group) == self.to.identity
        except CgroupError:
            return False
        except OSError:
            # A process that may open no more files sees no group at all.
            return self._is_of_this_boot

    def let_go_or_kill(self, placement: Placement, how: Literal["term", "kill"]) -> bool:
        """Note a stop: True when the job lets no process be ended, so that the attachment ends at once."""
        attach = placement.run.attach
        self._is_let_go = attach is None or not attach.kill_on_stop
        self._is_killed = self._is_killed or (not self._is_let_go and how == "kill")
        return self._is_let_go

    @property
    def may_kill(self) -> bool:
        """Whether the processes are to be killed now: of this group, and of no later one of its name."""
        return self._is_killed and self.is_there()

    def runs(self) -> bool:
        """Whether the group is there and has a process, as far as that can be known; reads what it used."""
        if not self.is_there():
            return False
        with contextlib.suppress(CgroupError, OSError, ValueError):
            before = self._oom_kills
            self._cpu_used_us, self._oom_kills, self._peak_bytes = _counters(self._tree, self._group)
            if self._oom_kills > before:
                self._oom_at_s = time.monotonic()
            self._seen_bytes = max(self._seen_bytes, self._tree.memory_used_bytes(self._group))
        try:
            return bool(self._tree.pids(self._group))
        except (CgroupError, OSError):
            # Nobody has said that it has none.
            return True

    def exited(self, placement: Placement) -> ReplicaExited:
        """How the attachment ended. Nobody here is the parent of these processes, so that their exit code is not known.

        The peak of memory is the kernel's where the group reached it since it was attached, else the most that was seen. That it
        ran out of memory ended it where a process was killed for it within the last seconds.
        """
        runs_on = self._is_let_go and self.runs()
        kills = max(0, self._oom_kills - self.to.oom_kills)
        is_new_peak = self._peak_bytes > self.to.memory_peak_bytes
        is_oom = not runs_on and self._oom_at_s is not None and time.monotonic() - self._oom_at_s < _OOM_WITHIN_S
        what = (
            "runs on without colo" if runs_on else "has no process any more, and who started them knows how they ended"
        )
        killed = f"; the kernel killed {kills} of its processes for lack of memory" if kills else ""
        return ReplicaExited(
            replica=placement.replica,
            attempt=placement.attempt,
            exit_code=None,
            oom=is_oom,
            cpu_used_ms=max(0, self._cpu_used_us - self.to.cpu_used_us) // 1_000,
            detail=f"{self.to.group} {what}{killed}",
            memory_peak_bytes=self._peak_bytes if is_new_peak else self._seen_bytes,
        )


def _counters(tree: CgroupTree, group: str) -> tuple[int, int, int]:
    """CPU time (us), processes killed for lack of memory, and the peak of memory, since the group was made."""
    return tree.cpu_used_us(group), tree.oom_kills(group), tree.memory_peak_bytes(group)
