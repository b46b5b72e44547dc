"""The HTTP routes of restrictions: cordon, drain, pause and quiesce."""

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web
from msgspec import structs

from colo_common.events import requests as rq
from colo_common.events.fleet import GetNode, NodeDetail, NodeReplicas, PlacedReplica
from colo_common.events.restriction import LiftRestrictions, ListRestrictions, SetRestriction
from colo_common.events.subjects import encode_node
from colo_common.model.duration import parse_duration_ms
from colo_common.model.invalid import InvalidInput
from colo_common.model.nearest import hint
from colo_common.model.plain_values import mapping_of, name_among, text_of
from colo_common.model.restriction import Restriction, RestrictionKind, RestrictionScope
from colo_gateway.ask import Asker
from colo_gateway.body import BODY_BYTES_MAX, TooLarge, read_mapping
from colo_gateway.door.door import principal_of
from colo_gateway.door.principal import Principal
from colo_gateway.node_replicas import all_on_node
from colo_gateway.queue_list import all_queues
from colo_gateway.responses import answer_of, invalid_of, json_of, names_of, problem_of
from colo_gateway.restrictions.preview import DrainPreview, LeavingReplica, leaves, leaving, part_on_node
from colo_gateway.restrictions.rules import FOR_MOST_MS, GRACE_MOST_MS

__all__ = ["RestrictionRoutes"]

_FIELDS: Final = ("kind", "scope", "target", "by", "reason", "for", "grace", "batch_only", "evicts", "running")
_JOBS_PLANNED: Final = 20
_PLACES_MOST: Final = 1_000
_LIFT_KEYS: Final = ("kind", "scope", "target", "by", "reason")
_KINDS: Final = tuple(kind.value for kind in RestrictionKind)
_SCOPES: Final = tuple(scope.value for scope in RestrictionScope)


