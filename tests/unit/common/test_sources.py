"""How subscriptions share consumers: every subscribed event is received, none twice, and the consumers' names last."""

from __future__ import annotations

import pytest

from colo_common.events.enforcement import NodeRecovered, ReplicaEnded, ReplicaStarted
from colo_common.events.eviction import EvictReplica
from colo_common.events.job import (
    JobStateChanged,
    JobSubmitted,
    PlacementsRequested,
    QueueChanged,
    ReplicasChanged,
    ReplicasWithdrawn,
    StopReplicas,
)
from colo_common.events.node import AllocatableChanged, LeaseRenewed, NodeTopologyReported, NodeUsageSampled
from colo_common.events.placement import ApplyPlacements
from colo_common.events.registry import EVENTS, Stream
from colo_common.events.subjects import matches
from colo_common.model.invalid import InvalidInput
from colo_common.ports import Source
from colo_common.runtime.core import Subscription
from colo_common.runtime.sources import is_catch_all, sources_of

ENFORCED = "colo.v1.evt.enforcement.*"


def of_node(body: type, node: str = "n1.example") -> Subscription:
    return Subscription(type=body, parameters={"node": node})


@pytest.mark.parametrize(
    ("subscriptions", "sources"),
    [
        pytest.param(
            [Subscription(type=LeaseRenewed), Subscription(type=NodeUsageSampled)],
            [Source(subject="colo.v1.tlm.node.*.lease"), Source(subject="colo.v1.tlm.node.*.usage")],
            id="telemetry is received by subject",
        ),
        pytest.param(
            [of_node(ApplyPlacements), of_node(StopReplicas), of_node(EvictReplica), of_node(LeaseRenewed)],
            [
                Source(
                    subject="colo.v1.cmd.node.n1_example.>",
                    stream="COLO_CMD",
                    durable="colo-jobs-n1_example-cmd",
                    forget_s=259_200,
                ),
                Source(subject="colo.v1.tlm.node.n1_example.lease"),
            ],
            id="all orders of a node are one pattern",
        ),
        pytest.param(
            [of_node(StopReplicas, "a"), of_node(EvictReplica, "a"), of_node(StopReplicas, "b")],
            [
                Source(
                    subject="colo.v1.cmd.node.a.stop",
                    also=("colo.v1.cmd.node.a.evict",),
                    stream="COLO_CMD",
                    durable="colo-jobs-a-cmd",
                    forget_s=259_200,
                ),
                Source(
                    subject="colo.v1.cmd.node.b.stop", stream="COLO_CMD", durable="colo-jobs-b-cmd", forget_s=259_200
                ),
            ],
            id="some orders of a node are a list",
        ),
        pytest.param(
            [
                Subscription(type=JobSubmitted),
                Subscription(type=ReplicaStarted),
                Subscription(type=ReplicasChanged),
                Subscription(type=ReplicaEnded),
                Subscription(type=ReplicaEnded),
            ],
            [
                Source(
                    subject="colo.v1.evt.job.submitted",
                    also=("colo.v1.evt.replica.changed",),
                    stream="COLO_EVT",
                    durable="colo-jobs-evt",
                    forget_s=604_800,
                ),
                Source(
                    subject=f"{ENFORCED}.started",
                    stream="COLO_RUN",
                    durable="colo-jobs-evt-enforcement-started",
                    forget_s=604_800,
                ),
                Source(
                    subject=f"{ENFORCED}.ended",
                    stream="COLO_RUN",
                    durable="colo-jobs-evt-enforcement-ended",
                    forget_s=604_800,
                ),
            ],
            id="subjects with many nodes stay by themselves",
        ),
        pytest.param(
            [
                Subscription(type=PlacementsRequested),
                Subscription(type=JobSubmitted),
                Subscription(type=ReplicasWithdrawn),
            ],
            [
                Source(subject="colo.v1.evt.replica.>", stream="COLO_ASK", durable="colo-jobs-ask", forget_s=604_800),
                Source(
                    subject="colo.v1.evt.job.submitted", stream="COLO_EVT", durable="colo-jobs-evt", forget_s=604_800
                ),
            ],
            id="streams have their own sources",
        ),
        pytest.param(
            [Subscription(type=NodeTopologyReported, replay=True), Subscription(type=AllocatableChanged, replay=True)],
            [Source(subject="colo.v1.evt.node.*.>", stream="COLO_NODE", last_per_subject=True)],
            id="all facts of all nodes are one pattern",
        ),
        pytest.param(
            [Subscription(type=NodeTopologyReported, replay=True), Subscription(type=JobSubmitted, durable=False)],
            [
                Source(subject="colo.v1.evt.node.*.topology", stream="COLO_NODE", last_per_subject=True),
                Source(subject="colo.v1.evt.job.submitted", stream="COLO_EVT"),
            ],
            id="another start is another source",
        ),
    ],
)
def test_subscriptions_become_as_few_sources_as_can_be(
    subscriptions: list[Subscription], sources: list[Source]
) -> None:
    assert list(sources_of("jobs", subscriptions)) == sources


@pytest.mark.parametrize("stream", [Stream.EVT, Stream.ASK, Stream.RUN, Stream.NODE])
def test_all_events_of_a_stream_are_one_consumer(stream: Stream) -> None:
    rows = [row for row in EVENTS if row.stream is stream]
    (source,) = sources_of("gateway", [Subscription(type=row.body, durable=False) for row in rows])
    assert is_catch_all(source)
    assert all(matches(source.subject, row.subject.wildcard()) for row in rows)


def test_exactly_the_subscribed_events_are_received_whatever_is_left_out() -> None:
    rows = [row for row in EVENTS if row.stream is not None]
    for left_out in rows:
        asked = [row for row in rows if row is not left_out]
        sources = sources_of("gateway", [Subscription(type=row.body) for row in asked])
        for row in rows:
            subject = row.subject.wildcard()
            patterns = [each for source in sources if source.stream == row.stream for each in source.subjects]
            assert sum(matches(pattern, subject) for pattern in patterns) == (row is not left_out), (subject, patterns)


def test_a_parameter_that_the_subject_lacks_is_refused() -> None:
    with pytest.raises(InvalidInput, match="node"):
        sources_of(
            "jobs", [Subscription(type=NodeRecovered), Subscription(type=ReplicaStarted, parameters={"zone": "1"})]
        )


def test_what_may_wait_has_a_source_of_its_own() -> None:
    subscriptions = (
        Subscription(type=ReplicaStarted),
        Subscription(type=LeaseRenewed, may_wait_ms=7),
        Subscription(type=NodeTopologyReported, durable=False, replay=True, may_wait_ms=5),
        Subscription(type=AllocatableChanged, durable=False, replay=True),
    )
    assert {source.subject: source.may_wait_ms for source in sources_of("jobs", subscriptions)} == {
        f"{ENFORCED}.started": 0,
        "colo.v1.tlm.node.*.lease": 7,
        "colo.v1.evt.node.*.topology": 5,
        "colo.v1.evt.node.*.allocatable": 0,
    }


def test_one_durable_consumer_cannot_wait_in_two_ways() -> None:
    subscriptions = (
        Subscription(type=PlacementsRequested, may_wait_ms=5),
        Subscription(type=JobSubmitted),
        Subscription(type=ReplicasChanged),
        Subscription(type=QueueChanged, may_wait_ms=5),
        Subscription(type=JobStateChanged, may_wait_ms=5),
    )
    with pytest.raises(InvalidInput, match=r"subscription.may_wait_ms.*must be equal.*colo-jobs-evt"):
        sources_of("jobs", subscriptions)
