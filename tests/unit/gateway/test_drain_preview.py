"""What the preview of a drain plans with: every replica on the node up to a stated limit, and a word where there are more."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp.test_utils import make_mocked_request
from msgspec import Struct

from colo_common.events.fleet import GetNode, ListNodeReplicas, NodeDetail, NodeReplicas, PlacedReplica
from colo_common.events.requests import GetJob, JobPlanned, NodeSummary, PlanJob, PlannedReplica, Refusal
from colo_common.model.freshness import Freshness
from colo_common.model.qos import PriorityBand, QosClass
from colo_gateway.node_replicas import REPLICAS_MOST, all_on_node
from colo_gateway.restrictions.preview import DrainPreview
from colo_gateway.restrictions.routes import RestrictionRoutes
from tests.support.jobs_world import JobsWorld, a_spec, a_task

NODE = NodeDetail(
    summary=NodeSummary(
        node="n1",
        freshness=Freshness.FRESH,
        sample_age_ms=0,
        cpu_capacity_mcpu=1,
        cpu_used_mcpu=0,
        memory_capacity_bytes=1,
        memory_used_bytes=0,
        batch_cpu_mcpu=0,
        batch_memory_bytes=0,
        held_cpu_mcpu=0,
        held_memory_bytes=0,
    ),
    zones=(),
)


def a_replica(number: int, job: str = "j", band: PriorityBand = PriorityBand.BATCH) -> PlacedReplica:
    return PlacedReplica(
        replica=f"{job}/main/{number}",
        attempt=1,
        state="Running",
        queue="default",
        tenant="default",
        qos=QosClass.BE,
        band=band,
        cpu_mcpu=1,
        memory_bytes=1,
    )


class Services:
    """Answers as the services do. `replicas` are those of the node; without `has_pages` the first of them only, at each cursor."""

    def __init__(self, replicas: list[PlacedReplica], page: int = 1_000, *, has_pages: bool = True) -> None:
        self.replicas = replicas
        self.page = page
        self.has_pages = has_pages
        self.cursors: list[str] = []
        self.other: dict[type[Struct], Struct] = {GetNode: NODE}

    async def ask(self, body: Struct) -> Struct:
        if not isinstance(body, ListNodeReplicas):
            return self.other.get(type(body), Refusal(code=404, field="job", rule="is not known"))
        self.cursors.append(body.cursor)
        total = len(self.replicas)
        if not self.has_pages:
            return NodeReplicas(replicas=tuple(self.replicas[: self.page]), total=total)
        begin = int(body.cursor or 0)
        end = begin + self.page
        return NodeReplicas(replicas=tuple(self.replicas[begin:end]), total=total, next=str(end) if end < total else "")

    def preview(self, query: str = "") -> DrainPreview:
        routes: Any = RestrictionRoutes(self)  # type: ignore[arg-type]
        request = make_mocked_request("GET", f"/v1/nodes/n1/drain{query}", match_info={"node": "n1"})
        answer = asyncio.run(routes.preview_drain(request))
        assert answer.status == 200
        return msgspec.json.decode(answer.body, type=DrainPreview)


def test_every_page_of_the_replicas_is_planned() -> None:
    online = [a_replica(number, "a", PriorityBand.PROD) for number in range(1_200)]
    services = Services([*online, *(a_replica(number, "b") for number in range(300))])
    preview = services.preview("?batch_only=true")
    assert [each.replica for each in preview.leaving] == [f"b/main/{number}" for number in range(300)]
    assert (preview.staying, preview.total, preview.partial) == (1_200, 1_500, "")
    assert services.cursors == ["", "1000"]


def test_an_older_jobs_service_tells_the_first_only_and_the_preview_says_so() -> None:
    services = Services([a_replica(number) for number in range(1_500)], has_pages=False)
    preview = services.preview()
    assert (len(preview.leaving), preview.total) == (1_000, 1_500)
    assert preview.partial == "only 1,000 of the 1,500 replicas on the node were read"
    assert services.cursors == [""]


def test_beyond_the_limit_the_preview_says_how_many_were_read() -> None:
    services = Services([a_replica(number, f"j{number % 30:02}") for number in range(REPLICAS_MOST + 1_500)])
    preview = services.preview()
    assert len(preview.leaving) == REPLICAS_MOST
    assert preview.partial == (
        "only 10,000 of the 11,500 replicas on the node were read; only the first 20 of 30 jobs were planned"
    )
    assert len(services.cursors) == 10


def test_places_that_a_plan_does_not_name_are_told() -> None:
    services = Services([a_replica(number) for number in range(3)])
    world = JobsWorld()
    world.submit(a_spec(a_task(replicas=3)), job="j")
    services.other[GetJob] = world.job("j")
    places = (PlannedReplica(replica="main/0", node="n2", zones=()),)
    services.other[PlanJob] = JobPlanned(
        fits=True, at_ms=0, nodes=2, replicas=3, placed=3, waiting=0, tasks=(), places=places
    )
    preview = services.preview()
    assert [each.fits_on for each in preview.leaving] == ["n2", "", ""]
    assert preview.partial == "of j only 1 of 3 places are named"


def test_a_replica_that_two_pages_tell_counts_once_and_a_refusal_is_handed_on() -> None:
    async def ask(body: Struct) -> Struct:
        assert isinstance(body, ListNodeReplicas)
        if body.cursor == "":
            return NodeReplicas(replicas=(a_replica(0), a_replica(1)), total=3, next="2:j")
        return NodeReplicas(replicas=(a_replica(1), a_replica(2)), total=3)

    services = Services([])
    services.ask = ask  # type: ignore[method-assign]
    found = asyncio.run(all_on_node(services, "n1"))
    assert isinstance(found, NodeReplicas)
    assert [each.replica for each in found.replicas] == ["j/main/0", "j/main/1", "j/main/2"]

    async def refuse(_: Struct) -> Struct:
        return Refusal(code=503, field="jobs", rule="does not answer now")

    services.ask = refuse  # type: ignore[method-assign]
    assert isinstance(asyncio.run(all_on_node(services, "n1")), Refusal)
