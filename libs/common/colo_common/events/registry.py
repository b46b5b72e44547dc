"""One table of every subject with its type, owner, stream and encoding. Documents, streams and decoders are made from it."""

from enum import StrEnum
from functools import lru_cache
from typing import Final

from msgspec import Struct

from colo_common.events import requests as rq
from colo_common.events.audit import RequestAudited
from colo_common.events.enforcement import (
    AttachedGroupsChanged,
    DriftCorrected,
    EnforcementChanged,
    NodeRecovered,
    OwnCpusOpened,
    PlacementRefused,
    ReplicaEnded,
    ReplicaStarted,
)
from colo_common.events.eviction import EvictionFinished, EvictionRequested, EvictReplica, NodeDrained
from colo_common.events.external import (
    ClearExternalCapacity,
    ExternalCapacityChanged,
    NodeExternal,
    SetExternalCapacity,
)
from colo_common.events.fact import Fact
from colo_common.events.fleet import (
    FleetTotals,
    GetFleet,
    GetNode,
    ListNodeReplicas,
    ListTenants,
    NodeDetail,
    NodeReplicas,
    TenantList,
)
from colo_common.events.job import (
    JobStateChanged,
    JobSubmitted,
    MidPlacementsRequested,
    PlacementsRequested,
    QueueChanged,
    ReplicasChanged,
    ReplicasWithdrawn,
    StopReplicas,
)
from colo_common.events.kernel import ListKernelGroups, NodeKernelGroups
from colo_common.events.metric import MetricTaken, PushMetric
from colo_common.events.node import (
    AllocatableChanged,
    FreshnessChanged,
    LeaseRenewed,
    MemoryEventsGrew,
    NodeFactsWanted,
    NodeTopologyReported,
    NodeUsageSampled,
    PressureCrossed,
)
from colo_common.events.placement import (
    ApplyPlacements,
    PlacementRejected,
    PlacementsDecided,
    PlacementsReleased,
    PreemptionProposed,
)
from colo_common.events.policy import (
    ApplyPolicy,
    GetPolicy,
    PolicyChanged,
    PolicyPreview,
    PolicyReply,
    PreviewPolicy,
    RollbackPolicy,
)
from colo_common.events.reservation import ReservationChanged
from colo_common.events.restriction import (
    LiftRestrictions,
    ListRestrictions,
    RestrictionList,
    RestrictionsApplied,
    RestrictionsChanged,
    SetRestriction,
)
from colo_common.events.service import DeadLettered, SpansFinished
from colo_common.events.started import StartedReplicas, StartedReply
from colo_common.events.status import GetServiceStatus, ServiceStatus
from colo_common.events.subjects import PREFIX, Subject, matches
from colo_common.events.waiting import ExplainWait, JobWait

__all__ = [
    "DISK_BYTES",
    "EVENTS",
    "REQUESTS",
    "STREAMS",
    "STREAMS_VERSION",
    "Event",
    "RequestSpec",
    "Stream",
    "event_of",
    "keeps_last_only",
    "reaches_each",
    "request_spec_of",
    "request_subject",
    "subject_of",
]


class Stream(StrEnum):
    """JetStream streams. NODE keeps the last message of each subject for seven days; EVT, ASK and RUN keep every message for seven
    days; CMD keeps a message until it is acknowledged; POLICY keeps the last message of each subject for ever;
    DEAD keeps dead letters for 30 days, until they are replayed or dropped, and however many they are they displace no other fact.
    AUDIT keeps for 90 days who changed something through the gateway, and other facts displace none of it.

    At its limit of bytes CMD refuses the next message and the publisher waits: no order that waits for its node is discarded. The
    other streams discard their oldest messages.

    A server stores (and may have to sync) the messages of a stream one after the other. Placement requests (ASK) must not wait for
    the facts of executors (RUN: several for each placement, from every node) or for other events, so each has its own stream.
    """

    NODE = "COLO_NODE"
    EVT = "COLO_EVT"
    ASK = "COLO_ASK"
    RUN = "COLO_RUN"
    CMD = "COLO_CMD"
    DEAD = "COLO_DEAD"
    AUDIT = "COLO_AUDIT"
    POLICY = "COLO_POLICY"


