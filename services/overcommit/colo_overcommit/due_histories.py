"""Which histories of estimators are to be stored now."""

from collections.abc import Callable, Iterator, Mapping

from colo_overcommit.estimators.steps import STEP_MS
from colo_overcommit.histories import NodeHistory
from colo_overcommit.known_node import KnownNode

__all__ = ["due_histories"]


def due_histories(
    nodes: Mapping[str, KnownNode], owns: Callable[[str], bool], now_ms: int, every_ms: int, most: int
) -> Iterator[tuple[str, NodeHistory]]:
    """The histories, at most `most`, of own nodes that have learned a step since they were stored `every_ms` ago or earlier."""
    found = 0
    for name, known in nodes.items():
        if known.learned_ms // STEP_MS <= known.stored_step or 0 <= now_ms - known.stored_ms < every_ms:
            continue
        if not owns(name):
            continue
        if found == most:
            return
        history = known.history()
        if history is not None:
            found += 1
            yield name, history
