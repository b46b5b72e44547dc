"""The settings of the process runtime: its places on the machine and its limits."""

from typing import Literal

from msgspec import Struct

from colo_executor.desired import DesiredPolicy
from colo_executor.process.hygiene import Hygiene
from colo_executor.unmanaged import UnmanagedGroup

__all__ = ["ProcessPolicy"]


class ProcessPolicy(Struct, frozen=True, kw_only=True):
    """`subtree` names the executor's own group below every controller of `cgroup_root`; two executors must not share it.

    `window_ms` is the window of a fast reading. `path` is the PATH of replicas that set none. `command_prefix` precedes every
    command (for example `setpriv --reuid=batch --init-groups --no-new-privs --`). `users` says by the tenant of a job as which user
    (a name, a number, or a range of numbers, of which each job gets one) its replicas run instead; "*" is every other tenant, never
    root. Outputs and status of the last `attempts_kept` attempts that ended stay in `output_dir` ("": `state_dir`), which may be a
    file system of its own, and take `attempts_kept_bytes` together at most; a working directory there ends with its attempt. Each
    of the two outputs has at most twice `output_most_bytes`. `disk_limits` says by the tenant of a job what the outputs and the
    working directory of one of its replicas may take together ("10Gi"; "*": every other tenant), which is looked at every
    `disk_every_s`.
    `ceiling_by` says what keeps the ceiling: the quota alone, or `cpuset`: batch work also runs on no more CPUs than it needs.
    `devices` "given": where the kernel can say so, a batch replica opens the devices that every program expects, those of the
    kinds that it was given, and `device_files` (patterns below /dev).
    `unmanaged` are groups that colo did not make and what the operator wants kept there, `attach` the groups, or patterns of them,
    that jobs may be attached to, each for every tenant or, as "GROUP=TENANT|TENANT", for these. A launch that the kernel keeps
    waiting for `launch_most_s` has failed.
    """

    state_dir: str = "/var/lib/colo/executor"
    cgroup_root: str = "/sys/fs/cgroup"
    proc_root: str = "/proc"
    sys_root: str = "/sys"
    subtree: str = "colo"
    window_ms: int = 100
    command_prefix: tuple[str, ...] = ()
    users: dict[str, str] = {}
    path: str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    attempts_kept: int = 200
    attempts_kept_bytes: int = 8 << 30
    output_dir: str = ""
    output_most_bytes: int = 64 << 20
    disk_limits: dict[str, str] = {}
    disk_every_s: float = 10.0
    launch_most_s: float = 30.0
    ceiling_by: Literal["quota", "cpuset"] = "quota"
    devices: Literal["given", "all"] = "given"
    device_files: tuple[str, ...] = ()
    unmanaged: tuple[UnmanagedGroup, ...] = ()
    attach: tuple[str, ...] = ()
    hygiene: Hygiene = Hygiene()
    desired: DesiredPolicy = DesiredPolicy()
