"""A node, and the facts of all nodes as arrays: a node is an object beside its row, and the row is what filters read.

The arrays have every fact but free capacity (`pool.py`), and a log of the rows in which they changed: a cache of verdicts on these
facts keeps its position in the log and tests again only the rows behind it. Taints keep work off a node unless it tolerates them:
NoSchedule and NoExecute refuse it, PreferNoSchedule is only counted.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from colo_common.events.fact import Fact, FencedFact
from colo_common.events.node import AllocatableChanged, NodeTopologyReported, ZoneAllocatable, ZoneMid
from colo_common.model.colocation import admits_batch, admits_online
from colo_common.model.constraints import Taint, Toleration
from colo_common.model.freshness import Freshness
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Attempt, ZoneShare
from colo_common.model.topology import NodeTopology
from colo_scheduler.cluster.holding import Holding, amplified
from colo_scheduler.cluster.labels import LabelColumns
from colo_scheduler.cluster.pool import FloatArray, Pool, PoolName
from colo_scheduler.devices.layout import NO_DEVICES, DeviceLayout, layout_of
from colo_scheduler.numa.zones import NO_SOCKET, IntArray

__all__ = [
    "BoolArray",
    "Derived",
    "Node",
    "NodeFacts",
    "TAINTS_MAX",
    "TaintColumn",
    "costs_of",
    "gives_more",
    "gives_more_mid",
    "move_shares",
    "refusing_taint",
    "soft_taints",
    "tolerates",
]

_HEAD: Final = frozenset(Fact.__struct_fields__)


class Node:
    """One node beside its row in the arrays. `holds` is each attempt's hold here, committed or assumed.

    `prod`, `mid`: the attempts that hold from these pools; all others hold from the batch pool. `holdings`: their holds beside
    amounts, if any. `reserved`: the amounts that no work gets, by zone; `room`: the amounts that prod work leaves there to
    unmanaged online work, in real CPU. `reported`: the node's own report. `freshness_of`: the newest fact about its freshness.
    `problems`: where the ledger does not agree with it.
    """

    __slots__ = (
        "allocatable",
        "capacity_generation",
        "changes",
        "freshness",
        "freshness_at_ms",
        "freshness_of",
        "holdings",
        "holds",
        "in_flight",
        "is_reloading",
        "is_simulated",
        "mid",
        "name",
        "problems",
        "prod",
        "reported",
        "reserved",
        "revision",
        "room",
        "row",
        "sockets",
        "topology",
        "zone_ids",
    )

    def __init__(self, name: str, row: int, capacity_generation: int = 0) -> None:
        self.name = name
        self.row = row
        self.topology: NodeTopology | None = None
        self.is_simulated = False
        self.allocatable: AllocatableChanged | None = None
        self.freshness = Freshness.UNKNOWN
        self.freshness_at_ms = 0
        self.freshness_of: FencedFact | None = None
        self.zone_ids: tuple[int, ...] = ()
        self.sockets: tuple[int, ...] = ()
        self.holds: dict[Attempt, tuple[ZoneShare, ...]] = {}
        self.holdings: dict[Attempt, Holding] = {}
        self.prod: set[Attempt] = set()
        self.mid: set[Attempt] = set()
        self.reported: NodeTopologyReported | None = None
        self.capacity_generation = capacity_generation
        self.problems: tuple[str, ...] = ()
        self.reserved: tuple[ZoneShare, ...] = ()
        self.room: tuple[ZoneShare, ...] = ()
        self.revision = 0
        self.changes = 0
        self.in_flight = 0
        self.is_reloading = False

    def pool_of(self, attempt: Attempt) -> PoolName:
        """The pool that an attempt of `holds` holds from."""
        if attempt in self.prod:
            return PoolName.PROD
        return PoolName.MID if attempt in self.mid else PoolName.BATCH

    def count_of(self, name: PoolName) -> int:
        """How many attempts hold from a pool."""
        if name is PoolName.PROD:
            return len(self.prod)
        return len(self.mid) if name is PoolName.MID else len(self.holds) - len(self.prod) - len(self.mid)

    @property
    def sample_seq(self) -> int:
        """The sample that the allocatable was computed from, 0 before the first."""
        return self.allocatable.sample_seq if self.allocatable else 0

    def is_published_again(self, fact: NodeTopologyReported) -> bool:
        """Whether the report repeats the node's last report."""
        reported = self.reported
        return reported is not None and all(
            getattr(reported, name) == getattr(fact, name)
            for name in NodeTopologyReported.__struct_fields__
            if name not in _HEAD
        )

    def slot(self, zone: int) -> int:
        """The column of a zone. A hold on a zone that the node lacks (its topology changed) counts against the first column."""
        ids = self.zone_ids
        # Most machines number their zones from 0.
        if 0 <= zone < len(ids) and ids[zone] == zone:
            return zone
        return ids.index(zone) if zone in ids else 0


