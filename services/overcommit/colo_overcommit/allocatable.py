"""The allocatable formula: the CPU and memory that batch work may get in each zone, from one sample.

Source: the batch formula of koordinator-sh/koordinator (pkg/slo-controller/noderesource/plugins/batchresource), for each zone; the
value of a node is the sum of its zones, so that zones and node cannot disagree. Everything that is taken off rounds up.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from colo_common.events.node import NodeUsageSampled, WorkloadUsage, ZoneAllocatable
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand
from colo_common.model.topology import NodeTopology
from colo_overcommit.exclusive import ExclusiveCpus
from colo_overcommit.online_charge import CalculatePolicy, OnlineCharge
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.reserved import Reserved, reserved_amount

__all__ = [
    "Limit",
    "Resource",
    "ZoneInputs",
    "allocatable_of_zone",
    "batch_use",
    "most_of",
    "with_reclaim",
    "zone_inputs",
]

_RECLAIMED = (PriorityBand.BATCH, PriorityBand.FREE)
_NO_LSE = ExclusiveCpus()
_NO_CHARGE = OnlineCharge()


class Limit(StrEnum):
    """The source of a zone's reclaim percentages, in the words of the explanation."""

    POLICY = "policy"
    OFF = "policy: colocation is off there"
    RULES = "the node's own rules: no batch work there (is_colocated is off)"
    OBSERVES = "the node only observes (rules_enforcement is observe): nothing is written there"