class StreamLimits(Struct, frozen=True, kw_only=True):
    """Limits of a stream: subjects, messages per subject (-1: no limit), age, bytes, and the window of the duplicate check."""

    subjects: tuple[str, ...]
    max_msgs_per_subject: int = -1
    max_age_s: int = 0
    max_bytes: int
    work_queue: bool = False
    duplicate_window_s: int = 120


# The bytes are for 10,000 nodes, and `docs/retention.md` says how long each stream then keeps a fact.
STREAMS: Final[dict[Stream, StreamLimits]] = {
    # A live node reports its topology every hour or more often; older messages are of nodes that left for good.
    Stream.NODE: StreamLimits(
        subjects=(f"{PREFIX}.evt.node.>",), max_msgs_per_subject=1, max_age_s=7 * 86_400, max_bytes=1 << 30
    ),
    Stream.EVT: StreamLimits(
        subjects=tuple(
            f"{PREFIX}.evt.{domain}"
            for domain in (
                "eviction.>",
                "freshness.>",
                "job.>",
                "placement.>",
                "pressure.>",
                "queue.>",
                "replica.changed",
                "reservation.>",
            )
        ),
        max_age_s=7 * 86_400,
        max_bytes=24 << 30,
    ),
    # Made after EVT, which had these subjects in older versions: two streams must not share a subject.
    Stream.ASK: StreamLimits(
        subjects=tuple(f"{PREFIX}.evt.replica.{what}" for what in ("requested", "withdrawn")),
        max_age_s=7 * 86_400,
        max_bytes=3 << 30,
    ),
    Stream.RUN: StreamLimits(subjects=(f"{PREFIX}.evt.enforcement.>",), max_age_s=7 * 86_400, max_bytes=8 << 30),
    Stream.DEAD: StreamLimits(subjects=(f"{PREFIX}.evt.dead-letter.>",), max_age_s=30 * 86_400, max_bytes=256 << 20),
    Stream.AUDIT: StreamLimits(subjects=(f"{PREFIX}.evt.audit.>",), max_age_s=90 * 86_400, max_bytes=256 << 20),
    Stream.CMD: StreamLimits(subjects=(f"{PREFIX}.cmd.>",), max_age_s=86_400, max_bytes=2 << 30, work_queue=True),
    # What an operator forbade holds until it is lifted, so the message that says so does not grow too old.
    Stream.POLICY: StreamLimits(subjects=(f"{PREFIX}.evt.policy.>",), max_msgs_per_subject=1, max_bytes=64 << 20),
}


#: The version of STREAMS: a change of a stream's limits or subjects adds one. A program waits for a stream of an older version
#: (`colo admin upgrade`) and takes one of a newer version as it is.
STREAMS_VERSION: Final = 1
#: The disk of one server that all streams together may fill.
DISK_BYTES: Final = sum(limits.max_bytes for limits in STREAMS.values())


class Event(Struct, frozen=True, kw_only=True):
    """One row: a subject carries one type, one service owns it, one stream (or none) keeps it."""

    subject: Subject
    body: type[Fact]
    owner: str
    stream: Stream | None
    meaning: str

    @property
    def encoding(self) -> str:
        """Telemetry is MessagePack, everything else JSON."""
        return "msgpack" if self.subject.kind == "tlm" else "json"


class RequestSpec(Struct, frozen=True, kw_only=True):
    """One request subject with its two types and the service that answers."""

    subject: Subject
    body: type[Struct]
    reply: type[Struct]
    owner: str
    meaning: str
    #: Whether the request changes something, so that it must be refused while nothing can be recorded or published.
    changes: bool = False
    #: Whether every instance of the service receives the request, instead of one of them: each answers for itself, or only the one
    #: that holds what the request is about.
    to_each: bool = False


def _event(template: str, body: type[Fact], owner: str, stream: Stream | None, meaning: str) -> Event:
    return Event(subject=Subject(template), body=body, owner=owner, stream=stream, meaning=meaning)


def _request_spec(
    template: str,
    body: type[Struct],
    reply: type[Struct],
    owner: str,
    meaning: str,
    *,
    changes: bool = False,
    to_each: bool = False,
) -> RequestSpec:
    return RequestSpec(
        subject=Subject(template),
        body=body,
        reply=reply,
        owner=owner,
        meaning=meaning,
        changes=changes,
        to_each=to_each,
    )


