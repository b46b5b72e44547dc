"""The closed list of reasons that the scheduler, the executor, the evictor and the jobs service give, each with its sentence."""

from enum import StrEnum

__all__ = ["SENTENCES", "EndCause", "Reason"]


class Reason(StrEnum):
    """A reason code for programs; `SENTENCES[code]` is its text for people. Numbers travel in fields beside the code."""

    # The scheduler refuses a node for a replica. When a node has several reasons, the scheduler chooses the one that counts.
    TOPOLOGY_UNKNOWN = "topology-unknown"
    NODE_NOT_FRESH = "node-not-fresh"
    NODE_EXCLUDED = "node-excluded"
    BATCH_QUIESCED = "batch-quiesced"
    NODE_PAUSED = "node-paused"
    NODE_DRAINED = "node-drained"
    NODE_CORDONED = "node-cordoned"
    QOS_NOT_ADMITTED = "qos-not-admitted"
    NODE_OBSERVES = "node-observes"
    RUNTIME_ABSENT = "runtime-absent"
    BATCH_CPU_SHORT = "batch-cpu-short"
    BATCH_MEMORY_SHORT = "batch-memory-short"
    MID_TIER_OFF = "mid-tier-off"
    MID_CPU_SHORT = "mid-cpu-short"
    MID_MEMORY_SHORT = "mid-memory-short"
    ZONE_FIT_SHORT = "zone-fit-short"
    LABELS_DIFFER = "labels-differ"
    TAINT_NOT_TOLERATED = "taint-not-tolerated"
    COLOCATION_OFF = "colocation-off"
    BATCH_REPLICAS_MOST = "batch-replicas-most"
    LOAD_OVER_THRESHOLD = "load-over-threshold"
    CPU_SHORT = "cpu-short"
    MEMORY_SHORT = "memory-short"
    CPUS_SHORT = "cpus-short"
    CPU_BIND_CONFLICT = "cpu-bind-conflict"
    CPUS_NOT_WHOLE_CORES = "cpus-not-whole-cores"
    NUMA_POLICY_CONFLICT = "numa-policy-conflict"
    NUMA_NOT_ALIGNED = "numa-not-aligned"
    NUMA_EXCLUSIVE = "numa-exclusive"
    ZONES_TOO_MANY = "zones-too-many"
    HUGE_PAGES_SHORT = "huge-pages-short"
    DEVICE_UNKNOWN = "device-unknown"
    DEVICE_LAYOUT = "device-layout"
    DEVICE_SHORT = "device-short"
    RESERVATION_UNKNOWN = "reservation-unknown"
    RESERVATION_NOT_OWNED = "reservation-not-owned"
    RESERVATION_SHORT = "reservation-short"
    LEDGER_DISAGREES = "ledger-disagrees"
    # A placement decision is not carried out.
    LEDGER_CONFLICT = "ledger-conflict"
    ALREADY_HELD = "already-held"
    OLDER_ATTEMPT = "older-attempt"
    SHARD_LOST = "shard-lost"
    START_FAILED = "start-failed"
    CGROUP_REFUSED = "cgroup-refused"
    # The batch tier of a node is shrunk or given back.
    ONLINE_LOAD = "online-load"
    ONLINE_LOAD_FELL = "online-load-fell"
    ONLINE_STALL = "online-stall"
    ONLINE_STALL_CORES = "online-stall-cores"
    ONLINE_STALL_FELL = "online-stall-fell"
    ONLINE_STALL_OTHERWISE = "online-stall-otherwise"
    ONLINE_SLO = "online-slo"
    ONLINE_SLO_KEPT = "online-slo-kept"
    ONLINE_SLO_OTHERWISE = "online-slo-otherwise"
    MEMORY_BANDWIDTH = "memory-bandwidth"
    MEMORY_BANDWIDTH_FELL = "memory-bandwidth-fell"
    MEMORY_BANDWIDTH_OTHERWISE = "memory-bandwidth-otherwise"
    MEMORY_BANDWIDTH_UNKNOWN = "memory-bandwidth-unknown"
    BATCH_FROZEN = "batch-frozen"
    BATCH_THAWED = "batch-thawed"
    BATCH_THAWED_LIMIT = "batch-thawed-limit"
    BATCH_THAWED_OTHERWISE = "batch-thawed-otherwise"
    BATCH_THAWED_STOP = "batch-thawed-stop"
    LEASE_EXPIRED = "lease-expired"
    LEASE_RENEWED = "lease-renewed"
    LOAD_UNREADABLE = "load-unreadable"
    SHUTDOWN_RESTORE = "shutdown-restore"
    # A replica must leave.
    DISK_LIMIT = "disk-limit"
    MEMORY_WATERMARK = "memory-watermark"
    CPU_WATERMARK = "cpu-watermark"
    CPU_SATISFACTION = "cpu-satisfaction"
    ONLINE_STALLED = "online-stalled"
    ONLINE_SLO_BROKEN = "online-slo-broken"
    # A replica is stopped or lost.
    CANCELLED = "cancelled"
    NODE_LOST = "node-lost"
    TASK_DONE = "task-done"
    # A submission waits or is refused.
    QUEUE_FULL = "queue-full"
    NO_NODES = "no-nodes"
    REQUEST_MALFORMED = "request-malformed"


