"""The OpenAPI 3.1 document of the HTTP API, made from the types that the API reads and writes."""

from typing import Any, Final

import msgspec
from msgspec import Struct

from colo_common.events import requests as rq
from colo_common.events.external import NodeExternal
from colo_common.events.fleet import NODE_SORTS
from colo_common.events.kernel import NodeKernelGroups
from colo_common.events.restriction import RestrictionList
from colo_gateway.audit_replies import AuditReply
from colo_gateway.concern import KINDS
from colo_gateway.dead_letter_replies import DeadLetterDetail, DeadLetterDone, DeadLetterList
from colo_gateway.eviction_account import EvictionAccount, EvictionList
from colo_gateway.harm_reply import HarmReply
from colo_gateway.history import History
from colo_gateway.policy.replies import PolicyCheck, PolicyShown
from colo_gateway.replies import JobExplained, JobTrace, PlanReply, Problem, Submitted, VersionReply
from colo_gateway.restrictions.preview import DrainPreview
from colo_gateway.state_replies import FitsReply, NodeReply, QueuesReply, ServicesReply, StatusReply, TenantsReply

__all__ = ["ROUTES", "Route", "openapi"]


class Parameter(Struct, frozen=True, kw_only=True):
    """One parameter of a route; `where` is path, query or header, `kind` the JSON type of its value."""

    name: str
    where: str
    about: str
    kind: str = "string"


class Route(Struct, frozen=True, kw_only=True):
    """One operation; `problems` are the statuses with a Problem body. Without `reply` the body is an object or a text."""

    method: str
    path: str
    name: str
    about: str
    reply: type[Struct] | None
    status: int = 200
    media: str = "application/json"
    parameters: tuple[Parameter, ...] = ()
    problems: tuple[int, ...] = (400, 503)
    has_body: bool = False


def _path(name: str, about: str) -> Parameter:
    return Parameter(name=name, where="path", about=about)


_CURSOR: Final = "the `next` of the page before; the first page when absent"


def _query(name: str, about: str, kind: str = "string") -> Parameter:
    return Parameter(name=name, where="query", about=about, kind=kind)


