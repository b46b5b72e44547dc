"""A node's resources beside amounts of CPU and memory: its CPUs by number, huge pages and devices, and the attempts that hold them.

Placements are the truth; everything here is rebuilt from them and from the node's report. A ledger hold is taken as it is: where it
does not agree with the node, `disagreements` reports it, and no CPU or device is assigned twice.
"""

from collections.abc import Collection
from functools import lru_cache
from typing import Final

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.placement import Attempt, ZoneShare, attempt_key
from colo_common.model.qos import QosClass
from colo_common.model.topology import NodeTopology
from colo_common.model.withheld import divide_by_zones, index_of, lasting_rules, withheld_cpus
from colo_scheduler.cluster.holding import Holding
from colo_scheduler.devices.inventory import DeviceInventory
from colo_scheduler.devices.layout import NO_PARTITIONS, GpuPartitions, layout_of

__all__ = [
    "CPU_MCPU",
    "NodeInventory",
    "batch_capacity",
    "reserved_shares",
]

CPU_MCPU: Final = 1_000
_NO_CPUS: Final = CpuSet()
# The machines of a fleet are of few kinds.
_KINDS_REMEMBERED: Final = 256


@lru_cache(maxsize=_KINDS_REMEMBERED)
def _partitions_of(topology: NodeTopology, rules: NodeRules) -> GpuPartitions:
    return layout_of(topology, rules).partitions if topology.devices else NO_PARTITIONS


def reserved_shares(topology: NodeTopology, rules: NodeRules) -> tuple[ZoneShare, ...]:
    """The amounts a node's rules reserve from online work, zone by zone: 1000 for each CPU, each zone's part of the memory."""
    if rules == UNRULED:
        return ()
    index = index_of(topology.cpus)
    withheld = withheld_cpus(rules, index, amounts_only=True)
    memory_bytes = divide_by_zones(rules.reserved_memory_bytes, len(topology.zones))
    if not withheld and not memory_bytes:
        return ()
    return tuple(
        ZoneShare(
            zone=zone.zone,
            cpu_mcpu=len(index.cpus_of_zone(zone.zone) & withheld) * CPU_MCPU,
            memory_bytes=memory_bytes,
        )
        for zone in topology.zones
    )


def batch_capacity(topology: NodeTopology, rules: NodeRules) -> tuple[tuple[int, int], ...]:
    """CPU and memory of each zone that batch work could be promised on the empty node: all that is not reserved for good.

    An upper bound: the promise may reserve more.
    """
    if rules == UNRULED:
        return tuple((zone.cpu_capacity_mcpu, zone.memory_bytes) for zone in topology.zones)
    index = index_of(topology.cpus)
    open_cpus = CpuSet(index.all_mask) - withheld_cpus(lasting_rules(rules), index)
    kept_bytes = divide_by_zones(rules.reserved_memory_bytes, len(topology.zones))
    return tuple(
        (
            min(zone.cpu_capacity_mcpu, len(index.cpus_of_zone(zone.zone) & open_cpus) * CPU_MCPU),
            max(0, zone.memory_bytes - kept_bytes),
        )
        for zone in topology.zones
    )