EVENTS: Final[tuple[Event, ...]] = (
    _event("tlm.node.{node}.usage", NodeUsageSampled, "collector", None, "one coherent sample, every period"),
    _event("tlm.node.{node}.lease", LeaseRenewed, "overcommit", None, "batch work may go on for the lease time"),
    _event(
        "tlm.node.{node}.wanted", NodeFactsWanted, "overcommit", None, "the node is to tell again what it is and runs"
    ),
    _event("tlm.trace.{service}", SpansFinished, "any", None, "finished spans"),
    _event(
        "evt.node.{node}.topology",
        NodeTopologyReported,
        "collector",
        Stream.NODE,
        "topology, capabilities and rules of a machine",
    ),
    _event(
        "evt.node.{node}.allocatable",
        AllocatableChanged,
        "overcommit",
        Stream.NODE,
        "allocatable of batch work, with its explanation",
    ),
    _event(
        "evt.pressure.{node}.crossed", PressureCrossed, "collector", Stream.EVT, "a stall signal crossed its threshold"
    ),
    _event(
        "evt.pressure.{node}.memory",
        MemoryEventsGrew,
        "collector",
        Stream.EVT,
        "a workload was throttled at, or ran out of, its memory",
    ),
    _event("evt.freshness.{node}.changed", FreshnessChanged, "overcommit", Stream.EVT, "freshness of a node's samples"),
    _event("evt.job.submitted", JobSubmitted, "jobs", Stream.EVT, "a job was accepted"),
    _event("evt.job.changed", JobStateChanged, "jobs", Stream.EVT, "a job changed its state"),
    _event("evt.replica.requested", PlacementsRequested, "jobs", Stream.ASK, "replicas need a place"),
    _event(
        "evt.job.mid-requested", MidPlacementsRequested, "jobs", Stream.EVT, "replicas of the mid tier need a place"
    ),
    _event("evt.replica.withdrawn", ReplicasWithdrawn, "jobs", Stream.ASK, "replicas no longer need a place"),
    _event("evt.replica.changed", ReplicasChanged, "jobs", Stream.EVT, "replicas of a job changed their states"),
    _event("evt.queue.changed", QueueChanged, "jobs", Stream.EVT, "counts of a queue"),
    _event("evt.placement.decided", PlacementsDecided, "scheduler", Stream.EVT, "placements committed to the ledger"),
    _event("evt.placement.rejected", PlacementRejected, "scheduler", Stream.EVT, "no node fits now, with reasons"),
    _event(
        "evt.placement.preemption",
        PreemptionProposed,
        "scheduler",
        Stream.EVT,
        "a rejected replica would fit if less important replicas left",
    ),
    _event(
        "evt.placement.released",
        PlacementsReleased,
        "scheduler",
        Stream.EVT,
        "the ledger holds nothing for these attempts any more",
    ),
    _event(
        "evt.reservation.changed",
        ReservationChanged,
        "scheduler",
        Stream.EVT,
        "the phase of a reservation, or what is held for it, changed",
    ),
    _event("cmd.node.{node}.apply", ApplyPlacements, "scheduler", Stream.CMD, "run these replicas"),
    _event("cmd.node.{node}.stop", StopReplicas, "jobs", Stream.CMD, "stop these replicas"),
    _event("cmd.node.{node}.evict", EvictReplica, "evictor", Stream.CMD, "this replica must leave"),
    _event(
        "evt.enforcement.{node}.started", ReplicaStarted, "executor", Stream.RUN, "a replica runs in its control group"
    ),
    _event("evt.enforcement.{node}.ended", ReplicaEnded, "executor", Stream.RUN, "an attempt has ended on the node"),
    _event(
        "evt.enforcement.{node}.refused",
        PlacementRefused,
        "executor",
        Stream.RUN,
        "a placement could not be carried out",
    ),
    _event(
        "evt.enforcement.{node}.changed",
        EnforcementChanged,
        "executor",
        Stream.RUN,
        "the batch CPU ceiling changed, and why",
    ),
    _event(
        "evt.enforcement.{node}.drifted",
        DriftCorrected,
        "executor",
        Stream.RUN,
        "another program changed kernel files, and the executor restored them",
    ),
    _event(
        "evt.enforcement.{node}.recovered",
        NodeRecovered,
        "executor",
        Stream.RUN,
        "an executor started and adopted running replicas",
    ),
    _event(
        "evt.enforcement.{node}.restricted",
        RestrictionsApplied,
        "executor",
        Stream.RUN,
        "the node follows the restrictions of a revision",
    ),
    _event(
        "evt.enforcement.{node}.attached",
        AttachedGroupsChanged,
        "executor",
        Stream.RUN,
        "the control groups of others that replicas are attached to",
    ),
    _event(
        "evt.enforcement.{node}.opened",
        OwnCpusOpened,
        "executor",
        Stream.RUN,
        "processes of others may run on CPUs that LSE or LSR work has as its own",
    ),
    _event(
        "evt.policy.restrictions",
        RestrictionsChanged,
        "gateway",
        Stream.POLICY,
        "what operators forbid, as one table, with who and why",
    ),
    _event(
        "evt.policy.colocation",
        PolicyChanged,
        "gateway",
        Stream.POLICY,
        "how much batch work may be promised on which node, as one document, with who and why",
    ),
    _event(
        "evt.policy.external.{node}",
        ExternalCapacityChanged,
        "overcommit",
        Stream.POLICY,
        "what systems outside say that the node has for batch work",
    ),
    _event("evt.eviction.requested", EvictionRequested, "evictor", Stream.EVT, "which replica must leave, and why"),
    _event("evt.eviction.finished", EvictionFinished, "evictor", Stream.EVT, "the victim has ended"),
    _event("evt.eviction.drained", NodeDrained, "evictor", Stream.EVT, "nothing is left on a drained node"),
    _event(
        "evt.audit.request",
        RequestAudited,
        "gateway",
        Stream.AUDIT,
        "who changed something through the gateway, or was not let in",
    ),
    _event("evt.dead-letter.{service}", DeadLettered, "any", Stream.DEAD, "a message could not be handled"),
)