class RestrictionRoutes:
    """The handlers of the restriction routes. Each sends one request to the gateway that answers first; all share one table."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    def routes(self) -> list[web.RouteDef]:
        """All restriction routes, for the aiohttp application."""
        return [
            web.get("/v1/restrictions", self.list_all),
            web.post("/v1/restrictions", self.set),
            web.delete("/v1/restrictions", self.lift),
            web.get("/v1/nodes/{node}/drain", self.preview_drain),
        ]

    async def list_all(self, request: web.Request) -> web.Response:
        """GET /v1/restrictions."""
        try:
            mapping_of(dict(request.query), "query", ("",), within="")
        except InvalidInput as error:
            return invalid_of(error)
        return answer_of(await self._asker.ask(ListRestrictions()))

    async def set(self, request: web.Request) -> web.Response:
        """POST /v1/restrictions."""
        try:
            asked = _by(_asked(await read_mapping(request)), principal_of(request))
        except InvalidInput as error:
            return invalid_of(error)
        except TooLarge:
            return problem_of(413, "body", f"must have at most {BODY_BYTES_MAX} bytes")
        unknown = await self._unknown(asked.restriction)
        return unknown or answer_of(await self._asker.ask(asked))

    async def lift(self, request: web.Request) -> web.Response:
        """DELETE /v1/restrictions."""
        try:
            given = mapping_of(dict(request.query), "query", _LIFT_KEYS, within="")
            kinds = tuple(RestrictionKind(name_among(name, _KINDS, "kind")) for name in names_of(request.query, "kind"))
            lift = LiftRestrictions(
                kinds=kinds,
                scope=RestrictionScope(name_among(given.get("scope", ""), _SCOPES, "scope")),
                target=given.get("target", ""),
                by=given.get("by", ""),
                reason=given.get("reason", ""),
            )
        except InvalidInput as error:
            return invalid_of(error)
        who = principal_of(request)
        return answer_of(await self._asker.ask(structs.replace(lift, by=who.name) if who.is_authenticated else lift))

    async def preview_drain(self, request: web.Request) -> web.Response:
        """GET /v1/nodes/{node}/drain: what a drain would do; nothing changes."""
        node = request.match_info["node"]
        try:
            given = mapping_of(dict(request.query), "query", ("batch_only",), within="")
            encode_node(node)
            batch_only = name_among(given.get("batch_only", "false"), ("false", "true"), "batch_only") == "true"
        except InvalidInput as error:
            return invalid_of(error)
        detail = await self._asker.ask(GetNode(node=node))
        if not isinstance(detail, NodeDetail):
            return answer_of(detail)
        placed = await all_on_node(self._asker, node)
        if not isinstance(placed, NodeReplicas):
            return answer_of(placed)
        by_job: dict[str, list[PlacedReplica]] = {}
        for replica in placed.replicas:
            if leaves(replica, batch_only=batch_only):
                by_job.setdefault(replica.replica.partition("/")[0], []).append(replica)
        rows: list[LeavingReplica] = []
        partial: list[str] = []
        if len(placed.replicas) < placed.total:
            partial.append(f"only {len(placed.replicas):,} of the {placed.total:,} replicas on the node were read")
        if len(by_job) > _JOBS_PLANNED:
            partial.append(f"only the first {_JOBS_PLANNED} of {len(by_job):,} jobs were planned")
        for number, (job, replicas) in enumerate(sorted(by_job.items())):
            known, plan = None, None
            if number < _JOBS_PLANNED:
                known, plan = await self._planned(job, replicas, node)
            if plan is not None and len(plan.places) < plan.placed:
                partial.append(f"of {job} only {len(plan.places):,} of {plan.placed:,} places are named")
            rows += leaving(replicas, known, plan, detail.summary.labels)
        return json_of(
            DrainPreview(
                node=node,
                batch_only=batch_only,
                leaving=tuple(rows),
                staying=len(placed.replicas) - len(rows),
                total=placed.total,
                partial="; ".join(partial),
            )
        )

    async def _planned(
        self, job: str, replicas: list[PlacedReplica], node: str
    ) -> tuple[rq.JobDetail | None, rq.JobPlanned | None]:
        """The job, and where its replicas of the node would go instead; None for what does not answer."""
        known = await self._asker.ask(rq.GetJob(job=job))
        if not isinstance(known, rq.JobDetail):
            return None, None
        part = part_on_node(known.spec, replicas)
        if part is None:
            return known, None
        plan = await self._asker.ask(rq.PlanJob(spec=part, most=_PLACES_MOST, avoid=(node,)))
        return known, plan if isinstance(plan, rq.JobPlanned) else None

    async def _unknown(self, restriction: Restriction) -> web.Response | None:
        """The refusal of a job or queue that does not exist."""
        match restriction.scope:
            case RestrictionScope.JOB:
                found = await self._asker.ask(rq.GetJob(job=restriction.target))
                return None if isinstance(found, rq.JobDetail) else answer_of(found)
            case RestrictionScope.QUEUE:
                queues = await all_queues(self._asker)
                if not isinstance(queues, rq.QueueList):
                    return answer_of(queues)
                names = [queue.queue for queue in queues.queues]
                if restriction.target not in names:
                    rule = f"there is no such queue; {hint(restriction.target, names, 'queues')}"
                    return problem_of(404, "queue", rule, restriction.target)
            case _:
                pass
        return None


def _by(asked: SetRestriction, who: Principal) -> SetRestriction:
    """The request under the name with which its sender was let in; without tokens under the name that it has."""
    if not who.is_authenticated:
        return asked
    return structs.replace(asked, restriction=structs.replace(asked.restriction, by=who.name))


def _asked(body: Mapping[str, Any]) -> SetRestriction:
    """The request of a body. Raises InvalidInput with the name of the field as the sender wrote it."""
    given = mapping_of(body, "body", _FIELDS, within="")
    for name in ("kind", "scope"):
        if name not in given:
            raise InvalidInput(name, "must be given", "")
    grace, for_ = given.get("grace"), given.get("for")
    restriction = Restriction(
        kind=RestrictionKind(name_among(text_of(given["kind"], "kind"), _KINDS, "kind")),
        scope=RestrictionScope(name_among(text_of(given["scope"], "scope"), _SCOPES, "scope")),
        target=text_of(given.get("target", ""), "target"),
        by=text_of(given.get("by", ""), "by"),
        reason=text_of(given.get("reason", ""), "reason"),
        grace_ms=None if grace is None else parse_duration_ms(grace, "grace", max_ms=GRACE_MOST_MS),
        batch_only=_flag(given, "batch_only"),
        evicts=_flag(given, "evicts"),
        suspends=_flag(given, "running"),
    )
    for_ms = None if for_ is None else parse_duration_ms(for_, "for", max_ms=FOR_MOST_MS)
    return SetRestriction(restriction=restriction, for_ms=for_ms)


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise InvalidInput(name, "must be true or false", value)
    return value
