"""What it means when the kernel refuses a write to a control group: the error's name as a sentence, and what to do."""

import errno
from collections.abc import Mapping
from typing import Final

__all__ = ["error_name", "what_refusal_means"]

_SAME: Final[Mapping[str, str]] = {"ENOTSUP": "EOPNOTSUPP"}
"""Linux has one number for both names, and Python has the one that no table and no manual page of control groups has."""

_READ_ONLY: Final = (
    "the control group file system is mounted for reading only; mount it for writing (in a container: privileged, or "
    "/sys/fs/cgroup of the host mounted rw)"
)
_RIGHTS: Final = "this process may not write there; run it as root, or let systemd delegate the group to its user"

_ANYWHERE: Final[Mapping[str, str]] = {
    "EACCES": _RIGHTS,
    "EAGAIN": "the kernel is out of something for a moment, which the next try may find",
    "EBADF": "the file was closed meanwhile; the next try writes it",
    "EBUSY": "the group is in use in a way that the value contradicts; it can be written when that use is over",
    "E2BIG": "the text is longer than the kernel takes at once",
    "EINVAL": "the kernel does not take this value for this group",
    "EINTR": "a signal came in between; the next try writes it",
    "EIO": "the kernel could not do it; its log (dmesg) may say why",
    "EMFILE": "this process has as many files open as it may; raise its limit (LimitNOFILE= of the unit), the next try writes it",
    "ENAMETOOLONG": "the name or the path of the group is longer than the kernel takes",
    "ENFILE": "the machine has as many files open as it may (fs.file-max); the next try writes it when some are closed",
    "ENODEV": "the group was removed meanwhile, and nothing is to be done",
    "ENOENT": "the group was removed meanwhile, or this kernel has no such file",
    "ENOMEM": "the kernel has no memory for it; free some, the next try writes it",
    "ENOSPC": "the kernel has no room for it there",
    "EOPNOTSUPP": "this kernel, or this kind of group, does not support it",
    "EPERM": f"the kernel forbids it to this process; {_RIGHTS.partition('; ')[2]}",
    "ERANGE": "the number is outside the range that the kernel takes",
    "EROFS": _READ_ONLY,
    "ESRCH": "the process has ended meanwhile, and nothing is to be done",
    "ELOOP": "there is a link where a control group belongs; remove it",
    "ENOTDIR": "there is something else where a control group belongs; remove it",
}
"""The meaning of an error whatever the file is."""

