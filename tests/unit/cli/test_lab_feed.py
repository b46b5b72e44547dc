"""The lab's feeder says when it is what the verdict measures."""

from collections.abc import Mapping

import pytest

from colo_cli.lab_feed import LabFeed
from colo_cli.lab_observe import LabObserver, NodeView
from colo_common.events.requests import JobAccepted
from colo_common.events.wire import encode_reply
from colo_sim.job_source import JobShape, TableJobs
from tests.support.bus_memory import MemoryBus
from tests.support.manual_clock import ManualClock


class AcceptingBus(MemoryBus):
    """Accepts every job."""

    async def ask(self, subject: str, data: bytes, timeout_s: float, headers: Mapping[str, str] | None = None) -> bytes:
        del subject, data, timeout_s, headers
        return encode_reply(JobAccepted(job="j", state="Inqueue", version=1))


def a_feed(cpu_mcpu: int) -> LabFeed:
    """Jobs of this size for one node with 100 CPUs."""
    seen = LabObserver()
    seen.nodes["n1"] = NodeView(capacity_mcpu=128_000, allocatable_mcpu=100_000)
    jobs = TableJobs([("t", JobShape(cpu_mcpu=cpu_mcpu, memory_bytes=1, runtime_ms=60_000), 0)])
    return LabFeed(AcceptingBus(), ManualClock(), seen, jobs, nodes=1, load_pct=70, avoids_devices=False)


@pytest.mark.parametrize(
    ("cpu_mcpu", "submitted", "notice"),
    [
        (10, 120, "58 % of the time 120 jobs were outstanding, which is the most that the lab submits: "),
        (10_000, 7, ""),
    ],
    ids=["small jobs", "jobs that fill the node"],
)
async def test_jobs_so_small_that_the_feeder_is_measured_are_told(cpu_mcpu: int, submitted: int, notice: str) -> None:
    feed = a_feed(cpu_mcpu)
    for _ in range(12):
        await feed.turn()
    assert (feed.submitted, feed.refused) == (submitted, [])
    notices = [f"{notice}with jobs this small the verdict measures the feeder"] if notice else []
    assert feed.notices() == notices
