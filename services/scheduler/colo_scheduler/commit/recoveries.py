"""Executors that came back: what each of them runs, until its node's row is read and what is missing there is ordered again."""

from collections.abc import Iterable

from msgspec import Struct

from colo_common.events.effects import Publish
from colo_scheduler.commit.held import HeldAttempt, Over
from colo_scheduler.commit.publish import order
from colo_scheduler.ledger.port import Attempt

__all__ = ["Recoveries", "Recovery"]


class Recovery(Struct, frozen=True, kw_only=True):
    """An executor came back: what runs there, and a name of that event."""

    running: frozenset[Attempt]
    name: str


class Recoveries:
    """The newest recovery of each node whose row is not read yet. `over`: attempts that are not to run any more."""

    def __init__(self, over: Over) -> None:
        self._over = over
        self._waiting: dict[str, Recovery] = {}

    def __contains__(self, node: object) -> bool:
        return node in self._waiting

    def note(self, node: str, recovery: Recovery) -> None:
        """The node's row is being read."""
        self._waiting[node] = recovery

    def order_missing(self, node: str, held: Iterable[HeldAttempt], now_ms: int) -> list[Publish]:
        """The row was read, and this is held there: order what the executor does not run.

        What is over may be held a moment longer: it is released beside the reading of rows.
        """
        recovery = self._waiting.pop(node, None)
        if recovery is None:
            return []
        committed = [each for each in held if not each.is_assumed and each.attempt not in self._over]
        missing = [each for each in committed if each.attempt not in recovery.running]
        return order(missing, now_ms, again=f"recovered:{recovery.name}")
