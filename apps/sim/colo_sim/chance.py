"""Chance in a simulated world: the one source of random numbers, and how often messages and calls suffer at present."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

from colo_sim.faults import CALM, NetworkFaults

__all__ = ["Chance"]

_WAY_MS: Final = (1, 4)


class Chance:
    """Everything random in a world comes from `rng`, so that a seed gives one history. `reached` counts what struck."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.network_faults: NetworkFaults = CALM
        self.reached: Counter[str] = Counter()

    def strikes(self, kind: str) -> bool:
        """Whether this now happens to a message or a call; `kind` is a field of NetworkFaults."""
        permille: int = getattr(self.network_faults, kind)
        if permille <= 0 or self.rng.random() * 1_000 >= permille:
            return False
        self.reached[f"network_faults {kind}"] += 1
        return True

    def way_ms(self) -> int:
        """How long one message takes when nothing is wrong."""
        return self.rng.randint(*_WAY_MS)

    def late_ms(self) -> int:
        """By how much more a message is late; mostly 0."""
        network_faults = self.network_faults
        return self.rng.randint(1, network_faults.late_most_ms) if self.strikes("late") else 0

    def pause_ms(self) -> int:
        """How long a process does nothing before its next call; mostly 0."""
        network_faults = self.network_faults
        return self.rng.randint(1, network_faults.pause_most_ms) if self.strikes("pause") else 0
