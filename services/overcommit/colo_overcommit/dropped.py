"""What overcommit counts and does nothing else with."""

from msgspec import Struct

__all__ = ["Dropped"]


class Dropped(Struct):
    """Counts of dropped inputs by reason, exported as metrics."""

    no_topology: int = 0
    old_sample: int = 0
    malformed_sample: int = 0
    too_many_nodes: int = 0
    unlisted_holds: int = 0
    unreadable_histories: int = 0
    large_histories: int = 0
