"""What goes wrong in a simulated world: how often messages suffer, and when parts of it fail."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

__all__ = ["CALM", "ROUGH", "STOPPING", "FaultKind", "FaultPlan", "NetworkFaults"]


class NetworkFaults(Struct, frozen=True, kw_only=True):
    """Chances in permille of each message, and the longest delay (ms) of one that is late.

    `lost` strikes telemetry only. Messages of streams come at least once: late, twice, out of order; acknowledgements and the
    answers to publishers get lost, so that messages are delivered, and published, again. `ledger_unsure`: the ledger did what it
    was asked and its answer is lost.
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


CALM = NetworkFaults()
ROUGH = NetworkFaults(
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
    "crash-overcommit",
    "crash-evictor",
    "crash-executor",
    "crash-collector",
    "cut-service",
    "cut-node",
    "lose-node",
    "crash-replica",
    "store-away",
    "ledger-away",
]


class FaultPlan(Struct, frozen=True, kw_only=True):
    """Faults strike every `every_ms` (two of them: least and most) until `quiet_after_ms`, of these kinds with these weights.

    A crashed service is back after at most `down_most_ms`; a cut, a lost node and a server that is away last up to `away_most_ms`,
    now and then (`long_permille`) up to ten times that; so does the rest of a scheduler that is stopped, and then goes on with what
    it knew.
    """

    network_faults: NetworkFaults = ROUGH
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
"""More of everything, and schedulers that stand still, often for longer than their leases."""
