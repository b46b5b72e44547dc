"""What each program may say and hear on NATS, made from the registry of events and from what the services subscribe to.

A node's programs have a right for each of their own subjects and consumers and no other. Control services may make consumers on the
streams that they hear, since their names depend on how they share work; what they may publish is exact.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from colo_cli.lab_watch import lab_hears
from colo_collector.shell import collector_hears
from colo_common.adapters.nats_advisories import ADVISORY_SUBJECTS
from colo_common.adapters.nats_nkey import inbox_of
from colo_common.adapters.nats_refusals import REFUSALS_SUBJECT
from colo_common.events import requests as rq
from colo_common.events.external import ClearExternalCapacity, SetExternalCapacity
from colo_common.events.fleet import GetFleet, GetNode, ListNodeReplicas, ListTenants
from colo_common.events.kernel import ListKernelGroups
from colo_common.events.metric import PushMetric
from colo_common.events.policy import ApplyPolicy, GetPolicy, PreviewPolicy, RollbackPolicy
from colo_common.events.registry import EVENTS, REQUESTS, STREAMS, Stream, event_of, request_spec_of
from colo_common.events.restriction import LiftRestrictions, ListRestrictions, SetRestriction
from colo_common.events.started import StartedReplicas
from colo_common.events.status import GetServiceStatus
from colo_common.events.subjects import PREFIX, encode_node
from colo_common.events.waiting import ExplainWait
from colo_common.runtime.core import Subscription
from colo_common.runtime.sources import sources_of
from colo_evictor.shell import HEARS as EVICTOR_HEARS
from colo_evictor.shell import HEARS_SHARED as EVICTOR_HEARS_SHARED
from colo_executor.subscriptions import executor_hears
from colo_gateway.policy.shell import POLICY_HEARS
from colo_gateway.restrictions.shell import RESTRICTIONS_HEARS
from colo_gateway.shell import hears as gateway_hears
from colo_jobs.shell import HEARS as JOBS_HEARS
from colo_overcommit.shell import HEARS_RISK as OVERCOMMIT_HEARS
from colo_overcommit.shell import HEARS_SHARED as OVERCOMMIT_HEARS_SHARED
from colo_scheduler.shell import HEARS as SCHEDULER_HEARS
from colo_scheduler.shell import HEARS_SHARED as SCHEDULER_HEARS_SHARED

__all__ = ["CONTROL", "NODE_ROLES", "ROLES", "SYSTEM_ROLES", "BusRights", "rights_of", "user_of"]

CONTROL: Final = ("jobs", "scheduler", "overcommit", "evictor", "gateway")
#: Roles with one user for each node.
NODE_ROLES: Final = ("collector", "executor")
#: Roles with one user: control services, the simulator of nodes and the feed of its jobs, administrators, and who only listens
#: to the public events; workloads that say their own metrics may do nothing else, and the auditor hears which logins NATS refused.
ROLES: Final = (*CONTROL, "simulator", "feed", "admin", "listener", "workload", "auditor")
#: Those of the server's system account, who share nothing with all others.
SYSTEM_ROLES: Final = ("auditor",)

_HEARS: Final[Mapping[str, tuple[Subscription, ...]]] = {
    "jobs": JOBS_HEARS,
    "scheduler": (*SCHEDULER_HEARS, *SCHEDULER_HEARS_SHARED),
    "overcommit": (*OVERCOMMIT_HEARS, *OVERCOMMIT_HEARS_SHARED),
    "evictor": (*EVICTOR_HEARS, *EVICTOR_HEARS_SHARED),
    "gateway": (*gateway_hears(), *RESTRICTIONS_HEARS, *POLICY_HEARS),
    "feed": lab_hears(),
}
_ASKS: Final[Mapping[str, tuple[type[Struct], ...]]] = {
    "jobs": (rq.ListHolds,),
    "scheduler": (rq.GetJob, rq.PendingReplicas, StartedReplicas),
    "overcommit": (rq.ListHolds,),
    "evictor": (rq.ListHolds,),
    "feed": (rq.SubmitJob,),
    "gateway": (
        rq.SubmitJob, rq.CancelJob, rq.GetJob, rq.ListJobs, rq.ListQueues, ListTenants, ListNodeReplicas, ExplainWait,
        rq.ListNodes, GetFleet, GetNode, rq.ExplainAllocatable, rq.ExplainPlacement, rq.PlanJob, rq.ListHolds,
        rq.CreateReservation, rq.DeleteReservation, rq.GetReservation, rq.ListReservations,
        SetRestriction, LiftRestrictions, ListRestrictions, ListKernelGroups, GetServiceStatus,
        GetPolicy, ApplyPolicy, RollbackPolicy, PreviewPolicy, SetExternalCapacity, ClearExternalCapacity,
    ),
}  # fmt: skip
#: The services that run in the process of a role, by whose names they say what every service may.
_SERVICES: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: (name,) for name in (*CONTROL, *NODE_ROLES)},
    "gateway": ("gateway", "restrictions", "policy"),
    "simulator": ("collector", "executor", "sim"),
    "feed": ("feed",),
}
# A node's name that stands for any other while subjects and names are made.
_ANY_NODE: Final = "any-node"
_DISCOVERY: Final = ("PING", "INFO", "STATS")


class BusRights(Struct, frozen=True, kw_only=True):
    """Subjects that a user may publish and subscribe to, everything else being forbidden.

    `answers`: he may publish one answer to each request that he receives, to the inbox that it names.
    """

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: bool = False


def user_of(role: str, node: str = "") -> str:
    """The name of a user, which is one token of a subject: the role, and of a node's the node's name as subjects have it."""
    return f"{role}-{encode_node(node)}" if node else role


def rights_of(role: str, node: str = "") -> BusRights:
    """The rights of a role; `node` is given for the roles of a node and for no other."""
    inbox = f"{inbox_of(user_of(role, node))}.>"
    match role:
        case "listener":
            return BusRights(publish=(), subscribe=(f"{PREFIX}.evt.>",))
        case "auditor":
            return BusRights(publish=(), subscribe=(REFUSALS_SUBJECT,))
        case "workload":
            return BusRights(publish=(request_spec_of(PushMetric).subject.wildcard(),), subscribe=(inbox,))
        case "admin":
            return BusRights(publish=(f"{PREFIX}.>", "$JS.>", "$SRV.>"), subscribe=(f"{PREFIX}.>", inbox), answers=True)
        case "simulator":
            publish, subscribe = _of_nodes("*")
            return _rights([*publish, *_shared(role)], [*subscribe, *_answered(_SERVICES[role]), inbox])
        case "collector" | "executor":
            publish, subscribe = _of_nodes(encode_node(node), (role,))
            return _rights([*publish, *_shared(role)], [*subscribe, *_answered((role,)), inbox])
        case _:
            return _of_control(role, inbox)


def _of_control(role: str, inbox: str) -> BusRights:
    publish = [row.subject.wildcard() for row in EVENTS if row.owner == role]
    publish += [request_spec_of(body).subject.wildcard() for body in _ASKS[role]]
    # One that stands by asks the one that serves how it is.
    publish.append(request_spec_of(GetServiceStatus).subject.of(service=role))
    publish += _shared(role)
    streams = {row.stream for each in _HEARS[role] if (row := event_of(each.type)).stream is not None}
    publish += [part for stream in sorted(streams) for part in _consuming(stream.value)]
    if role == "gateway":
        # It reads and drops dead letters and publishes their messages again, and reads the audit. Orders to nodes are not among
        # them: whoever breaks into the gateway gets no command onto a node that a submission would not get there.
        publish += [f"{PREFIX}.evt.>", *(f"$JS.API.CONSUMER.LIST.{stream.value}" for stream in STREAMS)]
        publish += [f"$JS.API.STREAM.MSG.GET.{stream.value}" for stream in STREAMS]
        publish += [f"$JS.API.DIRECT.GET.{stream.value}{end}" for stream in STREAMS for end in ("", ".>")]
        publish.append(f"$JS.API.STREAM.MSG.DELETE.{Stream.DEAD.value}")
    subscribe = [
        row.subject.wildcard(**each.parameters) for each in _HEARS[role] if (row := event_of(each.type)).stream is None
    ]
    subscribe += [spec.subject.wildcard() for spec in REQUESTS if spec.owner == role]
    if role == "gateway":
        subscribe += ADVISORY_SUBJECTS
    return _rights(publish, [*subscribe, *_answered(_SERVICES[role]), inbox])


def _of_nodes(node: str, roles: Sequence[str] = NODE_ROLES) -> tuple[list[str], list[str]]:
    """What the programs of a node (as a token, or "*") publish and subscribe to."""

    def of_node(subject: str) -> str:
        return subject.replace(_ANY_NODE, node)

    publish = [of_node(row.subject.wildcard(node=_ANY_NODE)) for row in EVENTS if row.owner in roles]
    subscribe = [of_node(spec.subject.wildcard(node=_ANY_NODE)) for spec in REQUESTS if spec.owner in roles]
    hears = {"collector": collector_hears(_ANY_NODE), "executor": executor_hears(_ANY_NODE)}
    for role in (role for role in NODE_ROLES if role in roles):
        for source in sources_of(role, hears[role]):
            if not source.stream:
                subscribe.append(of_node(source.subject))
            elif node == "*":
                publish += _consuming(source.stream)
            elif source.durable:
                publish += [of_node(part) for part in _consuming(source.stream, source.durable, source.subject)]
            else:
                publish += _consuming(source.stream)
    return publish, subscribe


def _shared(role: str) -> list[str]:
    """What every service publishes under its name, and the questions that every client of JetStream asks."""
    rows = [row for row in EVENTS if row.owner == "any"]
    published = [row.subject.of(service=name) for name in _SERVICES[role] for row in rows]
    return [*published, "$JS.API.INFO", *(f"$JS.API.STREAM.INFO.{stream.value}" for stream in STREAMS)]


def _consuming(stream: str, name: str = "", subject: str = "") -> list[str]:
    """Making, reading and acknowledging of one consumer, or of every consumer of a stream."""
    if not name:
        return [
            f"$JS.API.CONSUMER.CREATE.{stream}",
            f"$JS.API.CONSUMER.CREATE.{stream}.>",
            f"$JS.API.CONSUMER.INFO.{stream}.*",
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.*",
            f"$JS.ACK.{stream}.>",
        ]
    return [
        f"$JS.API.CONSUMER.CREATE.{stream}.{name}.{subject}",
        f"$JS.API.CONSUMER.INFO.{stream}.{name}",
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}",
        f"$JS.ACK.{stream}.{name}.>",
    ]


def _answered(services: Iterable[str]) -> list[str]:
    """The subjects by which every service is found and asked how it is."""
    status = request_spec_of(GetServiceStatus).subject
    found = [f"$SRV.{verb}" for verb in _DISCOVERY]
    for service in services:
        found.append(status.of(service=service))
        found += [f"$SRV.{verb}.colo-{service}{end}" for verb in _DISCOVERY for end in ("", ".*")]
    return found


def _rights(publish: Iterable[str], subscribe: Iterable[str]) -> BusRights:
    return BusRights(publish=tuple(dict.fromkeys(publish)), subscribe=tuple(dict.fromkeys(subscribe)), answers=True)
