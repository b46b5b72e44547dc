"""The HTTP routes of questions about the present state. Each asks the services it needs at the same time, for a short time; what
a service does not answer is left out and named."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from aiohttp import web
from msgspec import Struct, structs

from colo_common.events import requests as rq
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
from colo_common.events.kernel import ListKernelGroups
from colo_common.events.subjects import encode_node
from colo_common.model.invalid import InvalidInput
from colo_common.model.label_selector import parse_selector
from colo_common.model.paging import PAGE_MOST
from colo_common.model.qos import PriorityBand
from colo_common.model.restriction import restriction_text
from colo_gateway.ask import Asker
from colo_gateway.body import BODY_BYTES_MAX, TooLarge, read_mapping
from colo_gateway.core import GatewayCore
from colo_gateway.event_filter import EventFilter
from colo_gateway.findings import findings_of
from colo_gateway.fits import FITS_MOST, fits_reply, mid_note, questions_of, read_question
from colo_gateway.harm_reply import harm_summary, latency_summary
from colo_gateway.history import history_of
from colo_gateway.responses import answer_of, integer_of, invalid_of, json_of, names_of, problem_of
from colo_gateway.state_replies import (
    NodeReply,
    QueuesReply,
    ServicesReply,
    StatusReply,
    TenantsReply,
)
from colo_gateway.survey import ServiceSurvey

__all__ = ["StateRoutes"]

_Reply = TypeVar("_Reply", bound=Struct)

# Each question of a composed answer; such an answer shall come within a second, also when a service does not answer.
_PART_S: Final = 0.6
_CHANGES_SHOWN: Final = 12
_NODES_MOST: Final = 1_000


class StateRoutes:
    """The handlers of /v1/status, services, nodes, tenants, queues and fits."""

    def __init__(
        self,
        *,
        asker: Asker,
        core: GatewayCore,
        survey: ServiceSurvey,
        now_ms: Callable[[], int],
        clock_speed: float,
        version: str,
    ) -> None:
        self._asker = asker
        self._core = core
        self._survey = survey
        self._now_ms = now_ms
        self._clock_speed = clock_speed
        self._version = version

    def routes(self) -> list[web.RouteDef]:
        """All these routes, for the aiohttp application."""
        return [
            web.get("/v1/status", self.status),
            web.get("/v1/services", self.services),
            web.get("/v1/nodes", self.nodes),
            web.get("/v1/nodes/{node}", self.node),
            web.get("/v1/nodes/{node}/cpus", self.node_cpus),
            web.get("/v1/tenants", self.tenants),
            web.get("/v1/queues", self.queues),
            web.post("/v1/fits", self.fits),
        ]

    async def status(self, request: web.Request) -> web.Response:
        """GET /v1/status."""
        del request
        now_ms = self._now_ms()
        recent = self._core.recent.counts(now_ms)
        (services, unknown), fleet, queues = await asyncio.gather(
            self._survey.entries(recent.dead_letters),
            self._part(GetFleet(), FleetTotals),
            self._part(rq.ListQueues(), rq.QueueList),
        )
        missing = list(unknown)
        if fleet is None:
            missing.append("nodes and promises: overcommit does not answer")
        if queues is None:
            missing.append("queues: jobs does not answer")
        listed = None if queues is None else queues.queues
        latency = latency_summary(self._core.harm, now_ms)
        findings = findings_of(services, fleet, listed, recent, latency, self._core.open_cpus_at(now_ms))
        return json_of(
            StatusReply(
                is_well=not findings,
                at_ms=now_ms,
                clock_speed=self._clock_speed,
                version=self._version,
                services=services,
                fleet=fleet,
                queues=listed,
                recent=recent,
                harm=harm_summary(self._core.harm, now_ms),
                findings=findings,
                restrictions=tuple(self._core.restrictions),
                missing=tuple(missing),
                latency=latency,
            )
        )

    async def services(self, request: web.Request) -> web.Response:
        """GET /v1/services."""
        del request
        now_ms = self._now_ms()
        entries, missing = await self._survey.entries(self._core.recent.counts(now_ms).dead_letters)
        return json_of(ServicesReply(services=entries, at_ms=now_ms, clock_speed=self._clock_speed, missing=missing))

    async def nodes(self, request: web.Request) -> web.Response:
        """GET /v1/nodes."""
        try:
            asked = rq.ListNodes(
                sort=names_of(request.query, "sort"),
                selector=parse_selector(request.query.get("selector", ""), "selector"),
                limit=integer_of(request.query, "limit", _NODES_MOST, 1, _NODES_MOST),
                cursor=request.query.get("cursor", ""),
            )
        except InvalidInput as error:
            return invalid_of(error)
        found = await self._asker.ask(asked)
        if not isinstance(found, rq.NodeList):
            return answer_of(found)
        return json_of(structs.replace(found, nodes=tuple(self._with_restrictions(node) for node in found.nodes)))

    def _with_restrictions(self, node: rq.NodeSummary) -> rq.NodeSummary:
        """The node with what operators forbid there before any other reason."""
        texts = [restriction_text(each) for each in self._core.restrictions.on_node(node.node)]
        # The overcommit service gives the restriction that withdraws its promise as its own reason.
        reasons = [*texts, node.reason] if node.reason and node.reason not in texts else texts
        return structs.replace(node, reason="; ".join(reasons)) if texts else node

    async def node(self, request: web.Request) -> web.Response:
        """GET /v1/nodes/{node}."""
        node = request.match_info["node"]
        try:
            encode_node(node)
        except InvalidInput as error:
            return invalid_of(error)
        detail, replicas = await asyncio.gather(
            self._asker.ask(GetNode(node=node)), self._part(ListNodeReplicas(node=node), NodeReplicas)
        )
        if not isinstance(detail, NodeDetail):
            return answer_of(detail)
        history = history_of(
            self._core.event_log,
            EventFilter(node=node),
            from_ms=None,
            position=0,
            limit=_CHANGES_SHOWN,
            now_ms=self._now_ms(),
            speed=self._clock_speed,
        )
        return json_of(
            NodeReply(
                node=detail,
                replicas=replicas,
                ceiling=self._core.ceilings.get(node),
                changes=history.lines,
                withheld=self._core.withheld.get(node),
                open_cpus=self._core.open_cpus_at(self._now_ms()).get(node),
                restrictions=self._core.restrictions.on_node(node),
                missing=() if replicas is not None else ("replicas: jobs does not answer",),
            )
        )

    async def node_cpus(self, request: web.Request) -> web.Response:
        """GET /v1/nodes/{node}/cpus: asks the node's collector, after the overcommit service has said that there is such a node."""
        node = request.match_info["node"]
        try:
            encode_node(node)
        except InvalidInput as error:
            return invalid_of(error)
        detail, groups = await asyncio.gather(
            self._asker.ask(GetNode(node=node)), self._asker.ask(ListKernelGroups(node=node))
        )
        if isinstance(groups, rq.Refusal) and isinstance(detail, rq.Refusal) and detail.code == 404:
            return answer_of(detail)
        if isinstance(groups, rq.Refusal) and groups.code == 503:
            return problem_of(503, "node", "the collector of this node does not answer now", node)
        return answer_of(groups)

    async def tenants(self, request: web.Request) -> web.Response:
        """GET /v1/tenants."""
        try:
            limit, cursor = _page_of(request)
        except InvalidInput as error:
            return invalid_of(error)
        asked = ListTenants(limit=limit, cursor=cursor)
        found, fleet = await asyncio.gather(self._asker.ask(asked), self._part(GetFleet(), FleetTotals))
        if not isinstance(found, TenantList):
            return answer_of(found)
        missing = _without(fleet)
        return json_of(
            TenantsReply(tenants=found.tenants, total=found.total, next=found.next, fleet=fleet, missing=missing)
        )

    async def queues(self, request: web.Request) -> web.Response:
        """GET /v1/queues."""
        try:
            limit, cursor = _page_of(request)
        except InvalidInput as error:
            return invalid_of(error)
        asked = rq.ListQueues(limit=limit, cursor=cursor)
        found, fleet = await asyncio.gather(self._asker.ask(asked), self._part(GetFleet(), FleetTotals))
        if not isinstance(found, rq.QueueList):
            return answer_of(found)
        missing = _without(fleet)
        return json_of(
            QueuesReply(queues=found.queues, total=found.total, next=found.next, fleet=fleet, missing=missing)
        )

    async def fits(self, request: web.Request) -> web.Response:
        """POST /v1/fits."""
        try:
            read = read_question(await read_mapping(request))
            most = integer_of(request.query, "most", FITS_MOST, 1, FITS_MOST)
        except InvalidInput as error:
            return invalid_of(error)
        except TooLarge:
            return problem_of(413, "body", f"must have at most {BODY_BYTES_MAX} bytes")
        plans = []
        for question in questions_of(read.spec, most):
            plan = await self._asker.ask(question)
            if not isinstance(plan, rq.JobPlanned):
                return answer_of(plan)
            plans.append(plan)
        if read.spec.band is PriorityBand.MID:
            read = read._replace(notes=(*read.notes, mid_note(await self._part(GetFleet(), FleetTotals))))
        return json_of(fits_reply(read, most, plans))

    async def _part(self, body: Struct, kind: type[_Reply]) -> _Reply | None:
        """The reply, or None for anything else."""
        answer = await self._asker.ask(body, timeout_s=_PART_S)
        return answer if isinstance(answer, kind) else None


def _without(fleet: FleetTotals | None) -> tuple[str, ...]:
    return () if fleet is not None else ("shares of the fleet: overcommit does not answer",)


def _page_of(request: web.Request) -> tuple[int, str]:
    """How many values of a list are asked for, and after which."""
    return integer_of(request.query, "limit", PAGE_MOST, 1, PAGE_MOST), request.query.get("cursor", "")
