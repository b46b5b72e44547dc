"""The only source of random numbers of a simulated world, and the present rates of network faults."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

from colo_sim.faults import NO_NETWORK_FAULTS, NetworkFaults

__all__ = ["Chance"]

_LATENCY_MS: Final = (1, 4)


class Chance:
    """All randomness of a world comes from `rng`, so equal seeds give equal histories. `reached` counts faults that occurred."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.network_faults: NetworkFaults = NO_NETWORK_FAULTS
        self.reached: Counter[str] = Counter()

    def strikes(self, kind: str) -> bool:
        """Draw whether this fault hits a message or call; `kind` is a field of NetworkFaults."""
        permille: int = getattr(self.network_faults, kind)
        if permille <= 0 or self.rng.random() * 1_000 >= permille:
            return False
        self.reached[f"network_faults {kind}"] += 1
        return True

    def latency_ms(self) -> int:
        """The latency of one message without faults, in ms."""
        return self.rng.randint(*_LATENCY_MS)

    def late_ms(self) -> int:
        """The additional delay of one message, in ms; mostly 0."""
        network_faults = self.network_faults
        return self.rng.randint(1, network_faults.late_most_ms) if self.strikes("late") else 0

    def pause_ms(self) -> int:
        """The pause of a process before its next call, in ms; mostly 0."""
        network_faults = self.network_faults
        return self.rng.randint(1, network_faults.pause_most_ms) if self.strikes("pause") else 0
