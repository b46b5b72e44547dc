"""Faults of a simulated world: the rates of network faults, and the plan of process, node and server faults."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

__all__ = [
    "NO_NETWORK_FAULTS",
    "FORGETFUL",
    "FORGETFUL_STREAMS",
    "HARSH",
    "ROUGH_NETWORK",
    "STOPPING",
    "TEARING",
    "FaultKind",
    "FaultPlan",
    "NetworkFaults",
]


class NetworkFaults(Struct, frozen=True, kw_only=True):
    """Rates in permille of messages or calls, and the longest delay (ms) of a late message and of a pause.

    `lost` applies to live messages only. Stream messages are delivered at least once: late, twice, out of order; `ack_lost` and
    `publish_unsure` lose acknowledgements, so that messages are redelivered or published again. `ledger_unsure`: the ledger
    carries out the call and its answer is lost. `pause`: a process waits before its next call.
    """

    lost: int = 0
    twice: int = 0
    late: int = 0
    late_most_ms: int = 0
    ack_lost: int = 0
    publish_unsure: int = 0
    ledger_unsure: int = 0
    pause: int = 0
    pause_most_ms: int = 0


NO_NETWORK_FAULTS = NetworkFaults()
ROUGH_NETWORK = NetworkFaults(
    lost=50,
    twice=20,
    late=60,
    late_most_ms=5_000,
    ack_lost=10,
    publish_unsure=10,
    ledger_unsure=20,
    pause=60,
    pause_most_ms=40,
)

FaultKind = Literal[
    "crash-jobs",
    "crash-scheduler",
    "stop-scheduler",
    "stop-service",
    "stop-node",
    "step-clock",
    "crash-overcommit",
    "crash-evictor",
    "crash-executor",
    "crash-collector",
    "cut-service",
    "cut-node",
    "cut-one-way",
    "lose-node",
    "crash-replica",
    "store-away",
    "ledger-away",
    "redis-forgets",
    "redis-emptied",
    "host-lost",
    "streams-forget",
    "tear-journal",
    "move-leases",
]


class FaultPlan(Struct, frozen=True, kw_only=True):
    """Faults happen in intervals of `every_ms` (least, most) until `quiet_after_ms`, of the kinds in `weights`.

    A crashed process starts again after at most `down_most_ms`. A cut link, a lost node, an unavailable server, a stopped process
    and a wrong clock last up to `away_most_ms`, and in `long_permille` of the cases up to ten times that. A stopped process
    continues with its state from before the stop. A link that is cut one way only, to the process or from it, is found broken after
    ten seconds, and is cut in both directions then. A clock is set forward or back by up to an hour while a process of its machine
    starts again, and is right at the first start after that time.
    """

    network_faults: NetworkFaults = ROUGH_NETWORK
    quiet_after_ms: int = 420_000
    every_ms: tuple[int, int] = (2_000, 14_000)
    down_most_ms: int = 6_000
    away_most_ms: int = 15_000
    long_permille: int = 150
    weights: tuple[tuple[FaultKind, int], ...] = (
        ("crash-jobs", 5),
        ("crash-scheduler", 5),
        ("crash-overcommit", 3),
        ("crash-evictor", 3),
        ("crash-executor", 6),
        ("crash-collector", 2),
        ("cut-service", 4),
        ("cut-node", 5),
        ("lose-node", 3),
        ("crash-replica", 4),
        ("store-away", 2),
        ("ledger-away", 2),
    )


STOPPING = FaultPlan(every_ms=(500, 6_000), weights=(*FaultPlan().weights, ("stop-scheduler", 15)))
"""More frequent faults, and stopped schedulers, often for longer than their leases."""

HARSH = FaultPlan(
    every_ms=STOPPING.every_ms,
    weights=(
        *STOPPING.weights,
        ("stop-service", 4),
        ("stop-node", 4),
        ("step-clock", 8),
        ("cut-one-way", 6),
    ),
)
"""More kinds of faults: also frozen services and agents, clocks that are wrong by up to an hour, and links that pass one way."""

TEARING = FaultPlan(
    every_ms=STOPPING.every_ms,
    weights=(*FaultPlan().weights, ("tear-journal", 20), ("move-leases", 10)),
)
"""Also journals of executors that lost a line, and leases that are gone in the middle of a batch."""

FORGETFUL = FaultPlan(
    quiet_after_ms=60_000,
    every_ms=(4_000, 9_000),
    weights=(
        ("redis-forgets", 3),
        ("redis-emptied", 1),
        ("host-lost", 4),
        ("crash-jobs", 2),
        ("crash-scheduler", 2),
        ("crash-overcommit", 1),
        ("crash-evictor", 1),
        ("crash-executor", 2),
        ("crash-replica", 1),
        ("lose-node", 1),
    ),
)
"""A Redis that starts again and again: empty, or without its last second, under services that live, or with some of them.

They die at other times as well, but for the seconds in which they put back what Redis lost, or find it again.
"""

FORGETFUL_STREAMS = FaultPlan(
    quiet_after_ms=60_000, every_ms=(6_000, 12_000), weights=(("streams-forget", 2), ("crash-replica", 1))
)
"""A NATS that is restored again and again as it was up to two minutes ago, under services that live."""
