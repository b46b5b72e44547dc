"""What the evictor stores and how it reads that: rows of nodes, and the evictions of the last minute that instances share."""

from msgspec import Struct

from colo_evictor.watched import EvictorRow

__all__ = [
    "BUDGET_ID",
    "BUDGET_KIND",
    "ROW_KIND",
    "BudgetLoaded",
    "BudgetRecorded",
    "BudgetRow",
    "ConfirmBudget",
    "EvictorRowReloaded",
    "EvictorRowsLoaded",
    "LoadEvictorRows",
    "ReloadBudget",
    "ReloadEvictorRow",
    "StoredNode",
]

ROW_KIND = "evictor-node"
BUDGET_KIND = "evictor-budget"
BUDGET_ID = "cluster"


class BudgetRow(Struct, frozen=True, kw_only=True):
    """The evictions of the cluster in the minute before the newest one (Unix ms). Written with each eviction by compare-and-set,
    where several instances share the work: so two of them never use the same part of the budget.
    """

    evicted_ms: tuple[int, ...] = ()


class StoredNode(Struct, frozen=True, kw_only=True):
    """One stored row with its version."""

    node: str
    version: int
    row: EvictorRow


class EvictorRowsLoaded(Struct, frozen=True, kw_only=True):
    """Event: the rows of all nodes. `partitions`: those for which they were asked; () at the start of an instance that is alone."""

    rows: tuple[StoredNode, ...]
    partitions: tuple[int, ...] = ()


class EvictorRowReloaded(Struct, frozen=True, kw_only=True):
    """Event: what the store holds of a node now; without `stored` it holds nothing."""

    node: str
    stored: StoredNode | None = None


class BudgetLoaded(Struct, frozen=True, kw_only=True):
    """Event: the shared budget as it is stored now."""

    version: int
    row: BudgetRow


class BudgetRecorded(Struct, frozen=True, kw_only=True):
    """Event: the eviction that was decided last is recorded, and counted in the shared budget."""


class ReloadEvictorRow(Struct, frozen=True, kw_only=True):
    """Effect: read the row of a node again, because another writer changed it. Answered by EvictorRowReloaded."""

    node: str


class LoadEvictorRows(Struct, frozen=True, kw_only=True):
    """Effect: read the rows of all nodes, because these partitions came here. Answered by EvictorRowsLoaded."""

    partitions: tuple[int, ...]


class ReloadBudget(Struct, frozen=True, kw_only=True):
    """Effect: read the shared budget. Answered by BudgetLoaded."""


class ConfirmBudget(Struct, frozen=True, kw_only=True):
    """Effect of an eviction, performed once it is recorded. Answered by BudgetRecorded."""
