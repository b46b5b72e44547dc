"""The budget of the cluster where several instances evict: one row, written by compare-and-set with each eviction."""

import msgspec

from colo_common.events.effects import Effect, Write
from colo_evictor.budget import WINDOW_MS, Budget
from colo_evictor.stored import BUDGET_ID, BUDGET_KIND, BudgetLoaded, BudgetRow, ConfirmBudget, ReloadBudget

__all__ = ["SharedBudget"]


class SharedBudget:
    """Keeps a Budget equal to the stored one. Between an eviction and the word that it is recorded, there is no other one.

    `is_open`: whether the row is known and nothing waits to be recorded.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._version: int | None = None
        self._pending = ""

    @property
    def is_known(self) -> bool:
        """Whether the row is known."""
        return self._version is not None

    @property
    def is_open(self) -> bool:
        """Whether an eviction may be decided now."""
        return self.is_known and not self._pending

    def spent(self, node: str, now_ms: int) -> tuple[Write, Effect]:
        """The write that belongs to the record of an eviction on the node, and the effect that follows it."""
        version = self._version or 0
        times = tuple([at_ms for at_ms in self._budget.times if now_ms - at_ms < WINDOW_MS])
        self._pending, self._version = node, version + 1
        value = msgspec.json.encode(BudgetRow(evicted_ms=times))
        return Write(kind=BUDGET_KIND, id=BUDGET_ID, value=value, expect=version), ConfirmBudget()

    def recorded(self) -> None:
        """The eviction is recorded."""
        self._pending = ""

    def refused(self) -> tuple[str, list[Effect]]:
        """The node whose eviction was not recorded ("" for none), and the effect that reads the budget again."""
        node, self._version = self._pending, None
        return node, [ReloadBudget()]

    def loaded(self, event: BudgetLoaded, now_ms: int) -> None:
        """Go on from what is stored, as if its newest eviction were of now.

        Whoever wrote it may have another wall clock: the times tell how far the evictions are apart, and not how long ago they
        were. So an eviction counts for at most a minute longer, and never for less than its minute.
        """
        self._version, self._pending = event.version, ""
        since_ms = now_ms - max(event.row.evicted_ms, default=now_ms)
        self._budget.replace(at_ms + since_ms for at_ms in event.row.evicted_ms)
