"""Reservations as people use them, against running services."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from colo_common.events.reservation import ReservationChanged
from tests.support.running import RunningColo, running_colo
from tests.support.waiting import eventually
from tests.system.test_cli import Printed, colo_command

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

LIMIT_S = 120.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def colo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningColo]:
    directory: Path = tmp_path_factory.mktemp("colo")
    async with running_colo(directory, nodes=1) as running:
        yield running


async def with_file(colo: RunningColo, *words: str, **fields: Any) -> Printed:
    return await colo_command(*words, "-f", "-", api=colo.api, stdin=yaml.safe_dump(fields).encode())


async def reserve(colo: RunningColo, name: str, **fields: Any) -> Printed:
    return await with_file(colo, "reserve", name=name, **{"cpu": "2", "memory": "1Gi", **fields})


async def submit(colo: RunningColo, name: str, **fields: Any) -> str:
    job = {"cpu": "1", "memory": "64Mi", "work": "600 cpu-min", **fields}
    return (await with_file(colo, "submit", name=name, **job)).out.split()[0]


async def in_phase(colo: RunningColo, name: str, phase: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    async def is_there() -> bool:
        found.append(await colo.get(f"/v1/reservations/{name}"))
        return bool(found[-1]["phase"] == phase)

    await eventually(is_there, f"reservation {name} in phase {phase}", limit_s=LIMIT_S)
    return found[-1]


async def is_running(colo: RunningColo, job: str) -> bool:
    return bool((await colo.get(f"/v1/jobs/{job}"))["summary"]["running"] == 1)


async def test_the_owner_gets_the_place_and_nobody_else_does_until_it_expires(colo: RunningColo) -> None:
    # Nearly all that the only node may promise is held for job "web".
    await eventually_promised(colo)
    node = (await colo.get("/v1/nodes"))["nodes"][0]
    most_mcpu = node["batch_cpu_mcpu"] * 6 // 10 // 1000 * 1000
    held = await reserve(colo, "night", cpu=f"{most_mcpu}m", owners=[{"job": "web"}], allocate_once=False)
    assert (held.code, held.out, held.err) == (0, "night Pending\n", "")
    assert (await in_phase(colo, "night", "Available"))["node"] == node["node"]

    # As large as what is held: it fits nowhere beside it.
    other = await submit(colo, "other", cpu=f"{most_mcpu}m")
    web = await submit(colo, "web", cpu=f"{most_mcpu}m")
    await eventually(lambda: is_running(colo, web), "the owner runs", limit_s=LIMIT_S)
    detail = await colo.get("/v1/reservations/night")
    assert [use["replica"] for use in detail["owners"]] == [f"{web}/main/0"]
    assert detail["left"]["cpu_mcpu"] == 0
    assert (await colo.get(f"/v1/jobs/{other}"))["summary"]["waiting"] == 1

    # What the owner took comes back when it leaves, and is still held.
    assert (await colo_command("cancel", web, api=colo.api)).code == 0

    async def came_back() -> bool:
        return bool((await colo.get("/v1/reservations/night"))["left"]["cpu_mcpu"] == most_mcpu)

    await eventually(came_back, "the share fell back", limit_s=LIMIT_S)
    assert (await colo.get(f"/v1/jobs/{other}"))["summary"]["waiting"] == 1

    delivered = await colo_command("explain", "reservation", "night", api=colo.api)
    assert delivered.code == 0
    assert f"night: Available on {node['node']}" in delivered.out
    assert "for job web; policy default; used again and again" in delivered.out

    # Given up, the place goes to who waited for it.
    assert (await colo_command("unreserve", "night", api=colo.api)).out == "night was Available\n"
    await eventually(lambda: is_running(colo, other), "the other runs", limit_s=LIMIT_S)
    assert (await colo_command("cancel", other, api=colo.api)).code == 0


async def test_expiry_frees_the_place(colo: RunningColo) -> None:
    await eventually_promised(colo)
    node = (await colo.get("/v1/nodes"))["nodes"][0]
    most_mcpu = node["batch_cpu_mcpu"] * 6 // 10 // 1000 * 1000
    assert (await reserve(colo, "short", cpu=f"{most_mcpu}m", ttl="10m", owners=[{"job": "nobody"}])).code == 0

    async def held_a_place() -> bool:
        """By the facts: on a machine that stood still it may have expired meanwhile."""
        facts = await colo.facts(ReservationChanged, "colo.v1.evt.reservation.changed")
        return any((fact.reservation, fact.phase) == ("short", "Available") for fact in facts)

    await eventually(held_a_place, "the reservation has a place", limit_s=LIMIT_S)
    waiting = await submit(colo, "later", cpu=f"{most_mcpu}m")
    await eventually(lambda: is_running(colo, waiting), "it runs after the reservation", limit_s=LIMIT_S)
    assert (await in_phase(colo, "short", "Failed"))["reason"] == "expired"
    listed = await colo_command("get", "reservations", "--phase", "Failed", api=colo.api)
    assert "short" in listed.out
    assert "Failed (expired)" in listed.out
    assert (await colo_command("cancel", waiting, api=colo.api)).code == 0


async def test_what_waits_says_why_and_what_is_wrong_is_refused_by_field(colo: RunningColo) -> None:
    assert (await reserve(colo, "huge", cpu="900", owners=[{"anyone": True}])).code == 0

    async def says_why() -> bool:
        return (
            "no node could hold one even when empty"
            in (await colo_command("explain", "reservation", "huge", api=colo.api)).out
        )

    await eventually(says_why, "it says why it waits", limit_s=LIMIT_S)
    again = await reserve(colo, "huge", cpu="900", owners=[{"anyone": True}])
    assert (again.code, again.out) == (0, "huge Pending\n")
    other = await reserve(colo, "huge", cpu="901", owners=[{"anyone": True}])
    assert other.code == 1
    assert "name: must not be the name of another reservation" in other.err
    for fields, what in (
        ({"cpu": "-1"}, "cpu:"),
        ({"owners": [{"jobs": "web"}]}, "owners[0].jobs: is not a key here; did you mean `job`?"),
        ({"policy": "tight"}, "policy: must be one of default aligned restricted"),
        ({"expires": "tomorrow"}, "expires: must be a moment"),
    ):
        refused = await reserve(colo, "wrong", **{"owners": [{"job": "web"}], **fields})
        assert (refused.code, refused.out) == (2, "")
        assert what in refused.err
    late = await reserve(colo, "late", owners=[{"job": "web"}], expires="2020-01-01T00:00:00Z")
    assert late.code == 2
    assert "expires: must not be in the past" in late.err
    assert (await colo_command("unreserve", "nobody", api=colo.api)).code == 1
    page = json.loads((await colo_command("get", "reservations", "-o", "json", api=colo.api)).out)
    assert [each["spec"]["name"] for each in page["reservations"] if each["phase"] == "Pending"] == ["huge"]
    assert (await colo_command("unreserve", "huge", api=colo.api)).out == "huge was Pending\n"


async def eventually_promised(colo: RunningColo) -> None:
    async def is_promised() -> bool:
        nodes = (await colo.get("/v1/nodes"))["nodes"]
        return bool(nodes and nodes[0]["batch_cpu_mcpu"] >= 4000)

    await eventually(is_promised, "batch CPU is promised", limit_s=LIMIT_S)
