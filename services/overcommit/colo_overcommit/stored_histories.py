"""The histories of estimators between the nodes and the rows of the store: what to go on from, and what is to be stored now."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from colo_common.model.estimator_rules import LAST
from colo_overcommit.dropped import Dropped
from colo_overcommit.estimators.steps import STEP_MS
from colo_overcommit.expected_use import ExpectedUse
from colo_overcommit.histories import KEPT_MS, HistoriesLoaded, NodeHistory, decode_history, encode_history
from colo_overcommit.known_node import KnownNode
from colo_overcommit.policy import OvercommitPolicy

__all__ = ["StoredHistories"]

_ROWS_MOST = 50_000


class StoredHistories:
    """Rows of nodes that are not known yet, and the nodes whose row is to be deleted."""

    def __init__(self, dropped: Dropped) -> None:
        self._dropped = dropped
        self._rows: dict[str, NodeHistory] = {}
        self._expired: dict[str, None] = {}

    def take(
        self, event: HistoriesLoaded, nodes: Mapping[str, KnownNode], is_asked: Callable[[str], bool], now_ms: int
    ) -> None:
        """Go on from the rows of the nodes that are asked for, at once or when one gets known. A bad row is counted."""
        for name in sorted(event.rows)[:_ROWS_MOST]:
            if not is_asked(name):
                continue
            history = decode_history(event.rows[name])
            if history is None:
                self._dropped.unreadable_histories += 1
            elif now_ms - history.at_ms > KEPT_MS:
                self._expired[name] = None
            elif name in nodes:
                self._go_on_from(name, nodes[name], history)
            else:
                self._rows[name] = history

    def begin(self, name: str, known: KnownNode) -> None:
        """Let a node that gets known go on from its row, or from nothing."""
        self._go_on_from(name, known, self._rows.pop(name, None))

    def follow(self, name: str, known: KnownNode, policy: OvercommitPolicy) -> None:
        """Give the node the estimator of its policy.

        One that only looks farther, or has another number, keeps what was learned. One of another kind goes on from the node's row,
        while that is there and of its kind, and has no past else.
        """
        choice, now = policy.choice, known.expected
        if choice.name == LAST:
            known.expected = None
        elif now is None or choice.kind != now.choice.kind:
            known.expected = ExpectedUse(choice, known.restored.zones if known.restored is not None else (), name)
        elif choice.name != now.choice.name:
            known.expected = ExpectedUse(choice, now.histories(), name)
        elif choice != now.choice:
            now.look(choice)

    def settled(self, nodes: Iterable[KnownNode]) -> None:
        """What is kept was heard: of rows whose estimator the nodes' policies do not ask for nothing is needed any more."""
        for known in nodes:
            if known.topology is not None and known.restored is not None and known.restored.zones:
                known.restored = replace(known.restored, zones=()) if known.restored.prod is not None else None

    def forget(self, name: str) -> None:
        """The node is not known any more: its row is to be deleted."""
        self._expired[name] = None

    def due(
        self, nodes: Mapping[str, KnownNode], owns: Callable[[str], bool], now_ms: int, every_ms: int, most: int
    ) -> dict[str, bytes | None]:
        """Node -> the row to store now, None to delete it. A row that is too large is counted, and tried again at the next step."""
        found: dict[str, bytes | None] = dict.fromkeys([name for name in self._expired if owns(name)][:most])
        for name, history in _due(nodes, owns, now_ms, every_ms, most):
            value = encode_history(history)
            if value is None:
                self._dropped.large_histories += 1
                self.stored(name, nodes.get(name), now_ms)
            else:
                found[name] = value
        return found

    def stored(self, name: str, known: KnownNode | None, now_ms: int) -> None:
        """The row was stored, or deleted, as `due` gave it last."""
        self._expired.pop(name, None)
        if known is not None:
            known.stored_ms, known.stored_step = now_ms, known.learned_ms // STEP_MS

    def _go_on_from(self, name: str, known: KnownNode, history: NodeHistory | None) -> None:
        known.expected, known.prod_peaks, known.restored = None, None, history
        if known.policy is not None:
            self.follow(name, known, known.policy)
        known.stored_step = 0 if history is None else history.at_ms // STEP_MS


def _due(
    nodes: Mapping[str, KnownNode], owns: Callable[[str], bool], now_ms: int, every_ms: int, most: int
) -> Iterator[tuple[str, NodeHistory]]:
    """The histories, at most `most`, of own nodes that have learned a step since they were stored `every_ms` ago or earlier."""
    found = 0
    for name, known in nodes.items():
        # Another step, not a later one: the clock of a machine that was ahead may be set back.
        has_learned = known.learned_ms > 0 and known.learned_ms // STEP_MS != known.stored_step
        if not has_learned or 0 <= now_ms - known.stored_ms < every_ms:
            continue
        if not owns(name):
            continue
        if found == most:
            return
        history = known.history()
        if history is not None:
            found += 1
            yield name, history
