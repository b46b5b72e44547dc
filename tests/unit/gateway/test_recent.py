"""Counts of the last ten minutes, and what they and the services' answers make wrong."""

from __future__ import annotations

from msgspec import structs
from msgspec.structs import replace

from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.eviction import EvictionRequested
from colo_common.events.fleet import FleetTotals, OverdrawnNode
from colo_common.events.requests import QueueSummary
from colo_common.events.service import DeadLettered
from colo_common.model.reasons import EndCause, Reason
from colo_common.ports import Advisory, Backlog
from colo_gateway.core import GatewayCore
from colo_gateway.findings import findings_of
from colo_gateway.harm_reply import LatencySummary
from colo_gateway.recent import WINDOW_MS, Recent
from colo_gateway.survey import pending_of, service_entry
from tests.support.builders import a_node, a_status, an_eviction


def eviction(node: str, reason: Reason = Reason.MEMORY_WATERMARK) -> EvictionRequested:
    return an_eviction(node=node, reason=reason)


def test_facts_are_counted_for_ten_minutes_and_no_longer() -> None:
    recent = Recent()
    recent.add(eviction("n1"), 1_000_000)
    recent.add(eviction("n1"), 1_000_000)
    recent.add(DeadLettered(service="jobs", subject="s", reason="r"), 1_300_000)
    counts = recent.counts(1_300_000)
    assert (counts.evictions, counts.evictions_by_node, counts.dead_letters) == (2, {"n1": 2}, {"jobs": 1})
    assert counts.window_ms == 300_000
    later = recent.counts(1_000_000 + WINDOW_MS + 10_000)
    assert (later.evictions, later.dead_letters, later.window_ms) == (0, {"jobs": 1}, WINDOW_MS)


def test_facts_that_are_read_again_are_counted_when_they_happened() -> None:
    core = GatewayCore(event_log_size=100, trace_size=1)
    now_ms = 10_000_000
    for ago_ms in (3_000_000, 500_000, 400_000):
        core.handle(replace(eviction("n1"), eviction=f"e{ago_ms}", at_ms=now_ms - ago_ms), now_ms)
    core.handle(eviction("n2"), now_ms)
    counts = core.recent.counts(now_ms)
    assert (counts.evictions, counts.evictions_by_node, counts.window_ms) == (3, {"n1": 2, "n2": 1}, WINDOW_MS)
    assert core.event_log.known_since_ms() == now_ms - 3_000_000
    # Of another stream less is read again: only from then on everything is known.
    ended = ReplicaEnded(node="n1", replica="j/t/0", job="j", attempt=1, cause=EndCause.EVICTED, exit_code=143)
    core.handle(replace(ended, at_ms=now_ms - 90_000), now_ms)
    assert core.event_log.known_since_ms() == now_ms - 90_000


def test_a_gateway_that_reads_nothing_again_knows_what_happens_since_its_start() -> None:
    core = GatewayCore(event_log_size=100, trace_size=1)
    core.handle(a_node("n1", at_ms=1_000), 10_000_000)
    core.handle(eviction("n1"), 10_300_000)
    assert core.event_log.known_since_ms() == 10_000_000
    assert core.recent.counts(10_300_000).window_ms == 300_000


def test_names_and_buckets_are_bounded() -> None:
    recent = Recent()
    for number in range(2_000):
        recent.add(eviction(f"n{number}"), 5_000_000)
    counts = recent.counts(5_000_000)
    assert counts.evictions == 2_000
    assert len(counts.evictions_by_node) == 1_001
    assert counts.evictions_by_node["other"] == 1_000


STATUS = a_status()
FLEET = FleetTotals(
    nodes={"fresh": 3, "stale": 0, "lost": 0},
    cpu_capacity_mcpu=0,
    cpu_used_mcpu=0,
    memory_capacity_bytes=0,
    memory_used_bytes=0,
    batch_cpu_mcpu=20_000,
    batch_memory_bytes=0,
    held_cpu_mcpu=10_000,
    held_memory_bytes=0,
)
NOTHING = Recent().counts(0)
UNMEASURED = LatencySummary(sentence="")


def test_a_service_is_ready_while_one_instance_is_and_consumers_are_its_own() -> None:
    sick = structs.replace(STATUS, boot_id="b2", problems={"redis": "refuses writes"})
    backlogs = [
        Backlog(stream="COLO_EVT", consumer="colo-jobs-evt", pending=3, unacknowledged=1),
        Backlog(stream="COLO_EVT", consumer="colo-evictor-evt", pending=9, unacknowledged=0),
    ]
    entry = service_entry("jobs", [STATUS, sick], backlogs, 0)
    assert (entry.is_ready, entry.why, entry.pending, entry.unacknowledged) == (True, "", 3, 1)
    alone = service_entry("jobs", [sick], None, 0)
    assert (alone.is_ready, alone.why, alone.pending) == (False, "redis: refuses writes", None)
    nobody = service_entry("jobs", [], backlogs, 0)
    assert not nobody.is_ready
    assert nobody.why.startswith("nobody answers")