class Resource(Struct, frozen=True, kw_only=True, gc=False):
    """The terms of the formula for one resource of one zone, all in one unit: mcpu or bytes.

    `lse_requested` and `lse_used` are those of LSE work that is placed in the zone. No other work may run on its CPUs, so its
    request counts and not its usage (as in Koordinator's formula); for memory both are 0, and usage counts.

    `online_expected` is what an estimator expects of online work before capacity can be taken back; 0 without one. `online_added`
    is what placed online work is charged beyond its use, `online_reserve` what is kept for online work when it uses less, and
    `third_party` what another system was promised here. `most` bounds what is promised; None: the formula alone does.
    `normalization_pct` above 100 gives what is promised in CPUs of a slower reference machine, 100 in this machine's own.
    `external` is the part of a system's outside bound that falls to the zone; None: nobody bounds it.
    While the sample is late no more than `promised` counts, which is what the last sample promised that was not, and `age_pct` of
    that (late_promise.py).
    """

    capacity: int
    reclaim_pct: int
    reserved: int
    system_used: int
    online_used: int
    held: int
    lse_requested: int = 0
    lse_used: int = 0
    online_expected: int = 0
    online_added: int = 0
    online_reserve: int = 0
    third_party: int = 0
    most: int | None = None
    normalization_pct: int = 100
    external: int | None = None
    promised: int | None = None
    age_pct: int = 100

    @property
    def lse_idle(self) -> int:
        """The requested and unused CPU of LSE work, which no other work may use. At least 0."""
        return max(self.lse_requested - self.lse_used, 0)

    @property
    def margin(self) -> int:
        """The part that is never promised: ceil(capacity * (100 - reclaim_pct) / 100), so the allocatable rounds down."""
        return -(-self.capacity * (100 - self.reclaim_pct) // 100)

    @property
    def left(self) -> int:
        """capacity - max(system_used, reserved) - max(online_used + online_added, online_expected, online_reserve) - lse_idle
        - third_party: what there is without the margin; may be negative.
        """
        kept, reserved = self.system_used, self.reserved
        used = self.online_used + self.online_added
        if used < self.online_expected:
            used = self.online_expected
        if used < self.online_reserve:
            used = self.online_reserve
        left = self.capacity - (kept if kept > reserved else reserved) - used - self.third_party
        return left - self.lse_idle if self.lse_requested else left

    @property
    def raw(self) -> int:
        """`left` - `margin`, and not above `most`, `normalized`, and not above `external`; may be negative.

        Of a late sample no more than `promised`, and floor(that * age_pct / 100) where it is above 0.
        """
        raw = self.left - self.margin
        if self.most is not None and raw > self.most:
            raw = self.most
        if self.normalization_pct != 100:
            raw = self.normalized(raw)
        if self.external is not None and raw > self.external:
            raw = self.external
        if self.promised is not None and raw > self.promised:
            raw = self.promised
        return raw * self.age_pct // 100 if self.age_pct != 100 and raw > 0 else raw

    def normalized(self, amount: int) -> int:
        """min(floor(amount * normalization_pct / 100), capacity - reserved): no more than the machine has is ever promised.

        Koordinator rounds up and has no bound.
        """
        if self.normalization_pct == 100:
            return amount
        return min(amount * self.normalization_pct // 100, max(self.capacity - self.reserved, amount))

    @property
    def allocatable(self) -> int:
        """`raw`, but never below what batch work holds and never below 0."""
        return max(self.raw, self.held, 0)

    @property
    def headroom(self) -> int:
        """`raw` - `held`: negative when batch work holds more than `raw`."""
        return self.raw - self.held


class ZoneInputs(Struct, frozen=True, kw_only=True, gc=False):
    """The terms of one zone. `limit` is the source of its reclaim percentages: a Limit, or what an operator forbids.

    `moved_by` says what moved the policy's percentages, and `expected_by` is the estimator of the expected use; "" without.
    `external_by` names the systems outside that bound it, `late_by` says how a sample that is late counts.
    """

    zone: int
    cpu: Resource
    memory: Resource
    limit: str = Limit.POLICY
    moved_by: str = ""
    expected_by: str = ""
    external_by: str = ""
    late_by: str = ""


def most_of(capacity: int, most_pct: int) -> int | None:
    """The most that is promised of a zone, floor(capacity * most_pct / 100); None for 100 percent, which bounds nothing."""
    return None if most_pct == 100 else capacity * most_pct // 100


def allocatable_of_zone(inputs: ZoneInputs) -> ZoneAllocatable:
    """The allocatable and the headroom of the zone, in mcpu and bytes."""
    cpu, memory = inputs.cpu, inputs.memory
    cpu_raw, memory_raw = cpu.raw, memory.raw
    return ZoneAllocatable(
        zone=inputs.zone,
        batch_cpu_mcpu=max(cpu_raw, cpu.held, 0),
        batch_memory_bytes=max(memory_raw, memory.held, 0),
        headroom_cpu_mcpu=cpu_raw - cpu.held,
        headroom_memory_bytes=memory_raw - memory.held,
    )


def zone_inputs(
    topology: NodeTopology,
    sample: NodeUsageSampled,
    held: Mapping[int, ZoneShare],
    policy: OvercommitPolicy,
    *,
    reserved: Mapping[int, Reserved] | None = None,
    exclusive: Mapping[int, ExclusiveCpus] | None = None,
    charges: Mapping[int, OnlineCharge] | None = None,
    is_colocated: bool = True,
    forbidden: str = "",
    normalization_pct: int = 100,
) -> tuple[ZoneInputs, ...]:
    """The terms of every zone, in the order of the topology. All CPU is real CPU, without the node's amplification; only what is
    promised is normalized, with `normalization_pct`, and so is what is held of it.

    `reserved` is what the node's operator keeps back, `exclusive` the request and usage of LSE work, `charges` what placed online
    work counts beyond its use; a zone that is not in them has none. A node that is not `is_colocated` reclaims 0 percent, so its
    allocatable is what is held; so does one where an operator forbids more batch work: `forbidden` says who and why, and one where
    the policy is not enabled. Of what is held no more is believed than the zone has.
    The usage of batch work is divided evenly over the zones it may use, rounded down; system usage and the policy's reservation are
    divided over all zones, rounded up; both make the allocatable smaller. The policy says whether the larger of its own and the
    operator's reservation counts, or both. Under the calculate policy `request` the system counts with the reservation alone, too.
    Raises InvalidInput when the sample's zones are not the topology's.
    """
    zones = topology.zones
    numbers = [zone.zone for zone in zones]
    if [used.zone for used in sample.zones] != numbers:
        rule = "the sample must have exactly the zones of the topology"
        raise InvalidInput("zones", rule, [used.zone for used in sample.zones])
    batch_mcpu, batch_bytes = batch_use(numbers, sample.workloads)
    part = _part_of_zone(sample, policy, len(zones))
    limit = Limit.OFF if not policy.is_enabled else Limit.RULES if not is_colocated else forbidden or Limit.POLICY
    is_open = limit == Limit.POLICY
    cpu_pct, memory_pct = (policy.cpu_reclaim_pct, policy.memory_reclaim_pct) if is_open else (0, 0)
    inputs = []
    form = policy.reservation
    system_mcpu = part.system_mcpu if policy.cpu_policy != CalculatePolicy.REQUEST else 0
    system_bytes = part.system_bytes if policy.memory_policy != CalculatePolicy.REQUEST else 0
    for zone, used in zip(zones, sample.zones, strict=True):
        capacity_mcpu, capacity_bytes = zone.cpu_capacity_mcpu, zone.memory_bytes
        number = zone.zone
        share = held.get(number)
        own = reserved.get(number) if reserved else None
        lse = exclusive.get(number, _NO_LSE) if exclusive else _NO_LSE
        charge = charges.get(number, _NO_CHARGE) if charges else _NO_CHARGE
        inputs.append(
            ZoneInputs(
                zone=number,
                cpu=Resource(
                    capacity=capacity_mcpu,
                    reclaim_pct=cpu_pct,
                    reserved=reserved_amount(form, part.reserved_mcpu, own.cpu_mcpu) if own else part.reserved_mcpu,
                    system_used=system_mcpu,
                    online_used=max(used.cpu_used_mcpu - batch_mcpu[number] - part.system_mcpu, 0),
                    held=min(share.cpu_mcpu, capacity_mcpu) if share else 0,
                    lse_requested=lse.requested_mcpu,
                    lse_used=lse.used_mcpu,
                    online_added=charge.cpu_mcpu,
                    online_reserve=part.online_mcpu,
                    third_party=part.third_party_mcpu,
                    most=most_of(capacity_mcpu, policy.batch_cpu_most_pct),
                    normalization_pct=normalization_pct,
                ),
                memory=Resource(
                    capacity=capacity_bytes,
                    reclaim_pct=memory_pct,
                    reserved=reserved_amount(form, part.reserved_bytes, own.memory_bytes)
                    if own
                    else part.reserved_bytes,
                    system_used=system_bytes,
                    online_used=max(used.memory_used_bytes - batch_bytes[number] - part.system_bytes, 0),
                    held=min(share.memory_bytes, capacity_bytes) if share else 0,
                    online_added=charge.memory_bytes,
                    online_reserve=part.online_bytes,
                    third_party=part.third_party_bytes,
                    most=most_of(capacity_bytes, policy.batch_memory_most_pct),
                ),
                limit=limit,
            )
        )
    return tuple(inputs)


def with_reclaim(inputs: Iterable[ZoneInputs], cpu_pct: int, memory_pct: int, moved_by: str) -> tuple[ZoneInputs, ...]:
    """The terms with other reclaim percentages, where the policy decides about them."""
    return tuple(
        replace(
            zone,
            cpu=replace(zone.cpu, reclaim_pct=cpu_pct),
            memory=replace(zone.memory, reclaim_pct=memory_pct),
            moved_by=moved_by,
        )
        if zone.limit == Limit.POLICY
        else zone
        for zone in inputs
    )


class _Part(NamedTuple):
    """The share of one zone in the quantities that are only known for the whole node."""

    system_mcpu: int
    system_bytes: int
    reserved_mcpu: int
    reserved_bytes: int
    online_mcpu: int
    online_bytes: int
    third_party_mcpu: int
    third_party_bytes: int


def _part_of_zone(sample: NodeUsageSampled, policy: OvercommitPolicy, count: int) -> _Part:
    """Divide the node's system usage and what the policy keeps back evenly over `count` zones, rounded up."""
    return _Part(
        -(-max(sample.system_cpu_used_mcpu, 0) // count),
        -(-max(sample.system_memory_used_bytes, 0) // count),
        -(-policy.node_reserved_cpu_mcpu // count),
        -(-policy.node_reserved_memory_bytes // count),
        -(-policy.online_reserve_cpu_mcpu // count),
        -(-policy.online_reserve_memory_bytes // count),
        -(-policy.third_party_cpu_mcpu // count),
        -(-policy.third_party_memory_bytes // count),
    )


def batch_use(known: list[int], workloads: Iterable[WorkloadUsage]) -> tuple[dict[int, int], dict[int, int]]:
    """The mcpu and the bytes that batch and free work uses, by zone; a workload without a known zone counts in all zones."""
    mcpu, memory = dict.fromkeys(known, 0), dict.fromkeys(known, 0)
    for workload in workloads:
        if workload.band not in _RECLAIMED:
            continue
        named = workload.zones
        if len(named) == 1 and named[0] in mcpu:
            zone = named[0]
            mcpu[zone] += workload.cpu_used_mcpu
            memory[zone] += workload.memory_used_bytes
            continue
        zones = [zone for zone in named if zone in mcpu] or known
        cpu_part = workload.cpu_used_mcpu // len(zones)
        memory_part = workload.memory_used_bytes // len(zones)
        for zone in zones:
            mcpu[zone] += cpu_part
            memory[zone] += memory_part
    return mcpu, memory