def gives_more(before: Iterable[ZoneAllocatable], now: Iterable[ZoneAllocatable]) -> bool:
    """Whether batch work of some zone is promised more CPU or memory than before; a zone that did not exist had none."""
    known = {zone.zone: (zone.batch_cpu_mcpu, zone.batch_memory_bytes) for zone in before}
    return any(_is_more((zone.batch_cpu_mcpu, zone.batch_memory_bytes), known.get(zone.zone)) for zone in now)


def gives_more_mid(before: Iterable[ZoneMid], now: Iterable[ZoneMid]) -> bool:
    """Whether the mid tier of some zone has more CPU or memory than before; a zone that did not exist had none."""
    known = {zone.zone: (zone.cpu_mcpu, zone.memory_bytes) for zone in before}
    return any(_is_more((zone.cpu_mcpu, zone.memory_bytes), known.get(zone.zone)) for zone in now)


def _is_more(now: tuple[int, int], before: tuple[int, int] | None) -> bool:
    """Whether CPU or memory is more than before."""
    cpu_mcpu, memory_bytes = before or (0, 0)
    return now[0] > cpu_mcpu or now[1] > memory_bytes


def costs_of(
    node: Node, name: PoolName, shares: tuple[ZoneShare, ...], holding: Holding | None
) -> tuple[ZoneShare, ...]:
    """The cost of shares in a pool: CPUs by number cost as much as the machine claims them to be."""
    if holding is None or not holding.cpus or name is not PoolName.PROD or node.reported is None:
        return shares
    return tuple(
        ZoneShare(
            zone=share.zone, cpu_mcpu=amplified(share.cpu_mcpu, node.reported.rules), memory_bytes=share.memory_bytes
        )
        for share in shares
    )


def move_shares(node: Node, pool: Pool, shares: tuple[ZoneShare, ...], sign: int) -> None:
    """Hold these shares of a pool (sign 1) or give them back (-1)."""
    row = node.row
    for share in shares:
        pool.take(row, node.slot(share.zone), sign * share.cpu_mcpu, sign * share.memory_bytes)


T = TypeVar("T")
BoolArray = npt.NDArray[np.bool_]


class Derived:
    """Caches of the layers above the cluster: at most one object of each type, made without arguments when it is first asked for.

    The cluster stores these objects and does not know their types: a cache belongs to the layer that fills it.
    """

    def __init__(self) -> None:
        self._kept: dict[type, object] = {}

    def of(self, kind: type[T]) -> T:
        """The object of this type; every call returns the same object."""
        found = self._kept.get(kind)
        if not isinstance(found, kind):
            found = self._kept[kind] = kind()
        return found


_NEVER: Final = 1 << 62
_LAYOUTS_LEAST: Final = 64
_ONLINE: Final = "online"
"""The capability of a node that runs online work and isolates it."""


