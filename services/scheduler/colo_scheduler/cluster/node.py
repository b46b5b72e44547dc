"""One node beside its row in the arrays, and the cost of its holds in a pool."""

from collections.abc import Iterable
from typing import Final

from colo_common.events.fact import Fact
from colo_common.events.node import AllocatableChanged, NodeTopologyReported, ZoneAllocatable, ZoneMid
from colo_common.model.freshness import Freshness
from colo_common.model.placement import Attempt, ZoneShare
from colo_common.model.topology import NodeTopology
from colo_scheduler.cluster.holding import Holding, amplified
from colo_scheduler.cluster.pool import Pool, PoolName

__all__ = ["Node", "costs_of", "gives_more", "gives_more_mid", "move_shares"]

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
        self.freshness_of: Fact | None = None
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