class NodeInventory:
    """The inventory of one node. CPU sets are masks, as in CpuTopology."""

    __slots__ = (
        "_open",
        "_pages",
        "cpus",
        "devices",
        "fixed",
        "holdings",
        "lse",
        "partitions",
        "preferred",
        "returning",
        "rules",
        "shared_cpus",
        "topology",
        "withheld",
        "withheld_for_good",
    )

    def __init__(self, topology: NodeTopology, rules: NodeRules) -> None:
        """Raises InvalidInput for impossible CPUs: a core in two zones, an id twice."""
        self.topology = topology
        self.rules = rules
        self.cpus = index_of(topology.cpus)
        self.withheld = withheld_cpus(rules, self.cpus).mask
        self.withheld_for_good = self.withheld
        self.returning = 0
        """CPUs by which more may be requested when the pods end to which the kubelet pinned them."""
        if rules.kubelet_pinned_cpus:
            lasting = lasting_rules(rules)
            self.withheld_for_good = withheld_cpus(lasting, self.cpus).mask
            kept = withheld_cpus(lasting, self.cpus, amounts_only=True).mask
            self.returning = withheld_cpus(rules, self.cpus, amounts_only=True).mask & ~kept
        # The CPUs open to a single request may be fewer.
        self._open = self.cpus.all_mask & ~self.withheld
        self.devices = DeviceInventory(topology.devices)
        self.partitions: GpuPartitions = _partitions_of(topology, rules)
        self.holdings: dict[Attempt, Holding] = {}
        self.fixed = 0
        """CPUs that attempts hold by number."""
        self.lse = 0
        self.preferred = 0
        """CPUs that the next request takes before others: those of its own reservation."""
        self._pages: dict[tuple[int, int], int] = {}
        self.shared_cpus: dict[int, int] = {}
        """How many CPUs of each zone have to stay in no attempt's own set, for online work that colo did not place."""

    def copy(self) -> "NodeInventory":
        """An independent copy of the inventory."""
        other = NodeInventory(self.topology, self.rules)
        other.shared_cpus = self.shared_cpus
        for attempt, holding in self.holdings.items():
            other.hold(attempt, holding)
        return other

    # ---- holds

    def choose(self, attempt: Attempt, holding: Holding) -> None:
        """`hold` for a decision made here. Raises InvariantBroken when the resources are not free."""
        if holding.cpus & ~self.free_cpus:
            taken = CpuSet(holding.cpus & ~self.free_cpus).format()
            raise InvariantBroken("CPUs were chosen that are not free", replica=attempt[0], cpus=taken)
        try:
            self.devices.hold(attempt, holding.devices)
        except InvalidInput as error:
            raise InvariantBroken(
                "devices were chosen that are not free", replica=attempt[0], why=str(error)
            ) from error
        self.hold(attempt, holding)

    def hold(self, attempt: Attempt, holding: Holding) -> None:
        """Take a hold, whatever the node has; the same attempt again replaces its earlier hold."""
        if attempt in self.holdings:
            self.drop(attempt)
        self.holdings[attempt] = holding
        self.fixed |= holding.cpus
        if holding.qos is QosClass.LSE:
            self.lse |= holding.cpus
        self.devices.load(attempt, holding.devices)
        self._move_pages(holding, 1)

    def drop(self, attempt: Attempt) -> None:
        """Give back an attempt's hold; does nothing when it holds nothing."""
        holding = self.holdings.pop(attempt, None)
        if holding is None:
            return
        self.devices.release(attempt)
        self._move_pages(holding, -1)
        self.fixed = self.lse = 0
        for other in self.holdings.values():
            self.fixed |= other.cpus
            if other.qos is QosClass.LSE:
                self.lse |= other.cpus

    def _move_pages(self, holding: Holding, sign: int) -> None:
        for pages in holding.huge_pages:
            key = (pages.zone, pages.page_bytes)
            held = self._pages.get(key, 0) + sign * pages.total_bytes
            if held:
                self._pages[key] = held
            else:
                self._pages.pop(key, None)

    # ---- reads

    @property
    def free_cpus(self) -> int:
        """CPUs that may be assigned by number."""
        return self.cpus.all_mask & ~self.withheld & ~self.fixed

    def own_most(self, qos: QosClass) -> int:
        """The most CPUs that LSE or LSR work may take for its own, free or not, by the rules of the node's executor.

        LSE leaves one to the rest of the node. Amounts keep one for LS work where they leave out every CPU that is withheld; where
        CPUs are withheld beside the amounts, one is kept here. The shared pool keeps `shared_cpus` in any case.
        """
        room = (self._open & ~self.lse).bit_count() - (qos is QosClass.LSE)
        if self.rules.reserved_cpus_only or self.shared_cpus:
            pool = (self._open & ~self._own).bit_count()
            if self.rules.reserved_cpus_only:
                room = min(room, pool - 1)
            room = min(room, pool - sum(self.shared_cpus.values()))
        return max(0, room)

    def own_most_of(self, zone: int) -> int:
        """The most CPUs of a zone that a further LSE or LSR attempt may take for its own: `shared_cpus` stay."""
        mask = self.cpus.cpus_of_zone(zone).mask
        return max(0, (mask & self._open & ~self._own).bit_count() - self.shared_cpus.get(zone, 0))

    @property
    def _own(self) -> int:
        own = 0
        for holding in self.holdings.values():
            own |= holding.cpus if holding.is_own else 0
        return own

    def zone_pages(self, zone: int, page_bytes: int) -> tuple[int, int]:
        """Huge pages of one size in a zone, in bytes: free (at least 0), and all."""
        known = self.topology.zone(zone)
        total = sum(pages.total_bytes for pages in known.huge_pages if pages.page_bytes == page_bytes) if known else 0
        return max(0, total - self._pages.get((zone, page_bytes), 0)), total

    def batch_most_mcpu(self, zone: int) -> int | None:
        """The most CPU that batch work may be promised in a zone, without LSE's and the node's own CPUs; None: no such limit."""
        closed = (self.lse | self.withheld) & self.cpus.all_mask
        if not closed:
            return None
        return (self.cpus.cpus_of_zone(zone).mask & ~closed).bit_count() * CPU_MCPU

    def disagreements(self, assumed: Collection[Attempt] = ()) -> tuple[str, ...]:
        """Where the holds, without those in `assumed`, do not agree with the node or with each other, in sentences."""
        found: list[str] = []
        devices = DeviceInventory(self.topology.devices)
        own, fixed = 0, 0
        for attempt, holding in sorted(self.holdings.items()):
            if attempt in assumed:
                continue
            name = attempt_key(*attempt)
            absent = holding.cpus & ~self.cpus.all_mask
            twice = holding.cpus & (fixed if holding.is_own else own)
            if holding.problem:
                found.append(f"{name}: {holding.problem}")
            if absent:
                found.append(f"{name} holds CPUs that the node lacks: {CpuSet(absent).format()}")
            if twice:
                found.append(f"{name} holds CPUs that another one has alone: {CpuSet(twice).format()}")
            found.extend(f"{name}: {delivered}" for delivered in devices.load(attempt, holding.devices))
            fixed |= holding.cpus
            own |= holding.cpus if holding.is_own else 0
        return tuple(found)

    def check(self, node: str) -> None:
        """Raise InvariantBroken unless the kept sums equal those of the holdings."""
        self.devices.check()
        again = NodeInventory(self.topology, self.rules)
        for attempt, holding in self.holdings.items():
            again.hold(attempt, holding)
        for name in ("fixed", "lse", "_pages"):
            if getattr(again, name) != getattr(self, name):
                raise InvariantBroken("an inventory differs from its holdings", node=node, what=name)
