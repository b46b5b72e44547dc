"""Response bodies of the questions about the present state: status, services, nodes, tenants, queues, what would fit."""

from msgspec import Struct

from colo_common.events.enforcement import DriftCorrected, EnforcementChanged, OwnCpusOpened
from colo_common.events.fleet import FleetTotals, NodeDetail, NodeReplicas, TenantSummary
from colo_common.events.placement import NearestMiss, ReasonCount
from colo_common.events.requests import QueueSummary
from colo_common.events.status import ServiceStatus
from colo_common.model.restriction import Restriction
from colo_common.ports import Backlog
from colo_gateway.event_line import EventLine
from colo_gateway.harm_reply import HarmSummary, LatencySummary
from colo_gateway.recent import RecentCounts

__all__ = [
    "Finding",
    "FitsReply",
    "NodeReply",
    "QueuesReply",
    "ServiceEntry",
    "ServicesReply",
    "StatusReply",
    "TaskFits",
    "TenantsReply",
]


class ServiceEntry(Struct, frozen=True, kw_only=True):
    """One service. `is_ready`: at least one instance answers and says that it is ready; otherwise `why` says why not.

    `pending` messages of its durable consumers are not delivered yet, `unacknowledged` ones are being worked on; both also grow
    while it is stopped. They are None when the bus did not say. `dead_letters` counts those of the last ten minutes.
    """

    service: str
    is_ready: bool
    why: str
    instances: tuple[ServiceStatus, ...]
    pending: int | None = None
    unacknowledged: int | None = None
    consumers: tuple[Backlog, ...] = ()
    dead_letters: int = 0


class ServicesReply(Struct, frozen=True, kw_only=True):
    """The control services in the order in which work passes them. `missing` names what could not be found out."""

    services: tuple[ServiceEntry, ...]
    at_ms: int
    clock_speed: float
    missing: tuple[str, ...] = ()


class Finding(Struct, frozen=True, kw_only=True):
    """Something that is wrong, in one sentence, and the command that shows more or puts it right."""

    what: str
    do: str


class StatusReply(Struct, frozen=True, kw_only=True):
    """One screen about everything. `is_well`: there are no findings. `restrictions` are what operators forbid now.

    `fleet` or `queues` is None when its service does not answer; `missing` then says so. Times and spans are by the services'
    clock, which runs `clock_speed` times as fast as the wall in a lab.
    """

    is_well: bool
    at_ms: int
    clock_speed: float
    version: str
    services: tuple[ServiceEntry, ...]
    fleet: FleetTotals | None
    queues: tuple[QueueSummary, ...] | None
    recent: RecentCounts
    harm: HarmSummary
    findings: tuple[Finding, ...]
    restrictions: tuple[Restriction, ...] = ()
    missing: tuple[str, ...] = ()
    latency: LatencySummary = LatencySummary(sentence="")


class NodeReply(Struct, frozen=True, kw_only=True):
    """A node, the replicas on it, the newest ceiling of its batch tier with the reason, and its newest lines
    of the history, newest last.

    `replicas` is None when the jobs service does not answer; `missing` then says so. `ceiling` is None before the gateway has heard
    of one. `withheld`: what the executor would write there and does not, because the node or a rule only observes, or an operator
    holds the node. `open_cpus`: CPUs that LSE or LSR work has as its own, and that processes of others may use, too.
    """

    node: NodeDetail
    replicas: NodeReplicas | None
    ceiling: EnforcementChanged | None
    changes: tuple[EventLine, ...]
    restrictions: tuple[Restriction, ...] = ()
    missing: tuple[str, ...] = ()
    withheld: DriftCorrected | None = None
    open_cpus: OwnCpusOpened | None = None


class TenantsReply(Struct, frozen=True, kw_only=True):
    """Tenants with what they hold; `fleet` is what all could hold, None when the overcommit service does not answer.

    `total` counts all tenants, `next` is the cursor of the next page, "" at the end.
    """

    tenants: tuple[TenantSummary, ...]
    total: int
    fleet: FleetTotals | None
    missing: tuple[str, ...] = ()
    next: str = ""


class QueuesReply(Struct, frozen=True, kw_only=True):
    """Queues with what they hold; `fleet` is what all could hold, None when the overcommit service does not answer.

    `total` counts all queues, `next` is the cursor of the next page, "" at the end.
    """

    queues: tuple[QueueSummary, ...]
    fleet: FleetTotals | None
    missing: tuple[str, ...] = ()
    total: int = 0
    next: str = ""


class TaskFits(Struct, frozen=True, kw_only=True):
    """How many equal replicas of a task would find a place now if nothing else were submitted, and where (100 nodes at most).

    `fits` stops at `most`, the number that was tried. `wanted` is what the job file asks for. When fewer fit than were tried,
    `counts` is the number of nodes by reason and `nearest` the node that came closest to one more; `never`: no node could hold one
    even when it is empty.
    """

    task: str
    cpu_mcpu: int
    memory_bytes: int
    wanted: int
    fits: int
    most: int
    nodes: tuple[tuple[str, int], ...] = ()
    counts: tuple[ReasonCount, ...] = ()
    nearest: NearestMiss | None = None
    never: bool = False


class FitsReply(Struct, frozen=True, kw_only=True):
    """What would fit on the `nodes` known at `at_ms`, each task alone; `waiting` replicas of other jobs may come first.

    `notes` say what of the file was taken otherwise than it is written, or not at all.
    """

    at_ms: int
    qos: str
    nodes: int
    waiting: int
    tasks: tuple[TaskFits, ...]
    notes: tuple[str, ...] = ()
