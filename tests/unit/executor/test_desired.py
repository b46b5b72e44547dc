"""The knobs of the tier and of a replica."""

import pytest
from msgspec.structs import replace

from colo_common.model.constraints import CpuPolicy
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.workload import ResourceLimits, RunSpec
from colo_executor.desired import (
    BATCH_IDENTITY,
    MID_FACTOR,
    ONLINE_IDENTITY,
    DesiredPolicy,
    MachineFacts,
    check_desired,
    replica_knobs,
    tier_knobs,
)
from colo_executor.kept_cpus import KeptCpus
from colo_executor.knob_table import UNLIMITED, WEIGHT_MOST, Knob
from colo_executor.online import hold_of, online_knobs, online_top_knobs, pools_of
from tests.parity.peers.group_identity import ClassIdentity, identity_of_workload, identity_rule
from tests.support.builders import GIB, a_placement

ALL = frozenset(Knob)
MACHINE = MachineFacts(
    cpus=CpuSet.parse("0-7"),
    mems=CpuSet.parse("0-1"),
    zones={0: CpuSet.parse("0-3"), 1: CpuSet.parse("4-7")},
    has=ALL,
)


def shown(writes) -> list[tuple[str, str, object]]:
    return [(write.path, write.knob.value, write.value) for write in writes]


def test_the_tier_low_priority_to_everything_and_is_filled_before_anything_joins():
    assert shown(tier_knobs(DesiredPolicy(), MACHINE, 2_000)) == [
        ("", "cpuset-cpus", "0-7"),
        ("", "cpuset-mems", "0-1"),
        ("batch", "cpuset-cpus", "0-7"),
        ("batch", "cpuset-mems", "0-1"),
        ("", "cpu-weight", 2),
        ("", "cpu-idle", 1),
        ("", "memory-min-bytes", 0),
        ("", "memory-low-bytes", 0),
        ("batch", "cpu-period-us", 100_000),
        ("batch", "cpu-quota-us", 200_000),
    ]


def test_files_that_the_kernel_lacks_are_left_out():
    poor = MachineFacts(cpus=MACHINE.cpus, mems=MACHINE.mems, zones=MACHINE.zones, has=frozenset({Knob.CPU_WEIGHT}))
    assert shown(tier_knobs(DesiredPolicy(), poor, None)) == [("", "cpu-weight", 2)]


@pytest.mark.parametrize(
    ("lacking", "idle", "batch", "online"),
    [
        pytest.param(set(), True, None, None, id="cpu.idle is enough"),
        pytest.param({Knob.CPU_IDLE}, True, -1, 2, id="identities where there is no cpu.idle"),
        pytest.param({Knob.CPU_IDLE}, False, None, None, id="batch work need not give way"),
        pytest.param({Knob.CPU_IDLE, Knob.CPU_BVT}, True, None, None, id="neither"),
        pytest.param({Knob.CPU_BVT}, True, None, None, id="no identities"),
    ],
)
def test_groups_have_identities_where_they_alone_let_batch_work_give_way(lacking, idle, batch, online):
    machine, policy = replace(MACHINE, has=ALL - lacking), DesiredPolicy(idle=idle)
    placement = replace(a_placement(), qos=QosClass.LS, band=PriorityBand.PROD)
    hold = hold_of(placement, "web")
    pools = pools_of(machine.cpus, (hold,), KeptCpus())
    for group, expected, writes in (
        ("", batch, tier_knobs(policy, machine, None)),
        ("batch", batch, tier_knobs(policy, machine, None)),
        ("batch/x", batch, replica_knobs(policy, machine, a_placement(), "batch/x", None)),
        ("", online, online_top_knobs(policy, machine, (hold,))),
        ("ls.x", online, online_knobs(policy, machine, placement, hold, pools, "ls.x")),
    ):
        found = [write.value for write in writes if write.knob is Knob.CPU_BVT and write.path == group]
        assert found == ([] if expected is None else [expected]), group


@pytest.mark.parametrize(("qos", "value"), [(QosClass.LSE, 2), (QosClass.LSR, 2), (QosClass.LS, 2), (QosClass.BE, -1)])
def test_the_identities_are_those_that_koordinator_writes_by_default(qos, value):
    on = {identity: ClassIdentity(is_enabled=True, identity=identity) for identity in (ONLINE_IDENTITY, BATCH_IDENTITY)}
    rule = identity_rule(lsr=on[2], ls=on[2], be=on[-1])
    assert identity_of_workload(rule, qos, "Burstable") == value
    assert value == (BATCH_IDENTITY if qos is QosClass.BE else ONLINE_IDENTITY)


