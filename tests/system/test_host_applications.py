"""A policy document declares a group of the host: the agent measures it, and overcommit promises so much less, as processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import nats
import pytest

from colo_cli.lab_processes import LabProcesses
from colo_common.events.policy import PolicyChanged
from colo_common.events.registry import event_of, request_subject
from colo_common.events.requests import ExplainAllocatable, HoldsReply, ListHolds, NodeExplained
from colo_common.events.wire import encode, encode_reply, encode_request
from colo_common.model.colocation_policy import ColocationPolicy
from colo_common.model.host_applications import HostApplication, HostApplications
from colo_common.model.qos import PriorityBand, QosClass
from tests.support.machine_tree import FakeWorkload, MachineSpec, MachineTree
from tests.support.servers import nats_server
from tests.support.waiting import eventually

pytestmark = pytest.mark.server

NODE: Final = "node-1"
PATH: Final = "/system.slice/ingest.service"
MIB: Final = 1 << 20
USED_BYTES: Final = 512 * MIB


def declared(band: PriorityBand) -> HostApplications:
    qos = QosClass.LS if band is PriorityBand.PROD else QosClass.BE
    return HostApplications(applications=(HostApplication(name="ingest", path=PATH, qos=qos, band=band),))


async def test_a_host_application_of_a_document_takes_its_use_from_what_batch_work_is_promised(tmp_path: Path) -> None:
    group = FakeWorkload("ingest", PATH, memory_bytes=USED_BYTES + 16 * MIB, inactive_file_bytes=16 * MIB)
    MachineTree(MachineSpec(workloads=(group,)), tmp_path / "root").write()
    with nats_server() as server:
        common = {"COLO_NATS_URL": server.url, "COLO_HTTP_PORT": "0"}
        # The sample may be as late as a busy machine makes it.
        patient = {
            "COLO_OVERCOMMIT_STALE_AFTER_MS": "300000",
            "COLO_OVERCOMMIT_LOST_AFTER_MS": "600000",
            "COLO_OVERCOMMIT_GROW_HOLD_MS": "0",
        }
        agent = {
            "COLO_NODE": NODE,
            "COLO_COLLECTOR_ROOT": str(tmp_path / "root"),
            "COLO_COLLECTOR_PERIOD_MS": "200",
        }
        processes = LabProcesses(tmp_path, {})
        client = await nats.connect(server.url, allow_reconnect=False)

        async def explained() -> NodeExplained | None:
            asked = ExplainAllocatable(node=NODE)
            answer = (await client.request(request_subject(asked), encode_request(asked), 20)).data
            found: dict[str, Any] = msgspec.json.decode(answer)
            return msgspec.json.decode(msgspec.json.encode(found["ok"]), type=NodeExplained) if "ok" in found else None

        async def promised(is_so: Callable[[int, int], bool], what: str) -> tuple[int, int]:
            """The memory that batch work is promised, and the term of online work, when these two are so."""

            async def both() -> tuple[int, int] | None:
                reply = await explained()
                if reply is None:
                    return None
                terms = {term.name: term.value for term in reply.published.explanation.terms}
                found = reply.published.batch_memory_bytes, terms["memory_online_used"]
                return found if is_so(*found) else None

            found = await eventually(both, what, limit_s=60)
            assert found is not None
            return found

        async def publish(revision: int, hosts: HostApplications) -> None:
            fact = PolicyChanged(at_ms=1, revision=revision, policy=ColocationPolicy(host_applications=hosts))
            await client.jetstream().publish(event_of(PolicyChanged).subject.of(), encode(fact))

        async def no_holds(message: Any) -> None:
            await message.respond(encode_reply(HoldsReply(holds=(), total=0)))

        try:
            await client.subscribe(request_subject(ListHolds()), cb=no_holds)
            await processes.start("collector", "colo_collector", {**common, **agent})
            await processes.start(
                "overcommit", "colo_overcommit", {**common, **patient, "COLO_OVERCOMMIT_LEASE_TTL_MS": "0"}
            )
            await processes.wait_ready(["collector", "overcommit"])
            before, online = await promised(lambda _number, _online: True, "a number of the node")
            assert online == 0

            await publish(1, declared(PriorityBand.PROD))
            number, _ = await promised(lambda _number, online: online == USED_BYTES, "the group's use as online work's")
            assert before - number == USED_BYTES

            # As batch work it is nobody's whom batch work has to leave room for.
            await publish(2, declared(PriorityBand.BATCH))
            assert await promised(lambda _number, online: online == 0, "the group as batch work") == (before, 0)
        finally:
            await processes.stop()
            await client.close()
