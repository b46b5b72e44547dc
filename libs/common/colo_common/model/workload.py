"""The specification of a job: its tasks, their replicas, and what each replica runs and requests."""

from msgspec import Struct, field

from colo_common.model.constraints import UNCONSTRAINED, Constraints
from colo_common.model.qos import PriorityBand, QosClass

__all__ = ["AttachSpec", "JobSpec", "ResourceLimits", "ResourceRequest", "RunSpec", "TaskSpec"]


class ResourceRequest(Struct, frozen=True, kw_only=True):
    """CPU in milli-CPU and memory in bytes; both at least 1 in a valid request."""

    cpu_mcpu: int
    memory_bytes: int


class ResourceLimits(Struct, frozen=True, kw_only=True):
    """The most that a replica may use: CPU in milli-CPU and memory in bytes, each at least its request; 0 for no such limit.

    The request is what is promised, the limit is what the node enforces. Without a limit of memory the request is the limit, and
    without one of CPU a replica uses what is idle. `disk_bytes` is what its outputs and its working directory may take together;
    nothing is promised of it, and a replica above it ends.
    """

    cpu_mcpu: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0


class AttachSpec(Struct, frozen=True, kw_only=True):
    """A control group whose processes somebody else started: by `cgroup`, its path below the cgroup root, or by the systemd `unit`.

    Exactly one of both is set. With `kill_on_stop` a stop ends its processes; without, they run on without colo.
    """

    cgroup: str = ""
    unit: str = ""
    kill_on_stop: bool = False


class RunSpec(Struct, frozen=True, kw_only=True):
    """What a replica runs: a command on a real machine, or an amount of work on a simulated one; and how far it may go.

    `work_mcpu_ms` is CPU time in milli-CPU x ms (one CPU for one second = 1,000,000).
    `grace_ms` is the time between SIGTERM and SIGKILL. `directory` is where the command begins ("": one of its own).
    `attach`: in place of a command, a group that runs already.
    """

    command: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    work_mcpu_ms: int = 0
    grace_ms: int = 10_000
    limits: ResourceLimits | None = None
    directory: str = ""
    attach: AttachSpec | None = None


class TaskSpec(Struct, frozen=True, kw_only=True):
    """`replicas` equal replicas. `max_retry` counts failures of a replica, not evictions.

    `min_succeeded` None means all; `max_failed` None means 1: the first final failure fails the task.
    """

    name: str
    replicas: int
    request: ResourceRequest
    run: RunSpec
    max_retry: int = 0
    min_succeeded: int | None = None
    max_failed: int | None = None
    constraints: Constraints = UNCONSTRAINED


class JobSpec(Struct, frozen=True, kw_only=True):
    """A whole job. All its tasks share queue, QoS class and priority band; a higher `priority` goes first in its queue.

    `tenant` is who the job is for: what it holds is counted there.
    """

    name: str
    tasks: tuple[TaskSpec, ...]
    queue: str = "default"
    qos: QosClass = QosClass.BE
    band: PriorityBand = PriorityBand.BATCH
    priority: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    tenant: str = "default"

    @property
    def replica_count(self) -> int:
        """Replicas of all tasks."""
        return sum(task.replicas for task in self.tasks)