REQUESTS: Final[tuple[RequestSpec, ...]] = (
    _request_spec(
        "req.gateway.restrict", SetRestriction, RestrictionList, "gateway", "put a restriction in force", changes=True
    ),
    _request_spec("req.gateway.lift", LiftRestrictions, RestrictionList, "gateway", "lift restrictions", changes=True),
    _request_spec("req.gateway.restrictions", ListRestrictions, RestrictionList, "gateway", "restrictions in force"),
    _request_spec("req.gateway.policy", GetPolicy, PolicyReply, "gateway", "the colocation policy and its history"),
    _request_spec(
        "req.gateway.apply-policy", ApplyPolicy, PolicyReply, "gateway", "put a policy in force", changes=True
    ),
    _request_spec(
        "req.gateway.rollback-policy",
        RollbackPolicy,
        PolicyReply,
        "gateway",
        "put an earlier policy in force again",
        changes=True,
    ),
    _request_spec("req.jobs.submit", rq.SubmitJob, rq.JobAccepted, "jobs", "accept a job", changes=True),
    _request_spec("req.jobs.cancel", rq.CancelJob, rq.JobAccepted, "jobs", "stop a job for good", changes=True),
    _request_spec("req.jobs.get", rq.GetJob, rq.JobDetail, "jobs", "one job with replicas and story"),
    _request_spec("req.jobs.list", rq.ListJobs, rq.JobList, "jobs", "jobs, newest first"),
    _request_spec("req.jobs.queues", rq.ListQueues, rq.QueueList, "jobs", "queues with counts"),
    _request_spec("req.jobs.tenants", ListTenants, TenantList, "jobs", "what tenants hold and wait for"),
    _request_spec("req.jobs.on-node", ListNodeReplicas, NodeReplicas, "jobs", "the replicas on a node"),
    _request_spec("req.jobs.pending", rq.PendingReplicas, rq.PendingReply, "jobs", "replicas that need a place"),
    _request_spec("req.jobs.wait", ExplainWait, JobWait, "jobs", "how a job waits: position, time so far, estimate"),
    _request_spec("req.jobs.started", StartedReplicas, StartedReply, "jobs", "which attempts a node has started"),
    _request_spec(
        "req.overcommit.preview", PreviewPolicy, PolicyPreview, "overcommit", "what another policy would promise"
    ),
    _request_spec("req.overcommit.nodes", rq.ListNodes, rq.NodeList, "overcommit", "nodes with usage and allocatable"),
    _request_spec("req.overcommit.fleet", GetFleet, FleetTotals, "overcommit", "sums over all nodes"),
    _request_spec("req.overcommit.node", GetNode, NodeDetail, "overcommit", "one node with its zones and workloads"),
    _request_spec(
        "req.overcommit.external",
        SetExternalCapacity,
        NodeExternal,
        "overcommit",
        "bound what a node promises, for a time",
        changes=True,
        to_each=True,
    ),
    _request_spec(
        "req.overcommit.unexternal",
        ClearExternalCapacity,
        NodeExternal,
        "overcommit",
        "lift such a bound",
        changes=True,
        to_each=True,
    ),
    _request_spec(
        "req.overcommit.explain", rq.ExplainAllocatable, rq.NodeExplained, "overcommit", "why this allocatable"
    ),
    _request_spec(
        "req.scheduler.explain", rq.ExplainPlacement, rq.PlacementsExplained, "scheduler", "why this place, or why none"
    ),
    _request_spec("req.scheduler.plan", rq.PlanJob, rq.JobPlanned, "scheduler", "where a job would go, and why not"),
    _request_spec("req.scheduler.holds", rq.ListHolds, rq.HoldsReply, "scheduler", "what the ledger holds"),
    _request_spec(
        "req.scheduler.reserve", rq.CreateReservation, rq.ReservationDetail, "scheduler", "hold a place", changes=True
    ),
    _request_spec(
        "req.scheduler.unreserve",
        rq.DeleteReservation,
        rq.ReservationDetail,
        "scheduler",
        "forget a reservation",
        changes=True,
    ),
    _request_spec("req.scheduler.reservation", rq.GetReservation, rq.ReservationDetail, "scheduler", "one reservation"),
    _request_spec(
        "req.scheduler.reservations", rq.ListReservations, rq.ReservationList, "scheduler", "reservations by name"
    ),
    _request_spec(
        "req.node.{node}.groups",
        ListKernelGroups,
        NodeKernelGroups,
        "collector",
        "what the kernel holds for each control group of a node",
    ),
    _request_spec(
        "req.collector.{node}.metric", PushMetric, MetricTaken, "collector", "a workload says values of its own metric"
    ),
    _request_spec(
        "req.service.{service}.status",
        GetServiceStatus,
        ServiceStatus,
        "any",
        "how each instance of a service is",
        to_each=True,
    ),
)

