"""Keeps what each recovered executor runs, until its node's row is read and the missing attempts are ordered again."""

from collections.abc import Iterable

from msgspec import Struct

from colo_common.events.effects import Publish
from colo_common.model.placement import Attempt
from colo_scheduler.commit.held import HeldAttempt, Over, order

__all__ = ["Recoveries", "Recovery"]


class Recovery(Struct, frozen=True, kw_only=True):
    """An executor came back: the attempts that run there, and a name of the recovery."""

    running: frozenset[Attempt]
    name: str


class Recoveries:
    """The newest recovery of each node whose row is not read yet. `over`: the attempts that must not run any more."""

    def __init__(self, over: Over) -> None:
        self._over = over
        self._waiting: dict[str, Recovery] = {}

    def __contains__(self, node: object) -> bool:
        return node in self._waiting

    def note(self, node: str, recovery: Recovery) -> None:
        """Keep the recovery while the node's row is being read."""
        self._waiting[node] = recovery

    def order_missing(self, node: str, held: Iterable[HeldAttempt], now_ms: int) -> list[Publish]:
        """The row was read: orders for the attempts in `held` that the executor does not run.

        An attempt that is over may be held a moment longer, because releases run beside the reads of rows; it is not ordered.
        """
        recovery = self._waiting.pop(node, None)
        if recovery is None:
            return []
        committed = [each for each in held if not each.is_assumed and each.attempt not in self._over]
        missing = [each for each in committed if each.attempt not in recovery.running]
        return order(missing, now_ms, again=f"recovered:{recovery.name}")
