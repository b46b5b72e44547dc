"""A fact in plain words: what people read in `colo watch` and `colo history`."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from colo_common.events.enforcement import (
    AttachedGroup,
    AttachedGroupsChanged,
    DriftCorrected,
    EnforcementChanged,
    KnobValue,
    LikelyWriter,
    MemoryTerms,
    NodeRecovered,
    OwnCpusOpened,
    PlacementRefused,
    ReplicaEnded,
    ReplicaStarted,
    ZoneCeiling,
    ZoneTerms,
)
from colo_common.events.eviction import EvictionFinished, EvictReplica
from colo_common.events.external import ExternalCapacity, ExternalCapacityChanged
from colo_common.events.fact import Fact
from colo_common.events.fact_text import fact_text
from colo_common.events.job import (
    JobStateChanged,
    JobSubmitted,
    PlacementsRequested,
    QueueChanged,
    ReplicaChange,
    ReplicasChanged,
    ReplicasWithdrawn,
)
from colo_common.events.node import FreshnessChanged, PressureCrossed
from colo_common.events.placement import (
    NearestMiss,
    NodeRelease,
    PlacementRejected,
    PlacementsReleased,
    PreemptionProposed,
    ProposedPreemption,
    ProposedVictim,
    ReasonCount,
)
from colo_common.events.policy import PolicyChanged
from colo_common.events.registry import EVENTS
from colo_common.events.reservation import ReservationChanged
from colo_common.events.restriction import RestrictionChange, RestrictionsChanged
from colo_common.events.service import DeadLettered
from colo_common.model.colocation_policy import ColocationPolicy
from colo_common.model.freshness import Freshness
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.restriction import Restriction, RestrictionKind, RestrictionScope
from tests.support.builders import a_node, a_placement, an_eviction, decided
from tests.support.jobs_world import a_spec, a_task
from tests.support.scheduler_story import a_placement_request

MISS = NearestMiss(node="n1", reason=Reason.BATCH_CPU_SHORT, need=2000, have=500, unit="mcpu")
REJECTED = PlacementRejected(
    replica="j/main/0",
    job="j",
    attempt=1,
    nodes=6,
    counts=(ReasonCount(reason=Reason.BATCH_CPU_SHORT, nodes=6),),
    nearest=MISS,
)
EVICTED = an_eviction("j/main/0", sample_seq=7, candidates=3)
ENDED = ReplicaEnded(
    node="n1", replica="j/main/0", job="j", attempt=1, cause=EndCause.EXITED, exit_code=0, ran_ms=5_000
)
ZONE_SHRUNK = EnforcementChanged(
    node="n1",
    reason=Reason.ONLINE_STALL,
    ceiling_mcpu=6_000,
    ceiling_before_mcpu=8_000,
    online_cpu_used_mcpu=5_000,
    target_mcpu=6_000,
    rule="stall",
    stall_group="web",
    stall_pct=40,
    zones=(ZoneCeiling(zone=1, ceiling_mcpu=2_000, capacity_mcpu=4_000),),
    zone=1,
)
STALL = PressureCrossed(
    node="n1", signal="cpu_some", above=True, value_pct=25, threshold_pct=20, window_ms=10_000, sample_seq=1
)
VICTIM = ProposedVictim(replica="k/main/0", attempt=1, band=PriorityBand.BATCH, priority=0, cpu_mcpu=1, memory_bytes=1)
CORDON = Restriction(
    kind=RestrictionKind.CORDON, scope=RestrictionScope.NODE, target="n1", by="ana", reason="kernel upgrade"
)


def _moves(*moves: tuple[str, str, str]) -> ReplicasChanged:
    return ReplicasChanged(
        job="j",
        changes=tuple(
            ReplicaChange(
                replica=f"j/{replica}", attempt=1, previous=previous, state=state, transition="R01", node="n1"
            )
            for replica, previous, state in moves
        ),
    )


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        (JobSubmitted(job="j", spec=a_spec(a_task("main", 2))), "job j submitted: 2 replicas, queue default"),
        (
            JobStateChanged(job="j", queue="q", state="Running", previous="Inqueue", transition="J04", version=2),
            "job j: Inqueue -> Running",
        ),
        (
            _moves(
                ("main/0", "Pending", "Assigned"), ("main/1", "Running", "Failed"), ("main/0", "Assigned", "Running")
            ),
            "j: main/0 Pending -> Assigned -> Running on n1, main/1 Running -> Failed on n1",
        ),
        (
            decided(*[a_placement(f"j/main/{n}") for n in range(5)]),
            "placed j/main/0 on n1 zone 0, j/main/1 on n1 zone 0, j/main/2 on n1 zone 0 and 2 more",
        ),
        (
            PlacementsRequested(placement_requests=(a_placement_request("j/main/0"),)),
            "wanted a place: j/main/0",
        ),
        (
            ReplicasWithdrawn(attempts=(("j/main/0", 1),), reason=Reason.CANCELLED),
            "no longer wanted a place: j/main/0: the job was cancelled",
        ),
        (
            PlacementsReleased(nodes=(NodeRelease(node="n1", attempts=(("j/main/0", 1), ("j/main/1", 2))),)),
            "gave back the place of j/main/0, j/main/1 on n1",
        ),
        (
            REJECTED,
            "j/main/0 waits: 0 of 6 nodes fit (6 batch-cpu-short); nearest: 1.5 CPU short in n1 (0.5 of 2)",
        ),
        (
            replace(REJECTED, never=True),
            "j/main/0 waits: 0 of 6 nodes fit (6 batch-cpu-short); no node could hold it even when empty: "
            "a machine has 0.5 CPU at most (n1), it needs 2",
        ),
        (
            PreemptionProposed(
                replica="j/main/0",
                job="j",
                attempt=1,
                band=PriorityBand.BATCH,
                priority=5,
                reason=Reason.BATCH_CPU_SHORT,
                proposal=ProposedPreemption(node="n1", victims=(VICTIM,), revision=1, at_ms=2),
            ),
            "j/main/0 would fit on n1 if k/main/0 left",
        ),
        (QueueChanged(queue="q", waiting=3, running=5, capacity=9), "queue q: 3 waiting, 5 running"),
        (ReservationChanged(reservation="night", phase="Available", node="n1"), "reservation night: Available on n1"),
        (ReplicaStarted(node="n1", replica="j/main/0", job="j", attempt=2), "j/main/0 runs on n1 (attempt 2)"),
        (ENDED, "j/main/0 succeeded on n1 after 5.0s"),
        (
            replace(ENDED, cause=EndCause.EVICTED, exit_code=143, reason=Reason.CPU_WATERMARK),
            "j/main/0 was evicted on n1 after 5.0s: CPU in use stayed above the watermark",
        ),
        (
            PlacementRefused(
                node="n1", replica="j/main/0", job="j", attempt=1, reason=Reason.START_FAILED, detail="ENOENT"
            ),
            "n1 refused j/main/0: the replica's process could not be started (ENOENT)",
        ),
        (
            EnforcementChanged(
                node="n1",
                reason=Reason.ONLINE_LOAD,
                ceiling_mcpu=1_500,
                ceiling_before_mcpu=4_500,
                online_cpu_used_mcpu=5_000,
                target_mcpu=1_500,
            ),
            "n1: batch may use 1.5 CPU, before 4.5: online load rose, batch CPU was shrunk (online uses 5 CPU)",
        ),
        (
            ZONE_SHRUNK,
            "n1: batch may use 6 CPU, before 8, in zone 1 2 of 4: online work waited for a CPU, batch CPU was shrunk to see whether"
            " that helps (online uses 5 CPU, web waited 40 % of the time)",
        ),
        (
            replace(
                ZONE_SHRUNK,
                reason=Reason.ONLINE_STALL_FELL,
                ceiling_before_mcpu=6_000,
                zones=(ZoneCeiling(zone=1, ceiling_mcpu=4_000, capacity_mcpu=4_000),),
                stall_group="",
            ),
            "n1: batch may use 6 CPU, as before, in zone 1 4 of 4: online work waits no longer, batch CPU was given back (online"
            " uses 5 CPU)",
        ),
        (
            replace(
                ZONE_SHRUNK,
                reason=Reason.ONLINE_LOAD,
                rule="usage",
                zones=(ZoneCeiling(zone=0, ceiling_mcpu=3_000, capacity_mcpu=4_000), *ZONE_SHRUNK.zones),
                zone_terms=(ZoneTerms(zone=1, online_used_mcpu=3_400, node_most_mcpu=700),),
            ),
            "n1: batch may use 6 CPU, before 8, in zone 0 3 of 4, in zone 1 2 of 4 (online uses 3.4 there, so at most 0.7 of the"
            " node): online load rose, batch CPU was shrunk (online uses 5 CPU)",
        ),
        (
            replace(
                ZONE_SHRUNK,
                reason=Reason.MEMORY_BANDWIDTH,
                memory=MemoryTerms(zone=1, bytes_per_s=68_400_000_000, most_bytes_per_s=80_000_000_000, mark_pct=85),
            ),
            "n1: batch may use 6 CPU, before 8, in zone 1 2 of 4: memory carried nearly all that it sustains, batch CPU was shrunk"
            " (online uses 5 CPU, memory of zone 1 carried 85 % of what it sustains: 68.4 of 80.0 GB/s)",
        ),
        (
            replace(
                ZONE_SHRUNK,
                reason=Reason.MEMORY_BANDWIDTH_OTHERWISE,
                ceiling_mcpu=9_000,
                zones=(),
                zone=None,
                memory=MemoryTerms(
                    zone=None, bytes_per_s=99_000_000_000, most_bytes_per_s=100_000_000_000, mark_pct=85
                ),
            ),
            "n1: batch may use 9 CPU, before 8: memory carried as much with batch work at the floor, so batch CPU was given back"
            " (online uses 5 CPU, the machine's memory carried 99 % of what it sustains: 99.0 of 100.0 GB/s)",
        ),
        (
            OwnCpusOpened(node="n1", cpus="2", groups=("/",)),
            "n1: processes of no group may run on CPUs 2, which LSE or LSR work has as its own: start those of no group in one",
        ),
        (
            DriftCorrected(node="n1", count=1, knobs=(KnobValue(path="b/cpu.max", value="1", before="2"),)),
            "n1: another program changed 1 kernel file: b/cpu.max was 2, is 1 again",
        ),
        (
            DriftCorrected(
                node="n1",
                count=1,
                knobs=(KnobValue(path="w.service/cpu.weight", value="79", before="5"),),
                writers=(
                    LikelyWriter(
                        path="w.service/cpu.weight",
                        writer="systemd",
                        evidence="CPUWeight of w.service is 5, as was found",
                    ),
                ),
            ),
            "n1: systemd changed 1 kernel file: w.service/cpu.weight was 5, is 79 again"
            " (CPUWeight of w.service is 5, as was found)",
        ),
        (
            DriftCorrected(node="n1", count=1, failed=("the journal cannot be written",)),
            "n1: its executor cannot keep as it should be: the journal cannot be written",
        ),
        (DriftCorrected(node="n1", count=0), "n1: its executor keeps all as it should be again"),
        (
            DriftCorrected(node="n1", count=1, failed=("the journal cannot be written",), observed=True),
            "n1: would write nothing; not possible: the journal cannot be written",
        ),
        (NodeRecovered(node="n1", running=(("j/main/0", 1),)), "n1: its executor started, 1 replica still runs"),
        (
            AttachedGroupsChanged(
                node="n1",
                groups=(AttachedGroup(replica="w/main/0", attempt=1, qos=QosClass.LS, group="system.slice/w.service"),),
            ),
            "n1: attached: w/main/0 in system.slice/w.service",
        ),
        (AttachedGroupsChanged(node="n1"), "n1: nothing is attached"),
        (replace(ENDED, cause=EndCause.LOST), "j/main/0 ended, and nobody saw how on n1 after 5.0s"),
        (a_node(simulated=True), "n1 is a machine of 32 CPU, 128Gi, 2 zones, simulated"),
        (
            FreshnessChanged(
                node="n1", freshness=Freshness.STALE, previous=Freshness.FRESH, sample_seq=1, age_ms=10_000
            ),
            "n1: samples fresh -> stale, newest sample 10s old",
        ),
        (STALL, "n1: some work stalled on CPU rose over 20%: 25% of the last 10s"),
        (replace(STALL, above=False, value_pct=9), "n1: some work stalled on CPU fell under 20%: 9% of the last 10s"),
        (EVICTED, "n1: j/main/0 must leave: memory in use 93% >= 92% for 3.0s; 2 other candidates (ev-1)"),
        (
            replace(EVICTED, reason=Reason.CPU_SATISFACTION, value_pct=10, threshold_pct=30, candidates=1),
            "n1: j/main/0 must leave: CPU that batch work gets of its request 10% < 30% for 3.0s (ev-1)",
        ),
        (
            EvictionFinished(
                eviction="ev-1", node="n1", replica="j/main/0", attempt=1, cause=EndCause.EVICTED, took_ms=1_500
            ),
            "n1: j/main/0 left 1.5s after the order (ev-1)",
        ),
        (
            PolicyChanged(revision=4, policy=ColocationPolicy(), by="ana", reason="more headroom"),
            "colocation policy 4 applied by ana: more headroom",
        ),
        (
            PolicyChanged(revision=5, policy=ColocationPolicy(), by="ben", rolled_back_to=3),
            "colocation policy 5 rolled back to 3 by ben",
        ),
        (
            ExternalCapacityChanged(
                node="n1",
                entries=(
                    ExternalCapacity(source="master", until_ms=9, memory_bytes=8 << 30),
                    ExternalCapacity(source="yarn", until_ms=9, cpu_mcpu=3_500, memory_bytes=0),
                ),
            ),
            "n1: master gives batch work at most 8Gi; yarn gives batch work at most 3.5 CPU, 0",
        ),
        (ExternalCapacityChanged(node="n1"), "n1: no system outside bounds batch work"),
        (
            RestrictionsChanged(
                revision=1,
                restrictions=(CORDON,),
                audit=(RestrictionChange(at_ms=0, action="set", restriction=CORDON, by="ana"),),
            ),
            "node n1 cordoned by ana: kernel upgrade",
        ),
        (
            DeadLettered(service="jobs", subject="colo.v1.evt.x", reason="no such type"),
            "jobs could not handle a message of colo.v1.evt.x: no such type",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Fact) else "",
)
def test_a_fact_is_told_in_plain_words(fact: Fact, text: str) -> None:
    assert fact_text(fact) == text


def test_a_long_text_is_cut_and_a_fact_without_words_shows_its_fields() -> None:
    assert fact_text(DeadLettered(service="jobs", subject="s", reason="x" * 400)).endswith("xxx...")
    order = EvictReplica(
        node="n1", generation=1, eviction="ev-1", replica="j/main/0", attempt=1, grace_ms=5, reason=Reason.CANCELLED
    )
    assert fact_text(order) == (
        "node n1, generation 1, eviction ev-1, replica j/main/0, attempt 1, grace ms 5, reason cancelled"
    )


def test_every_event_of_the_public_surface_has_words() -> None:
    from colo_common.events import fact_text as module

    worded = module._TEXTS.keys()
    assert not [row.body.__name__ for row in EVENTS if row.subject.kind == "evt" and row.body not in worded]