_RESERVATION: Final = _path("name", "the reservation's name")
_LETTER: Final = _path("seq", "the number of the dead letter")
_PAGE: Final = (_query("limit", "1 to 1000, 1000 when absent", "integer"), _query("cursor", _CURSOR))
_JOB: Final = _path("job", "the job's id, as the submission answered it")
_FACTS: Final = (
    _query("types", "only these fact types, separated by commas"),
    _query("kind", f"only facts of these kinds, separated by commas: {' '.join(KINDS)}"),
    _query("node", "only facts of this node"),
    _query("job", "only facts of this job"),
)
ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="post",
        path="/v1/jobs",
        name="submitJob",
        about="Submit a job (the fields of a job file, or a Kubernetes Pod or Deployment, as JSON or YAML).",
        reply=Submitted,
        status=201,
        parameters=(
            Parameter(
                name="Idempotency-Key", where="header", about="the same key and job again is the same submission"
            ),
            Parameter(
                name="Check-Index", where="header", about="refused when the plan with this check index is outdated"
            ),
        ),
        problems=(400, 409, 413, 429, 503),
        has_body=True,
    ),
    Route(
        method="get",
        path="/v1/jobs",
        name="listJobs",
        about="Jobs, newest first.",
        reply=rq.JobList,
        parameters=(
            _query("state", "only jobs in these states, in any case, separated by commas"),
            _query("queue", "only jobs of this queue"),
            _query("tenant", "only jobs of this tenant"),
            _query("name", "only jobs with this name in their files"),
            _query("prefix", "only jobs whose id begins so"),
            _query("limit", "1 to 1000, 100 when absent", "integer"),
            _query("cursor", _CURSOR),
        ),
    ),
    Route(
        method="get",
        path="/v1/jobs/{job}",
        name="getJob",
        about="One job with its replicas and its story.",
        reply=rq.JobDetail,
        parameters=(
            _JOB,
            _query("limit", "1 to 2000 replicas, 2000 when absent", "integer"),
            _query("cursor", _CURSOR),
        ),
        problems=(400, 404, 503),
    ),
    Route(
        method="delete",
        path="/v1/jobs/{job}",
        name="cancelJob",
        about="Stop a job for good.",
        reply=rq.JobAccepted,
        parameters=(_JOB,),
        problems=(400, 404, 409, 503),
    ),
    Route(
        method="get",
        path="/v1/jobs/{job}/explain",
        name="explainJob",
        about="Why each replica is where it is, or why it waits.",
        reply=JobExplained,
        parameters=(_JOB, _query("replica", "only this replica")),
        problems=(400, 404, 503),
    ),
    Route(
        method="get",
        path="/v1/jobs/{job}/trace",
        name="traceJob",
        about="The spans of a replica's newest placement as a tree; those of one that was just made are waited for.",
        reply=JobTrace,
        parameters=(_JOB, _query("replica", "this replica; the first one when absent")),
        problems=(400, 404, 503),
    ),
    Route(
        method="post",
        path="/v1/plan",
        name="planJob",
        about="Where a job (the fields of a job file) would go now, or why not; nothing changes.",
        reply=PlanReply,
        parameters=(_query("places", "how many replicas the plan names: 0 to 1000, 100 when absent", "integer"),),
        problems=(400, 413, 503),
        has_body=True,
    ),
    Route(
        method="post",
        path="/v1/reservations",
        name="createReservation",
        about="Hold a place for owners who come later (the fields of a reservation file, as JSON or YAML).",
        reply=rq.ReservationDetail,
        status=201,
        problems=(400, 409, 413, 429, 503),
        has_body=True,
    ),
    Route(
        method="get",
        path="/v1/reservations",
        name="listReservations",
        about="Reservations by name.",
        reply=rq.ReservationList,
        parameters=(
            _query("phase", "only these: Pending, Available, Succeeded, Failed, separated by commas"),
            _query("offset", "leave out so many, 0 when absent", "integer"),
            _query("limit", "1 to 1000, 100 when absent", "integer"),
            _query("cursor", "the `next` of the page before, in place of the offset"),
        ),
    ),
    Route(
        method="get",
        path="/v1/reservations/{name}",
        name="getReservation",
        about="One reservation: what it holds, who uses it, or why it waits.",
        reply=rq.ReservationDetail,
        parameters=(_RESERVATION,),
        problems=(400, 404, 503),
    ),
    Route(
        method="delete",
        path="/v1/reservations/{name}",
        name="deleteReservation",
        about="Forget a reservation; its owners keep what they hold. Answered as it was before.",
        reply=rq.ReservationDetail,
        parameters=(_RESERVATION,),
        problems=(400, 404, 503),
    ),
    Route(
        method="get",
        path="/v1/nodes/{node}/drain",
        name="previewDrain",
        about="What a drain of the node would ask to leave, and where it would fit; nothing changes.",
        reply=DrainPreview,
        parameters=(
            _path("node", "the node's name"),
            _query("batch_only", "true: online work stays"),
        ),
        problems=(400, 404, 503),
    ),
    Route(
        method="put",
        path="/v1/nodes/{node}/external",
        name="setExternalCapacity",
        about="A system outside bounds what the node promises to batch work, for a time: source, cpu, memory, for, by.",
        reply=NodeExternal,
        parameters=(_path("node", "the node's name"),),
        problems=(400, 404, 409, 413, 503),
        has_body=True,
    ),
    Route(
        method="delete",
        path="/v1/nodes/{node}/external",
        name="clearExternalCapacity",
        about="What this source said of the node counts no longer.",
        reply=NodeExternal,
        parameters=(_path("node", "the node's name"), _query("source", "who said it")),
        problems=(400, 404, 503),
    ),
    Route(
        method="get",
        path="/v1/restrictions",
        name="listRestrictions",
        about="What operators forbid now (cordon, drain, pause, quiesce) with who and why, and the newest changes.",
        reply=RestrictionList,
    ),
    Route(
        method="post",
        path="/v1/restrictions",
        name="setRestriction",
        about="Cordon, drain, pause or quiesce: kind, scope, target, by, reason, for, grace, batch_only, evicts, running.",
        reply=RestrictionList,
        problems=(400, 404, 413, 429, 503),
        has_body=True,
    ),
    Route(
        method="delete",
        path="/v1/restrictions",
        name="liftRestrictions",
        about="Lift restrictions from a target; lifting what is not in force changes nothing.",
        reply=RestrictionList,
        parameters=(
            _query("kind", "cordon, drain, pause, quiesce, separated by commas"),
            _query("scope", "node, job, queue or fleet"),
            _query("target", "the node's, job's or queue's name; empty for the fleet"),
            _query("by", "who lifts them"),
            _query("reason", "why"),
        ),
        problems=(400, 404, 503),
    ),
    Route(
        method="get",
        path="/v1/policy",
        name="getPolicy",
        about="The colocation policy in force, each key with its owner and whether it is followed, and the policies before.",
        reply=PolicyShown,
    ),
    Route(
        method="put",
        path="/v1/policy",
        name="applyPolicy",
        about="Put a policy in force: colo's own form, Koordinator's slo-controller-config, openFuyao's ConfigMaps (YAML or JSON).",
        reply=PolicyShown,
        parameters=(
            _query("by", "who applies it"),
            _query("reason", "why"),
            _query("expected", "the revision that it was made from; 409 when another one is in force", "integer"),
        ),
        problems=(400, 409, 413, 503),
        has_body=True,
    ),
    Route(
        method="post",
        path="/v1/policy/check",
        name="checkPolicy",
        about="Read a policy and show what it would change, by a replay of the last minutes; nothing changes.",
        reply=PolicyCheck,
        problems=(400, 413, 503),
        has_body=True,
    ),
    Route(
        method="post",
        path="/v1/policy/rollback",
        name="rollbackPolicy",
        about="Put an earlier policy in force again, as a new revision.",
        reply=PolicyShown,
        parameters=(
            _query("revision", "the one before the present one when absent; 0: none", "integer"),
            _query("by", "who asks"),
            _query("reason", "why"),
        ),
    ),
    Route(
        method="get",
        path="/v1/status",
        name="getStatus",
        about="One screen about everything: services, nodes, queues, promises, evictions, what is wrong and what to do.",
        reply=StatusReply,
        problems=(),
    ),
    Route(
        method="get",
        path="/v1/services",
        name="listServices",
        about="Control services: instances, since when, how far behind, ready or why not.",
        reply=ServicesReply,
        problems=(),
    ),
    Route(
        method="get",
        path="/v1/dead-letters",
        name="listDeadLetters",
        about="Messages that a service could not handle, oldest first.",
        reply=DeadLetterList,
        parameters=(
            _query("after", "only dead letters after this number", "integer"),
            _query("limit", "1 to 200, 50 when absent", "integer"),
            _query("service", "only dead letters of this service"),
        ),
    ),
    Route(
        method="get",
        path="/v1/dead-letters/{seq}",
        name="getDeadLetter",
        about="One dead letter with its whole message.",
        reply=DeadLetterDetail,
        parameters=(_LETTER,),
        problems=(400, 404, 503),
    ),
    Route(
        method="post",
        path="/v1/dead-letters/{seq}/replay",
        name="replayDeadLetter",
        about="Publish the message again, to everybody who hears its subject, and remove the letter.",
        reply=DeadLetterDone,
        parameters=(_LETTER,),
        problems=(400, 404, 409, 503),
    ),
    Route(
        method="delete",
        path="/v1/dead-letters/{seq}",
        name="dropDeadLetter",
        about="Remove a dead letter for good.",
        reply=DeadLetterDone,
        parameters=(_LETTER,),
        problems=(400, 404, 503),
    ),
    Route(
        method="get",
        path="/v1/audit",
        name="listAudit",
        about="Who changed something through the gateway or was not let in, newest first.",
        reply=AuditReply,
        parameters=(
            _query("limit", "1 to 500, 50 when absent", "integer"),
            _query("before", "only entries before this number", "integer"),
            _query("who", "only requests of this name"),
            _query("refused", "true: only what was refused", "boolean"),
        ),
    ),
    Route(
        method="get",
        path="/v1/tenants",
        name="listTenants",
        about="Tenants with what they hold of the fleet's batch allocatable.",
        reply=TenantsReply,
        problems=(400, 503),
        parameters=_PAGE,
    ),
    Route(
        method="get",
        path="/v1/queues",
        name="listQueues",
        about="Queues with counts and what they hold of the fleet's batch allocatable.",
        reply=QueuesReply,
        problems=(400, 503),
        parameters=_PAGE,
    ),
    Route(
        method="post",
        path="/v1/fits",
        name="whatFits",
        about="How many replicas of each task of a job file, or of a bare shape (cpu, memory, qos), would fit now, and where.",
        reply=FitsReply,
        parameters=(_query("most", "how many replicas are tried: 1 to 1000, 1000 when absent", "integer"),),
        problems=(400, 413, 503),
        has_body=True,
    ),
    Route(
        method="get",
        path="/v1/nodes",
        name="listNodes",
        about="Nodes with usage, allocatable, what is held, headroom and the reason where there is none.",
        reply=rq.NodeList,
        parameters=(
            _query("sort", f"{' '.join(NODE_SORTS)}, separated by commas; -KEY reverses; by name when absent"),
            _query("selector", 'only nodes with these labels: "disk=ssd,zone!=b,gpu,!spot,rack in (r1,r2),cores>16"'),
            _query("limit", "1 to 1000, 1000 when absent", "integer"),
            _query("cursor", _CURSOR),
        ),
        problems=(400, 413, 503),
    ),
    Route(
        method="get",
        path="/v1/nodes/{node}",
        name="getNode",
        about="One node: zones, promises, replicas, the ceiling of its batch tier, its last changes.",
        reply=NodeReply,
        parameters=(_path("node", "the node's name"),),
        problems=(400, 404, 503),
    ),
    Route(
        method="get",
        path="/v1/nodes/{node}/cpus",
        name="getNodeCpus",
        about="Every control group with processes, foreign ones too: CPUs, memory zones, weight, quota as the kernel has them.",
        reply=NodeKernelGroups,
        parameters=(_path("node", "the node's name"),),
        problems=(400, 404, 503),
    ),
    Route(
        method="get",
        path="/v1/nodes/{node}/explain",
        name="explainOvercommit",
        about="The formula behind a node's allocatable, with every term, unit and source.",
        reply=rq.NodeExplained,
        parameters=(_path("node", "the node's name"),),
        problems=(400, 404, 503),
    ),
    Route(
        method="get",
        path="/v1/history",
        name="getHistory",
        about="What happened: the newest facts of a span of time, in words and whole, oldest first.",
        reply=History,
        parameters=(
            _query("since", "how long ago (10s, 1m, 1h30m) or a position; 1m when absent"),
            *_FACTS,
            _query("limit", "at most so many lines: 1 to 1000, 100 when absent", "integer"),
        ),
        problems=(400,),
    ),
    Route(
        method="get",
        path="/v1/harm",
        name="getHarm",
        about="What online work felt in the last ten minutes: the fleet, the worst nodes, the longest spells.",
        reply=HarmReply,
        parameters=(
            _query("node", "only this node"),
            _query("limit", "at most so many nodes: 1 to 1000, 10 when absent", "integer"),
        ),
        problems=(400,),
    ),
    Route(
        method="get",
        path="/v1/evictions",
        name="listEvictions",
        about="Evictions, newest first, with why, who was not chosen, and what became of each.",
        reply=EvictionList,
        parameters=(
            _query("node", "only evictions on this node"),
            _query("job", "only evictions of this job"),
            _query("since", "not longer ago than this (10s, 1m, 1h30m)"),
            _query("limit", "1 to 1000, 100 when absent", "integer"),
        ),
        problems=(400,),
    ),
    Route(
        method="get",
        path="/v1/evictions/{eviction}",
        name="getEviction",
        about="One eviction.",
        reply=EvictionAccount,
        parameters=(_path("eviction", "its id, the beginning of it, or the replica that was evicted"),),
        problems=(404, 409),
    ),
    Route(
        method="get",
        path="/v1/stream",
        name="streamEvents",
        about="Facts as server-sent events; `id` is the position to resume from (Last-Event-ID or ?since=).",
        reply=None,
        media="text/event-stream",
        parameters=(
            _query("since", "resume after this position, 0 replays what is kept; or begin so long ago (10s, 1m)"),
            *_FACTS,
            _query("form", "`fact` (when absent), or `line`: position, time, words and the fact"),
        ),
        problems=(400, 503),
    ),
    Route(
        method="get",
        path="/v1/version",
        name="getVersion",
        about="What runs here.",
        reply=VersionReply,
        problems=(),
    ),
    Route(
        method="get",
        path="/v1/openapi.json",
        name="getOpenApi",
        about="This document.",
        reply=None,
        problems=(),
    ),
)