# One entry for each concrete subject: enough for every event type with a node, of a few thousand nodes.
_SUBJECTS_REMEMBERED: Final = 65_536
_BY_TYPE: Final = {event.body: event for event in EVENTS}
_BY_REQUEST: Final = {request_spec.body: request_spec for request_spec in REQUESTS}


def event_of(body: type[Fact]) -> Event:
    """The row of an event type; KeyError when it is not registered."""
    return _BY_TYPE[body]


def request_spec_of(body: type[Struct]) -> RequestSpec:
    """The row of a request type; KeyError when it is not registered."""
    return _BY_REQUEST[body]


def request_subject(body: Struct) -> str:
    """The concrete subject of a request; its subject parameters are fields of the same name. KeyError when it is not registered."""
    subject = _BY_REQUEST[type(body)].subject
    return subject.of(**{name: getattr(body, name) for name in subject.parameters})


def subject_of(fact: Fact) -> str:
    """The concrete subject of a message; its subject parameters are fields of the same name."""
    body = type(fact)
    names = event_of(body).subject.parameters
    return _subject(body, *[getattr(fact, name) for name in names])


@lru_cache(maxsize=_SUBJECTS_REMEMBERED)
def _subject(body: type[Fact], *values: str) -> str:
    subject = event_of(body).subject
    return subject.of(**dict(zip(subject.parameters, values, strict=True)))


def reaches_each(subject: str) -> bool:
    """Whether a request to this concrete subject reaches every instance of the service; no for one that is not registered."""
    return any(spec.to_each and spec.subject.parse(subject) is not None for spec in REQUESTS)


def keeps_last_only(subject: str) -> bool:
    """Whether the stream of the subject keeps its last message only, so that an older one must not be stored after a newer one."""
    return any(
        limits.max_msgs_per_subject == 1 and any(matches(pattern, subject) for pattern in limits.subjects)
        for limits in STREAMS.values()
    )