@pytest.mark.parametrize(
    ("zones", "cpus", "mems"),
    [((1,), "4-7", "1"), ((0, 1), "0-7", "0-1"), ((5,), "0-7", "0-1"), ((0, 5), "0-7", "0-1"), ((), "0-7", "0-1")],
    ids=["one zone", "two zones", "a zone the node lacks", "one it has and one it lacks", "none"],
)
def test_a_replica_runs_in_its_zones_where_they_are_known(zones, cpus, mems):
    shares = tuple(ZoneShare(zone=zone, cpu_mcpu=500, memory_bytes=GIB) for zone in zones)
    placement = replace(a_placement(), zones=shares)
    writes = {write.knob: write.value for write in replica_knobs(DesiredPolicy(), MACHINE, placement, "batch/x", 1_000)}
    assert (writes[Knob.CPUSET_CPUS], writes[Knob.CPUSET_MEMS]) == (cpus, mems)


def test_a_replica_has_weight_and_memory_of_its_request_and_no_quota():
    writes = {
        write.knob: write.value for write in replica_knobs(DesiredPolicy(), MACHINE, a_placement(), "batch/x", 500)
    }
    assert writes[Knob.CPU_WEIGHT] == 1_024
    assert writes[Knob.MEMORY_LIMIT] == GIB
    assert Knob.CPU_QUOTA not in writes


@pytest.mark.parametrize(
    ("swap", "alone", "together"), [(0, 0, GIB), (GIB, GIB, 2 * GIB), (UNLIMITED, UNLIMITED, UNLIMITED)]
)
def test_a_replica_swaps_as_much_as_the_policy_lets_it(swap, alone, together):
    policy = DesiredPolicy(swap_most_bytes=swap)
    writes = list(replica_knobs(policy, MACHINE, a_placement(), "batch/x", None))
    values = {write.knob: write.value for write in writes}
    assert (values[Knob.SWAP_LIMIT], values[Knob.MEMORY_SWAP_LIMIT]) == (alone, together)
    order = [write.knob for write in writes]
    # A new group has no limit, and v1 takes none of memory and swap that is below that of memory.
    assert order.index(Knob.MEMORY_LIMIT) < order.index(Knob.MEMORY_SWAP_LIMIT)


@pytest.mark.parametrize("swap", [-2, 1 << 63])
def test_a_limit_of_swap_that_is_none_is_refused_at_the_start(swap):
    with pytest.raises(InvalidInput, match="process_desired_swap_most_bytes: must be from 0 to"):
        check_desired(DesiredPolicy(swap_most_bytes=swap), "process_desired")


@pytest.mark.parametrize("policy", [DesiredPolicy(memory_low_pct=101), DesiredPolicy(memory_min_pct=-1)])
def test_a_protection_that_is_no_percentage_is_refused_at_the_start(policy):
    with pytest.raises(InvalidInput, match=r"process_desired_memory_(low|min)_pct: must be from 0 to 100"):
        check_desired(policy, "process_desired")


def test_work_of_the_mid_tier_outweighs_batch_work_of_its_size_and_no_online_work():
    def weight(band, mcpu):
        placement = replace(a_placement(mcpu=mcpu), band=band)
        writes = replica_knobs(DesiredPolicy(), MACHINE, placement, "batch/x", 500)
        return {write.knob: write.value for write in writes}[Knob.CPU_WEIGHT]

    assert weight(PriorityBand.MID, 1_000) == MID_FACTOR * weight(PriorityBand.BATCH, 1_000) == 16_384
    # A replica on its way out is not starved by it, and the kernel takes the value.
    assert weight(PriorityBand.MID, 64_000) <= WEIGHT_MOST
    # The tier gives way to online work as before, whatever runs in it.
    top = [write for write in tier_knobs(DesiredPolicy(), MACHINE, None) if write.path == ""]
    assert {write.knob: write.value for write in top}[Knob.CPU_WEIGHT] == 2


@pytest.mark.parametrize(("ceiling", "quota"), [(None, 100_000), (4_000, 100_000), (500, 50_000)])
def test_a_capped_replica_stays_below_request_and_ceiling(ceiling, quota):
    policy = DesiredPolicy(cap_at_request=True)
    writes = {write.knob: write.value for write in replica_knobs(policy, MACHINE, a_placement(), "batch/x", ceiling)}
    assert writes[Knob.CPU_QUOTA] == quota
    assert quota != UNLIMITED


@pytest.mark.parametrize(("policy", "has_quota"), [(CpuPolicy.EXCLUSIVE, False), (CpuPolicy.IMMOVABLE, True)])
def test_batch_work_with_cpus_that_it_has_alone_has_no_quota_on_them(policy, has_quota):
    run = RunSpec(limits=ResourceLimits(cpu_mcpu=2_000))
    placement = replace(a_placement(mcpu=2_000), cpus="0-1", cpu_policy=policy, run=run)
    for desired in (DesiredPolicy(), DesiredPolicy(cap_at_request=True)):
        knobs = [write.knob for write in replica_knobs(desired, MACHINE, placement, "batch/x", None)]
        assert (Knob.CPU_QUOTA in knobs) is has_quota