def openapi(version: str) -> dict[str, Any]:
    """The OpenAPI document as plain values, in a stable order."""
    types: list[type[Struct]] = [Problem, *(route.reply for route in ROUTES if route.reply is not None)]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type: dict[type[Struct], dict[str, Any]] = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method] = _operation(route, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "colo", "version": version, "summary": "Batch work on idle capacity, explained."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # Either a token or nothing: a gateway of this machine alone may ask nobody who he is.
        "security": [{"token": []}, {}],
    }


def _operation(route: Route, schemas: dict[type[Struct], dict[str, Any]]) -> dict[str, Any]:
    is_json = route.media == "application/json"
    schema = {"type": "object" if is_json else "string"} if route.reply is None else schemas[route.reply]
    content: dict[str, Any] = {route.media: {"schema": schema}}
    responses = {str(route.status): {"description": route.about, "content": content}}
    for status in sorted({*route.problems, 401, 403, 429}):
        responses[str(status)] = {
            "description": "refused",
            "content": {"application/json": {"schema": schemas[Problem]}},
        }
    operation: dict[str, Any] = {"operationId": route.name, "summary": route.about, "responses": responses}
    if route.parameters:
        operation["parameters"] = [
            {
                "name": parameter.name,
                "in": parameter.where,
                "required": parameter.where == "path",
                "description": parameter.about,
                "schema": {"type": parameter.kind},
            }
            for parameter in route.parameters
        ]
    if route.has_body:
        media = {"schema": {"type": "object"}}
        operation["requestBody"] = {"required": True, "content": {"application/json": media, "application/yaml": media}}
    return operation