class NodeFacts:
    """Arrays of shape (size,), `socket` (size, columns). A fact older than `max_age_ms` counts as not fresh (0: never).

    `taken`: a node has the row. `split_score`: the most that a node scores for few zones, as a 32-bit float, when it holds a
    request in more than one zone. `online`: the node runs online work; `colocated`: its operator admits batch work; `mid`: it
    has a mid tier; `enforced`: its
    executor writes what is decided. `restricted`:
    the bits of `restricted.py` for what operators forbid there.
    """

    def __init__(self, size: int, columns: int, max_age_ms: int) -> None:
        self._max_age_ms = max_age_ms
        self._now_ms = 0
        self._lapse_ms = _NEVER
        self._log: list[int] = []
        self._log_begin = 0
        self.derived = Derived()
        """Caches that the layers above derive from these facts alone."""
        self.labels = LabelColumns(size)
        self.taints = TaintColumn(size)
        self.layouts: list[DeviceLayout] = [NO_DEVICES]
        """The device layouts of the nodes; `layout` has the index of each row's layout."""
        self._layout_at: dict[DeviceLayout, int] = {NO_DEVICES: 0}
        self.allocate(size, columns)

    def allocate(self, size: int, columns: int) -> None:
        """Make every array again, empty; all rows are to be written again."""
        self.taken: BoolArray = np.zeros(size, dtype=np.bool_)
        self.known: BoolArray = np.zeros(size, dtype=np.bool_)
        self.fresh: BoolArray = np.zeros(size, dtype=np.bool_)
        self.settled: BoolArray = np.zeros(size, dtype=np.bool_)
        self.simulated: BoolArray = np.zeros(size, dtype=np.bool_)
        self.socket: IntArray = np.full((size, columns), NO_SOCKET, dtype=np.int64, order="F")
        self.split_score: FloatArray = np.zeros(size, dtype=np.float32)
        self.rank: IntArray = np.zeros(size, dtype=np.int64)
        self.online: BoolArray = np.zeros(size, dtype=np.bool_)
        self.colocated: BoolArray = np.ones(size, dtype=np.bool_)
        self.enforced: BoolArray = np.ones(size, dtype=np.bool_)
        self.mid: BoolArray = np.zeros(size, dtype=np.bool_)
        self.restricted: IntArray = np.zeros(size, dtype=np.int64)
        self.layout: IntArray = np.zeros(size, dtype=np.int64)
        self._may_grow: BoolArray = np.zeros(size, dtype=np.bool_)
        self._at_ms: IntArray = np.zeros(size, dtype=np.int64)
        self.start_log()

    # ---- changes

    def clear_row(self, row: int) -> None:
        """The row is vacant: no node has it, and no facts of it are kept."""
        self.taken[row] = False
        self.known[row] = self.fresh[row] = self.settled[row] = self.simulated[row] = self.online[row] = self.mid[
            row
        ] = False
        self.colocated[row] = self.enforced[row] = True
        self.restricted[row] = 0
        self.socket[row] = NO_SOCKET
        self.split_score[row] = self.layout[row] = self._at_ms[row] = 0
        self._may_grow[row] = False
        self.labels.forget(row)
        self.taints.write(row, ())
        self.note(row)

    def check(self, reported: NodeTopologyReported) -> None:
        """Raise InvalidInput for what `describe` would refuse."""
        self.labels.check(reported.labels)
        if len(reported.taints) > TAINTS_MAX:
            raise InvalidInput("taints", f"must be at most {TAINTS_MAX}", len(reported.taints))

    def describe(self, row: int, reported: NodeTopologyReported) -> None:
        """Take a node's report beside its topology."""
        self.labels.write(row, reported.labels)
        self.taints.write(row, reported.taints)
        layout = layout_of(reported.topology, reported.rules)
        if layout not in self._layout_at:
            if len(self.layouts) > _LAYOUTS_LEAST + 2 * self.layout.size:
                self._forget_layouts()
            self._layout_at[layout] = len(self.layouts)
            self.layouts.append(layout)
        self.layout[row] = self._layout_at[layout]
        is_able = any(each.name == _ONLINE and each.present for each in reported.capabilities)
        self.online[row] = is_able and admits_online(reported.labels)
        self.colocated[row] = admits_batch(reported.labels, reported.rules)
        self.enforced[row] = not reported.rules.only_observes
        self.note(row)

    def restrict(self, row: int, bits: int) -> None:
        """Take what operators forbid on the node."""
        if self.restricted[row] != bits:
            self.restricted[row] = bits
            self.note(row)

    def _forget_layouts(self) -> None:
        """Keep only the layouts that some row has, and the empty layout at its index."""
        used, places = np.unique(np.append(0, self.layout), return_inverse=True)
        self.layouts = [self.layouts[place] for place in used.tolist()]
        self._layout_at = {layout: place for place, layout in enumerate(self.layouts)}
        self.layout[:] = places[1:]

    def write(
        self, row: int, *, known: bool, settled: bool, simulated: bool, may_grow: bool, at_ms: int, mid: bool
    ) -> None:
        """Take a node's facts. `may_grow`: they were fresh at `at_ms`; `mid`: the node has a mid tier."""
        self._may_grow[row], self._at_ms[row] = may_grow, at_ms
        fresh = may_grow and not self._is_old(at_ms)
        if fresh:
            self._lapse_ms = min(self._lapse_ms, at_ms + self._max_age_ms)
        before = (
            self.taken[row],
            self.known[row],
            self.fresh[row],
            self.settled[row],
            self.simulated[row],
            self.mid[row],
        )
        if before != (True, known, fresh, settled, simulated, mid):
            self.taken[row], self.mid[row] = True, mid
            self.known[row], self.fresh[row], self.settled[row], self.simulated[row] = known, fresh, settled, simulated
            self.note(row)

    def _is_old(self, at_ms: int) -> bool:
        return 0 < self._max_age_ms < self._now_ms - at_ms

    def look(self, now_ms: int) -> None:
        """Mark the facts that are too old by now as not fresh."""
        if self._max_age_ms <= 0 or self._now_ms <= now_ms <= self._lapse_ms:
            self._now_ms = now_ms
            return
        self._now_ms = now_ms
        fresh = self._may_grow & (now_ms - self._at_ms <= self._max_age_ms)
        for row in np.flatnonzero(fresh != self.fresh).tolist():
            self.note(row)
        self.fresh[:] = fresh
        self._lapse_ms = int(self._at_ms[fresh].min()) + self._max_age_ms if fresh.any() else _NEVER

    # ---- the log

    @property
    def now_ms(self) -> int:
        """The time of the last `look`."""
        return self._now_ms

    @property
    def log_end(self) -> int:
        """The position behind the newest entry."""
        return self._log_begin + len(self._log)

    def note(self, row: int) -> None:
        """Log a change in this row of a fact that a filter reads."""
        self._log.append(row)
        if len(self._log) > 2 * self.known.size:
            self.start_log()

    def start_log(self) -> None:
        """Clear the log: a reader that has not read it to its end tests every row again."""
        self._log_begin = self.log_end + 1
        self._log.clear()

    def changed_since(self, position: int) -> IntArray | None:
        """The rows that changed behind a position, ascending; None when the log does not reach back so far."""
        if position < self._log_begin:
            return None
        return np.array(sorted(set(self._log[position - self._log_begin :])), dtype=np.int64)


