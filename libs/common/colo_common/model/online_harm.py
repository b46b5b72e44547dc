"""What online harm is where it is measured: one bound, and the sentence that says it."""

from typing import Final

__all__ = ["HARM_SENTENCE", "STALL_BOUND_PCT", "is_harmed"]

STALL_BOUND_PCT: Final = 5
"""Rubik's default trigger on pressure (PSI): above it the waits of online work are felt."""

HARM_SENTENCE: Final = (
    "online harm: share of machine time in which online work got less CPU than it wanted, "
    f"measured as its threads waiting for a CPU more than {STALL_BOUND_PCT} % of a sample's time"
)


def is_harmed(stall_us: int, interval_ms: int) -> bool:
    """Whether online work that waited so long in a sample of that length was harmed."""
    return stall_us * 100 > interval_ms * 1_000 * STALL_BOUND_PCT
