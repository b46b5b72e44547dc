"""What a replica's processes inherit beside their control group: who the kernel ends first, and limits of a process."""

import contextlib
import ctypes
import os
import platform
import resource
from typing import Final

from msgspec import Struct

from colo_executor.process.core_cookies import CoreScheduling
from colo_executor.process.namespaces import Namespaces

__all__ = ["Hygiene", "settle"]


_EVERY_CPU: Final = range(8_192)
"""More numbers than a machine has CPUs; those that it has not are left out."""

_IOPRIO_SET: Final = {"x86_64": 251, "aarch64": 30, "riscv64": 30}
"""The number of the system call by machine; the C library has no function for it."""
_OF_A_PROCESS: Final = 1
"""`IOPRIO_WHO_PROCESS` of ioprio_set(2)."""


class Hygiene(Struct, frozen=True, kw_only=True):
    """`*_oom_score_adj` (-1000 to 1000): whom the kernel ends first when the machine lacks memory; batch work before all else.

    `open_files_most` limits the descriptors of a process, `core_bytes_most` the size of a core file. `no_new_privs`: no
    program that a replica runs gains rights by its file (setuid); it needs `setpriv`. `namespaces`: whether a replica has a PID
    and a mount namespace of its own; `auto` where the machine permits it. It needs `unshare` and CAP_SYS_ADMIN.
    `core_scheduling`: where the kernel has it, batch work shares the threads of a core with no online work, and with no other
    `tenant`'s or `replica`'s.
    """

    batch_oom_score_adj: int = 1_000
    online_oom_score_adj: int = 0
    open_files_most: int = 65_536
    core_bytes_most: int = 0
    no_new_privs: bool = True
    namespaces: Namespaces = "auto"
    core_scheduling: CoreScheduling = "no"


def settle(hygiene: Hygiene, proc_root: str, pid: int, *, is_online: bool) -> None:
    """Set what the processes of a replica inherit, on the process that waits at its gate. Raises OSError.

    Limits are only ever lowered. A score below its own needs a right that the executor may lack; the process keeps it then.

    How the executor itself is scheduled is not inherited. One that is pinned to CPUs (CPUAffinity= of systemd) would keep its
    replicas on these within every CPU set; a realtime one would let batch work go before everything, or the kernel take none of it.
    The class of its I/O is not inherited either: work that has none follows its niceness.
    """
    os.sched_setaffinity(pid, _EVERY_CPU)
    with contextlib.suppress(PermissionError):
        if os.sched_getscheduler(pid) != os.SCHED_OTHER:
            os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, pid, 0)
    if call := _IOPRIO_SET.get(platform.machine()):
        # It fails where it may not be set, as for a process that is gone, of which the next call speaks.
        ctypes.CDLL(None).syscall(call, _OF_A_PROCESS, pid, 0)
    score = hygiene.online_oom_score_adj if is_online else hygiene.batch_oom_score_adj
    with contextlib.suppress(PermissionError), open(os.path.join(proc_root, str(pid), "oom_score_adj"), "w") as file:
        file.write(str(score))
    # Realtime work is stopped by no weight and no quota.
    of_batch = () if is_online else ((resource.RLIMIT_RTPRIO, 0), (resource.RLIMIT_NICE, 0))
    for kind, most in (
        (resource.RLIMIT_NOFILE, hygiene.open_files_most),
        (resource.RLIMIT_CORE, hygiene.core_bytes_most),
        *of_batch,
    ):
        _, hard = resource.prlimit(pid, kind)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.prlimit(pid, kind, (limit, limit))