def test_what_waits_at_a_consumer_that_nobody_reads_any_more_waits_for_nobody() -> None:
    read = Backlog(stream="COLO_EVT", consumer="colo-evictor-p1-evt", pending=3, unacknowledged=1)
    left = Backlog(stream="COLO_EVT", consumer="colo-evictor-evt", pending=90_000, unacknowledged=0, is_read=False)
    evictor = structs.replace(STATUS, service="evictor")
    entry = service_entry("evictor", [evictor], [read, left], 0)
    assert (entry.pending, entry.consumers) == (3, (read,))
    assert pending_of([read, left])["evictor"] == 3
    # While the service is away nobody reads any, and all of it waits.
    away = structs.replace(read, is_read=False)
    assert service_entry("evictor", [], [away, left], 0).pending == 90_003
    assert pending_of([away, left])["evictor"] == 90_003


def test_the_gateway_is_not_blamed_for_a_service_that_speaks_for_itself() -> None:
    gateway = structs.replace(STATUS, service="gateway", problems={"jobs": "nobody answers"})
    assert service_entry("gateway", [gateway], [], 0).is_ready
    cut = structs.replace(STATUS, service="gateway", problems={"nats": "is not connected"})
    assert service_entry("gateway", [cut], [], 0).why == "nats: is not connected"


def test_work_that_nobody_holds_is_a_finding() -> None:
    holder, standing_by = structs.replace(STATUS, held=(0,), partitions=1), structs.replace(STATUS, partitions=1)
    assert findings_of([service_entry("jobs", [holder, standing_by], [], 0)], FLEET, [], NOTHING, UNMEASURED, {}) == ()
    (found,) = findings_of(
        [service_entry("jobs", [standing_by, standing_by], [], 0)], FLEET, [], NOTHING, UNMEASURED, {}
    )
    assert (found.what, found.do) == ("no instance of jobs serves: 2 stand by", "colo get services")
    half = structs.replace(STATUS, service="scheduler", held=tuple(range(8)), partitions=16)
    (found,) = findings_of([service_entry("scheduler", [half], [], 0)], FLEET, [], NOTHING, UNMEASURED, {})
    assert found.what == "8 of 16 partitions of scheduler have no owner"


def test_two_numbers_of_partitions_are_one_finding_and_no_partition_without_an_owner() -> None:
    old, new = structs.replace(STATUS, held=(0,), partitions=1), structs.replace(STATUS, partitions=4)
    (found,) = findings_of([service_entry("jobs", [old, new], [], 0)], FLEET, [], NOTHING, UNMEASURED, {})
    assert found.what == (
        "instances of jobs are set to 1 and 4 partitions: those that hold none wait until the others leave"
    )


def test_each_condition_is_one_finding_with_a_command() -> None:
    assert findings_of([service_entry("jobs", [STATUS], [], 0)], FLEET, [], NOTHING, UNMEASURED, {}) == ()
    recent = Recent()
    recent.add(DeadLettered(service="jobs", subject="s", reason="r"), 10)
    lagging = Backlog(stream="COLO_RUN", consumer="colo-jobs-run", pending=9_000, unacknowledged=0)
    fleet = structs.replace(
        FLEET,
        nodes={"fresh": 1, "stale": 1, "lost": 1},
        late=("n2", "n3"),
        overdrawn_nodes=1,
        overdrawn_cpu_mcpu=1_500,
        overdrawn=(OverdrawnNode(node="n2", cpu_mcpu=1_500, memory_bytes=0),),
    )
    full = QueueSummary(queue="night", waiting=95, running=0, capacity=100)
    found = findings_of([service_entry("jobs", [], [lagging], 0)], fleet, [full], recent.counts(10), UNMEASURED, {})
    assert [finding.do for finding in found] == [
        "colo get services",
        "colo get services -o wide",
        "colo get nodes --sort age",
        "colo get nodes --sort age",
        "colo explain overcommit n2",
        "colo get jobs --queue night --state Pending",
        "colo dead-letters list",
    ]
    assert found[1].what == "jobs is 9000 messages behind"
    assert found[4].what == "batch work holds 1.5 CPU more than could be promised now, on 1 nodes"
    small = structs.replace(fleet, nodes={"fresh": 3}, late=(), overdrawn_cpu_mcpu=900)
    assert findings_of([], small, [], NOTHING, UNMEASURED, {}) == ()


def test_what_the_bus_says_by_itself_and_what_a_service_missed_are_findings() -> None:
    recent = Recent()
    for kind, consumer in (
        ("consumer-deleted", "colo-jobs-evt"),
        ("message-terminated", "colo-jobs-evt"),
        ("stream-quorum-lost", ""),
    ):
        recent.advised(Advisory(kind=kind, stream="COLO_EVT", consumer=consumer), 10)
    recent.advised(Advisory(kind="stream-quorum-lost", stream="COLO_EVT"), 20)
    missed = structs.replace(STATUS, facts_missed=2, store_losses=1, unrestored_items=3)
    found = findings_of([service_entry("jobs", [missed], [], 0)], FLEET, [], recent.counts(30), UNMEASURED, {})
    assert [finding.what for finding in found] == [
        "jobs missed facts that a stream discarded before it received them, 2 times since its start",
        "jobs found its store emptied or begun again, 1 times since its start, and put its rows back",
        "3 unfinished jobs are lost with the store and cannot be rebuilt: submit them again, jobs logs their ids as jobs-unknown",
        "NATS says: COLO_EVT has lost the servers that keep it and takes nothing, 2 times",
        "NATS says: colo-jobs-evt of COLO_EVT was deleted; its service makes it again",
    ]
    assert recent.counts(10_000_000).advisories == {}