_SET_BUSY: Final = (
    "a group below still uses what would be taken away, or a group beside has it alone; narrow the groups below first"
)
_SET_EMPTY: Final = "the group has processes and would be left without any; give it at least one, or move its processes"
_OUTSIDE: Final = "is not within that of the group above, or is not online; widen the group above first"
_SETS: Final[Mapping[str, Mapping[str, str]]] = {
    "cpuset.cpus": {
        "EACCES": f"a CPU of it {_OUTSIDE}; or {_RIGHTS}",
        "EBUSY": _SET_BUSY,
        "EINVAL": f"a CPU of it {_OUTSIDE}; or a group beside has one exclusively",
        "ENOSPC": _SET_EMPTY,
        "ERANGE": "a CPU of it has a number beyond those that this kernel can have",
    },
    "cpuset.mems": {
        "EACCES": f"a memory zone of it {_OUTSIDE}; or {_RIGHTS}",
        "EBUSY": _SET_BUSY,
        "EINVAL": f"a memory zone of it {_OUTSIDE}, or has no memory",
        "ENOSPC": _SET_EMPTY,
        "ERANGE": "a memory zone of it has a number beyond those that this kernel can have",
    },
}
_BANDWIDTH: Final = (
    "its share of the period is above that of a group above, or below that of a group below, or the quota is below the burst; "
    "raise the groups above first, lower those below and the burst first"
)
_BELOW_USE: Final = (
    "the group uses more than that, and the kernel found nothing to take back; try a greater limit, or end processes"
)
_SWAP_ORDER: Final = (
    "the limit of memory may not be above that of memory and swap together (memory.memsw.limit_in_bytes); when growing raise that "
    "one first, when shrinking lower it last"
)
_OF_FILE: Final[Mapping[str, Mapping[str, str]]] = {
    **_SETS,
    "cpu.shares": {"EINVAL": "an idle group (cpu.idle) takes no weight; lift idle first"},
    "cpu.weight": {
        "EINVAL": "an idle group (cpu.idle) takes no weight; lift idle first",
        "ERANGE": "a weight is from 1 to 10000",
    },
    "cpu.bvt_warp_ns": {
        "EINVAL": "an identity is from -2 to 2; where this kernel takes none, because core scheduling is on or the feature is off, "
        "set process_desired_idle to no",
    },
    "cpu.idle": {"EINVAL": "idle is 0 or 1, and the root group is never idle"},
    "cpu.max": {
        "EINVAL": "the quota is below the burst (cpu.max.burst) or below 1000 us, or the period is not from 1000 to 1000000 us; "
        "lower the burst first (a smaller quota of a group above limits as well, and is no reason under cgroup v2)",
    },
    "cpu.cfs_quota_us": {"EINVAL": _BANDWIDTH},
    "cpu.cfs_period_us": {"EINVAL": f"a period is from 1000 to 1000000 us; or {_BANDWIDTH}"},
    "cpu.max.burst": {"EINVAL": "a burst may not be above the quota; raise the quota first"},
    "cpu.cfs_burst_us": {"EINVAL": "a burst may not be above the quota; raise the quota first"},
    "memory.limit_in_bytes": {"EBUSY": _BELOW_USE, "EINVAL": _SWAP_ORDER},
    "memory.memsw.limit_in_bytes": {
        "EBUSY": _BELOW_USE,
        "EINVAL": _SWAP_ORDER,
        "EOPNOTSUPP": "the kernel does not count swap (boot it with swapaccount=1)",
    },
    "memory.max": {"EINVAL": "a limit is a number of bytes or max"},
    "memory.swap.max": {"EOPNOTSUPP": "the kernel does not count swap (boot it with swapaccount=1)"},
    "pids.max": {"EINVAL": "a limit of processes is from 0 to 4194304 or max"},
    "cgroup.procs": {
        "EACCES": f"a process is moved by who may write both groups and the one above them; {_RIGHTS.partition('; ')[2]}",
        "EBUSY": "the group hands controllers down, and such a group takes no process (cgroup v2); use a group below it",
        "EINVAL": "the kernel moves no such process there (a thread of the kernel, or one of realtime work without a quota)",
        "ENODEV": "the group was removed meanwhile, or it has neither CPUs nor memory zones",
        "ENOSPC": "the group has no CPUs or no memory zones; write cpuset.cpus and cpuset.mems first",
        "EOPNOTSUPP": "the group is threaded, or a group above is, and takes no whole process; use another group",
    },
    "cgroup.subtree_control": {
        "EBUSY": "a group with processes hands no controller down, and a controller that a group below hands on stays (cgroup v2); "
        "move the processes into a group below",
        "EINVAL": "the kernel has no controller of that name",
        "ENOENT": "the group above does not hand that controller down; enable it there first",
        "EOPNOTSUPP": "a threaded group hands down threaded controllers only, and not memory",
    },
    "cgroup.type": {
        "EINVAL": "a group becomes threaded and never a domain again; make it anew",
        "EOPNOTSUPP": "it has processes or controllers that a threaded group cannot have",
    },
    "bpf:cgroup_device": {
        "EACCES": "the kernel's verifier refuses the program of device rules",
        "EINVAL": "the kernel lacks programs for devices (CONFIG_CGROUP_BPF)",
        "EPERM": "programs need CAP_SYS_ADMIN, and no group above may forbid further ones; give the executor that right",
        "E2BIG": "the group has as many programs as the kernel allows; detach others",
    },
    "devices.allow": {"EPERM": "the group above does not open this device, or this process lacks CAP_SYS_ADMIN"},
    "devices.deny": {"EPERM": "this process lacks CAP_SYS_ADMIN"},
}
"""The meaning of an error for one file, where it says more than for any other."""

_OF_STEP: Final[Mapping[str, Mapping[str, str]]] = {
    "mkdir": {
        "EAGAIN": "a group above allows no more groups, or none so deep (cgroup.max.descendants, cgroup.max.depth); raise it there",
        "EINVAL": "the name of a group has no line break",
        "ENOSPC": "the kernel has as many control groups as it can; remove empty ones",
        "ENOMEM": "the kernel has no memory for another group, or holds too many dead ones; free memory",
    },
    "rmdir": {"EBUSY": "the group still has a process or a group below it; end the processes first"},
}
"""The meaning of an error of something that is no write of a file."""
_UNKNOWN: Final = "the kernel gives no reason that is known here; its log (dmesg) may"


def error_name(number: int | None) -> str:
    """The name of an error as tables and manual pages have it, "error" for a number without one."""
    name = errno.errorcode.get(number or 0, "error")
    return _SAME.get(name, name)


def what_refusal_means(file_name: str, errno_name: str, step: str = "") -> str:
    """One clause for people: what probably happened, and what to do where something can be done.

    `file_name` is the name of the kernel's file alone ("cpu.max"). `step` is "mkdir" or "rmdir" where no file was written.
    """
    for table in (_OF_STEP.get(step, {}), _OF_FILE.get(file_name, {}), _ANYWHERE):
        if errno_name in table:
            return table[errno_name]
    return _UNKNOWN
