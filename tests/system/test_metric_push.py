"""A workload says its own latency to the collector of its node, over a bus that lets in nobody without credentials."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import nats
import pytest
from nats.aio.client import Client

from colo_cli.lab_processes import LabProcesses
from colo_cli.main import main
from colo_common.adapters.nats_nkey import inbox_of, read_nkey
from colo_common.events.metric import PushMetric
from colo_common.events.node import BusinessMetric, NodeUsageSampled, SloViolations, WorkloadUsage
from colo_common.events.policy import PolicyChanged
from colo_common.events.registry import Stream, event_of, request_subject
from colo_common.events.wire import decode, encode, encode_request
from colo_common.model.colocation_policy import ColocationPolicy, PolicyValues
from colo_common.model.host_applications import HostApplication, HostApplications
from colo_common.model.qos import PriorityBand, QosClass
from tests.support.machine_tree import FakeWorkload, MachineSpec, MachineTree
from tests.support.secured import Secured, secured
from tests.support.waiting import eventually

pytestmark = pytest.mark.server

NODE: Final = "node-1"
HOST_PATH: Final = "/system.slice/ingest.service"
TOKEN: Final = "what only web knows"
DECLARED: Final = (
    f"web=push:{hashlib.sha256(TOKEN.encode()).hexdigest()};metric=p99_ms",
    "open=push:any;metric=steps_per_s;worse=lower;kind=other",
    "scraped=http://127.0.0.1:9/metrics;metric=p99_ms",
)
#: Values, other fields, and the code and the field of the refusal.
REFUSED: Final[tuple[tuple[list[float], dict[str, Any], int, str], ...]] = (
    ([1.0], {"token": "guessed"}, 403, "token"),
    ([1.0], {"workload": "scraped"}, 404, "workload"),
    ([1.0], {"workload": "unknown"}, 404, "workload"),
    ([1.0], {"node": "node-2"}, 404, "node"),
    ([], {}, 400, "values"),
    ([1.0] * 101, {}, 400, "values"),
    ([3.0, -1.0], {}, 400, "values[1]"),
    ([1e13], {}, 400, "values[0]"),
    ([1.0], {"age_ms": 60_001}, 400, "age_ms"),
)


async def connected(servers: Secured, user: str) -> Client:
    seed = read_nkey(str(servers.folder / f"{user}.nkey")).seed
    return await nats.connect(servers.nats.url, nkeys_seed_str=seed, inbox_prefix=inbox_of(user), allow_reconnect=False)


async def pushed(client: Client, values: Sequence[float], **fields: Any) -> dict[str, Any]:
    """The answer to a message of the workload "web", unless `fields` say otherwise."""
    given: dict[str, Any] = {"node": NODE, "workload": "web", "token": TOKEN, "values": tuple(values), **fields}
    body = PushMetric(**given)
    reply = await client.request(
        request_subject(PushMetric(node=NODE, workload="", values=())), encode_request(body), 20
    )
    answer: dict[str, Any] = msgspec.json.decode(reply.data)
    return answer


async def test_a_workload_pushes_its_latency_with_its_token_and_the_next_sample_has_it(tmp_path: Path) -> None:
    groups = (FakeWorkload("web", "/web"), FakeWorkload("open", "/open"), FakeWorkload("ingest", HOST_PATH))
    MachineTree(MachineSpec(workloads=groups), tmp_path / "root").write()
    newest: dict[str, BusinessMetric | None] = {}
    hosts: dict[str, WorkloadUsage] = {}

    async def hear(message: Any) -> None:
        fact = decode(message.subject, message.data)
        assert isinstance(fact, NodeUsageSampled)
        newest.update({one.workload: one.business for one in fact.workloads})
        hosts.clear()
        hosts.update({one.workload: one for one in fact.workloads if one.host_revision is not None})

    with secured(tmp_path, (NODE,)) as servers:
        key = str(servers.folder / "admin.nkey")
        words = ["admin", "init", "--nats-url", servers.nats.url, "--nats-nkey-file", key]
        assert await asyncio.to_thread(main, words) == 0
        environment = {
            **servers.environment("collector", NODE),
            "COLO_HTTP_PORT": "0",
            "COLO_NODE": NODE,
            "COLO_COLLECTOR_ROOT": str(tmp_path / "root"),
            "COLO_COLLECTOR_PERIOD_MS": "200",
            "COLO_COLLECTOR_ONLINE_GROUPS": "web=/web,open=/open",
            "COLO_COLLECTOR_BUSINESS_METRICS": ",".join(DECLARED),
        }
        processes = LabProcesses(tmp_path, {})
        admin = await connected(servers, "admin")
        workload = await connected(servers, "workload")
        try:
            await processes.start("collector", "colo_collector", environment)
            await processes.wait_ready(["collector"])
            await admin.subscribe(event_of(NodeUsageSampled).subject.of(node=NODE), cb=hear)

            # Who may, for which workload, and which numbers: a refusal names the field and the rule, and changes nothing.
            await _refusals(workload)
            await eventually(lambda: _true("web" in newest), "a sample", limit_s=60)
            assert newest["web"] is None

            # Every value counts for the violation rate of the default SLO, 100 ms; the last one is the newest.
            answer = await pushed(workload, [150.0, 80.0, 90.0, 250.0], age_ms=1_000)
            assert answer["ok"] == {"metric": "p99_ms", "taken": 4}
            assert "ok" in await pushed(workload, [12.5], workload="open", token="")
            await eventually(lambda: _true(all(newest.values())), "both metrics", limit_s=60)
            web = newest["web"]
            assert web is not None
            assert (web.metric, web.value_milli, web.breaks_slo, web.is_pushed) == ("p99_ms", 250_000, True, True)
            assert web.violations[0] == SloViolations(window_ms=300_000, samples=4, above=2)
            assert web.age_ms >= 1_000
            assert web.baseline_milli is None

            # The colocation policy's SLO counts here from its arrival on, for what came before as well, and goes with it.
            await publish_policy(admin, 1, PolicyValues(online_latency_slo_ms=200))
            await eventually(lambda: _true(_judged(newest["web"]) == (200_000, 1, 1)), "the policy's SLO", limit_s=60)
            web = newest["web"]
            assert web is not None
            assert web.slo_since_ms > 0
            await publish_policy(admin, 2, PolicyValues(online_latency_slo_ms=0))
            await publish_policy(admin, 3, PolicyValues())
            await eventually(lambda: _true(_judged(newest["web"]) == (100_000, 2, 0)), "the setting again", limit_s=60)

            await _host_applications(admin, hosts)

            # Twenty values are a baseline of its own, which is marked as such.
            await eventually(lambda: _taken(workload, [100.0] * 40), "more values", limit_s=60)
            await eventually(lambda: _true(_has_own_baseline(newest["web"])), "a baseline", limit_s=60)
        finally:
            await processes.stop()
            await admin.close()
            await workload.close()


async def publish_policy(
    admin: Client, revision: int, values: PolicyValues, hosts: HostApplications | None = None
) -> None:
    policy = ColocationPolicy(defaults=values, host_applications=hosts)
    fact = PolicyChanged(at_ms=1, revision=revision, policy=policy)
    stored = await admin.jetstream().publish(event_of(PolicyChanged).subject.of(), encode(fact))
    assert stored.stream == Stream.POLICY.value


async def _host_applications(admin: Client, hosts: Mapping[str, WorkloadUsage]) -> None:
    """A host application that the policy declares is watched from its arrival on, and no longer when it goes.

    `hosts` are those of the newest sample.
    """
    declared = HostApplications(
        applications=(
            HostApplication(name="ingest", path=HOST_PATH, qos=QosClass.BE, band=PriorityBand.BATCH),
            HostApplication(name="twice", path="/web/inner"),
        )
    )
    await publish_policy(admin, 4, PolicyValues(), declared)
    await eventually(lambda: _true("ingest" in hosts), "the policy's host application", limit_s=60)
    ingest = hosts["ingest"]
    assert set(hosts) == {"ingest"}, "a group whose use would count twice is left out"
    assert (ingest.qos, ingest.band, ingest.host_revision) == (QosClass.BE, PriorityBand.BATCH, 4)
    assert ingest.host_since_ms > 0
    await publish_policy(admin, 5, PolicyValues())
    await eventually(lambda: _true(not hosts), "the setting, which lists none", limit_s=60)


def _judged(metric: BusinessMetric | None) -> tuple[int | None, int, int]:
    """The SLO, how many values of five minutes are above it, and the revision of the policy that gave it."""
    assert metric is not None
    return metric.slo_milli, metric.violations[0].above, metric.slo_revision


async def _refusals(workload: Client) -> None:
    for values, fields, code, field in REFUSED:
        refusal = (await pushed(workload, values, **fields))["refused"]
        assert (refusal["code"], refusal["field"]) == (code, field)
        assert refusal["rule"]
        assert TOKEN not in str(refusal)
    nonsense = await workload.request(request_subject(PushMetric(node=NODE, workload="", values=())), b'{"x":', 20)
    assert msgspec.json.decode(nonsense.data)["refused"]["code"] == 400


async def _true(is_so: bool) -> bool:
    return is_so


async def _taken(client: Client, values: Sequence[float]) -> bool:
    """Whether they were taken; too soon after the last message they are not."""
    answer = await pushed(client, values)
    assert "ok" in answer or answer["refused"]["code"] == 429, answer
    return "ok" in answer


def _has_own_baseline(metric: BusinessMetric | None) -> bool:
    return metric is not None and metric.is_own_baseline and metric.slowdown_pct in range(95, 106)