TAINTS_MAX: Final = 64
"""The most taints of one node."""
_SOFT: Final = "PreferNoSchedule"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint: its key or any, its value or any, its effect or any."""
    return (
        toleration.key in ("", taint.key)
        and toleration.value in (None, taint.value)
        and toleration.effect in ("", taint.effect)
    )


def refusing_taint(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """The first taint that refuses the work, None when it may come."""
    for taint in taints:
        if taint.effect == _SOFT:
            continue
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def soft_taints(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> int:
    """How many PreferNoSchedule taints are not tolerated."""
    return sum(taint.effect == _SOFT and not any(tolerates(entry, taint) for entry in tolerations) for taint in taints)


class TaintColumn:
    """The taints of all nodes as one column. Nodes share few sets of taints, and each set is asked once."""

    def __init__(self, size: int = 64) -> None:
        self._sets: dict[tuple[Taint, ...], int] = {(): 0}
        self._codes: npt.NDArray[np.int32] = np.zeros(max(size, 1), dtype=np.int32)
        self.has_soft = False
        """Whether some row has ever had a PreferNoSchedule taint."""

    def write(self, row: int, taints: Sequence[Taint]) -> None:
        """Replace the taints of a row. Raises InvalidInput for more than TAINTS_MAX."""
        if len(taints) > TAINTS_MAX:
            raise InvalidInput("taints", f"must be at most {TAINTS_MAX}", len(taints))
        if row >= len(self._codes):
            codes = np.zeros(max(row + 1, 2 * len(self._codes)), dtype=np.int32)
            codes[: len(self._codes)] = self._codes
            self._codes = codes
        self.has_soft = self.has_soft or any(taint.effect == _SOFT for taint in taints)
        self._codes[row] = self._sets.setdefault(tuple(taints), len(self._sets))

    @property
    def is_empty(self) -> bool:
        """Whether no row has ever had a taint."""
        return len(self._sets) == 1

    def tolerated(self, tolerations: Sequence[Toleration], count: int) -> BoolArray:
        """`refusing_taint` is None, for the first `count` rows: bool, shape (count,)."""
        answers = np.array([refusing_taint(entry, tolerations) is None for entry in self._sets], dtype=np.bool_)
        passes: BoolArray = answers[self._of(count)]
        return passes

    def soft(self, tolerations: Sequence[Toleration], count: int) -> IntArray:
        """`soft_taints` of the first `count` rows: int64, shape (count,)."""
        answers = np.array([soft_taints(entry, tolerations) for entry in self._sets], dtype=np.int64)
        counts: IntArray = answers[self._of(count)]
        return counts

    def _of(self, count: int) -> npt.NDArray[np.int32]:
        codes = self._codes[:count]
        return codes if len(codes) == count else np.concatenate([codes, np.zeros(count - len(codes), dtype=np.int32)])
