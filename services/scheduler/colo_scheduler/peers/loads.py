"""Crane's placement by averages, maxima and arrivals; the one place that imports it."""

from colo_scheduler.load.dynamic_rules import DynamicRules
from colo_scheduler.peers.crane.dynamic_loads import DynamicLoads

__all__ = ["dynamic_loads"]


def dynamic_loads(rules: DynamicRules, *, is_scored: bool) -> DynamicLoads:
    """crane's placement by averages and maxima of load; it costs nothing while no limit is set and `is_scored` is False."""
    return DynamicLoads(rules, is_scored=is_scored)