SENTENCES: dict[Reason, str] = {
    Reason.TOPOLOGY_UNKNOWN: "the node has not reported its topology yet",
    Reason.NODE_NOT_FRESH: "the node's facts are not fresh, so nothing may be added to it",
    Reason.NODE_EXCLUDED: "the node refused or evicted this replica a short while ago",
    Reason.BATCH_QUIESCED: "an operator stopped all batch work",
    Reason.NODE_PAUSED: "an operator paused batch work on the node",
    Reason.NODE_DRAINED: "an operator drains the node",
    Reason.NODE_CORDONED: "an operator cordoned the node, so it gets no new work",
    Reason.QOS_NOT_ADMITTED: "the node admits no work of this QoS class",
    Reason.NODE_OBSERVES: "the node only observes: its executor writes nothing, so no work is placed there",
    Reason.RUNTIME_ABSENT: "the node has no runtime for such work",
    Reason.BATCH_CPU_SHORT: "not enough batch CPU is allocatable on the node",
    Reason.BATCH_MEMORY_SHORT: "not enough batch memory is allocatable on the node",
    Reason.MID_TIER_OFF: "the node has no mid tier: mid_mode of the colocation policy is off there",
    Reason.MID_CPU_SHORT: "not enough CPU of the mid tier is allocatable on the node",
    Reason.MID_MEMORY_SHORT: "not enough memory of the mid tier is allocatable on the node",
    Reason.ZONE_FIT_SHORT: "the node has enough in sum, but no zones that the request may take together hold all of it",
    Reason.LABELS_DIFFER: "the node's labels are not those that the request asks for",
    Reason.TAINT_NOT_TOLERATED: "the node has a taint that the request does not tolerate",
    Reason.COLOCATION_OFF: "the node's operator admits no batch work there",
    Reason.BATCH_REPLICAS_MOST: "the node runs as many batch replicas as its operator allows",
    Reason.LOAD_OVER_THRESHOLD: "the node's load is above the threshold for new work",
    Reason.CPU_SHORT: "not enough CPU is free on the node",
    Reason.MEMORY_SHORT: "not enough memory is free on the node",
    Reason.CPUS_SHORT: "not enough CPUs of one's own are free on the node",
    Reason.CPU_BIND_CONFLICT: "the node binds CPUs in another way than the request requires",
    Reason.CPUS_NOT_WHOLE_CORES: "whole physical cores are required and the CPUs asked for are no multiple of a core's",
    Reason.NUMA_POLICY_CONFLICT: "the node's NUMA policy is another one than the request's",
    Reason.NUMA_NOT_ALIGNED: "the node has enough in sum, but not aligned as the NUMA policy requires",
    Reason.NUMA_EXCLUSIVE: "the zones are kept for replicas that stay in one zone, or that cross zones",
    Reason.ZONES_TOO_MANY: "the node has more zones than the prediction of its NUMA rule supports",
    Reason.HUGE_PAGES_SHORT: "not enough huge pages of that size are free on the node",
    Reason.DEVICE_UNKNOWN: "the node has no device of that kind",
    Reason.DEVICE_LAYOUT: "the node's devices do not lie together as the request requires, however many are free",
    Reason.DEVICE_SHORT: "not enough of the device is free on the node",
    Reason.RESERVATION_UNKNOWN: "no reservation of that name holds a place",
    Reason.RESERVATION_NOT_OWNED: "the reservation is kept for other owners",
    Reason.RESERVATION_SHORT: "the reservation has less left than the request asks for",
    Reason.LEDGER_DISAGREES: "what the ledger holds on the node does not agree with what the node is",
    Reason.LEDGER_CONFLICT: "another decision changed the node's ledger first",
    Reason.ALREADY_HELD: "this attempt of the replica already holds a place",
    Reason.OLDER_ATTEMPT: "a newer attempt of the replica is known here",
    Reason.SHARD_LOST: "another scheduler decides about this replica now",
    Reason.START_FAILED: "the replica's process could not be started",
    Reason.CGROUP_REFUSED: "the kernel refused a control group value",
    Reason.ONLINE_LOAD: "online load rose, batch CPU was shrunk",
    Reason.ONLINE_LOAD_FELL: "online load fell, batch CPU was given back",
    Reason.ONLINE_STALL: "online work waited for a CPU, batch CPU was shrunk to see whether that helps",
    Reason.ONLINE_STALL_CORES: "less batch work did not help online work, so it keeps to whole cores to see whether that does",
    Reason.ONLINE_STALL_FELL: "online work waits no longer, batch CPU was given back",
    Reason.ONLINE_STALL_OTHERWISE: "online work waited as long with less batch work, so batch CPU was given back",
    Reason.ONLINE_SLO: "online work broke the SLO of its latency too often, batch CPU was shrunk",
    Reason.ONLINE_SLO_KEPT: "online work keeps the SLO of its latency again, batch CPU was given back",
    Reason.ONLINE_SLO_OTHERWISE: "online work broke its SLO as well with batch work at the floor, so batch CPU was given back",
    Reason.MEMORY_BANDWIDTH: "memory carried nearly all that it sustains, batch CPU was shrunk",
    Reason.MEMORY_BANDWIDTH_FELL: "memory has room again, batch CPU was given back",
    Reason.MEMORY_BANDWIDTH_OTHERWISE: "memory carried as much with batch work at the floor, so batch CPU was given back",
    Reason.MEMORY_BANDWIDTH_UNKNOWN: "nobody can read any more what memory carries, so batch CPU was given back",
    Reason.BATCH_FROZEN: "online work was hurt for seconds with batch work at the floor, so batch work was frozen",
    Reason.BATCH_THAWED: "online work is hurt no longer, batch work runs again",
    Reason.BATCH_THAWED_LIMIT: "batch work was frozen for as long as it may be, and runs again",
    Reason.BATCH_THAWED_OTHERWISE: "online work was hurt as much with batch work frozen, so batch work runs again",
    Reason.BATCH_THAWED_STOP: "a replica is being ended, which a frozen process would not hear, so batch work runs again",
    Reason.LEASE_EXPIRED: "no lease came from the control plane for the lease time, batch steps down to the floor",
    Reason.LEASE_RENEWED: "leases come from the control plane again, batch CPU is restored",
    Reason.LOAD_UNREADABLE: "the node's load could not be read, batch CPU went to the floor",
    Reason.SHUTDOWN_RESTORE: "the executor left: batch CPU went to the floor, or the old values were put back",
    Reason.DISK_LIMIT: "its outputs and working directory took more of the node's disk than they may",
    Reason.MEMORY_WATERMARK: "memory in use stayed above the watermark",
    Reason.CPU_WATERMARK: "CPU in use stayed above the watermark",
    Reason.CPU_SATISFACTION: "batch work stayed starved of CPU below the satisfaction threshold",
    Reason.ONLINE_STALLED: "online work kept waiting for a CPU beside batch work",
    Reason.ONLINE_SLO_BROKEN: "online work kept breaking the SLO of its latency beside batch work",
    Reason.CANCELLED: "the job was cancelled",
    Reason.NODE_LOST: "the node sent no sample for the lost time",
    Reason.TASK_DONE: "the task's result was known before this replica ended",
    Reason.QUEUE_FULL: "the queue holds as many waiting replicas as it may",
    Reason.NO_NODES: "no node is known yet",
    Reason.REQUEST_MALFORMED: "the request breaks a rule, so no node was asked",
}


class EndCause(StrEnum):
    """Why a replica is no longer on its node."""

    EXITED = "exited"
    EVICTED = "evicted"
    STOPPED = "stopped"
    OOM = "oom"
    DISK = "disk"
    LOST = "lost"
    START_FAILED = "start-failed"
