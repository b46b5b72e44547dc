"""What /sys says a machine is: regular machines of every shape, the odd ones, and files that contradict each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_collector.topology import read_topology, topology_paths
from colo_common.model.invalid import InvalidInput
from colo_common.model.topology import uniform_topology
from tests.support.machine_tree import GIB, MachineSpec, MachineTree, id_list
from tests.unit.collector.machine import gather_topology, topology_of

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
TWO_BY_TWO = MachineSpec(sockets=2, zones_per_socket=2, cores_per_zone=4, threads=2)


@st.composite
def machine_specs(draw: st.DrawFn) -> MachineSpec:
    """Machines of up to 2 x 3 zones, with any CPUs but the first of each zone's first core offline."""
    spec = MachineSpec(
        sockets=draw(st.integers(1, 2)),
        zones_per_socket=draw(st.integers(1, 3)),
        cores_per_zone=draw(st.integers(1, 4)),
        threads=draw(st.sampled_from((1, 2, 4))),
        numbering=draw(st.sampled_from(("adjacent", "split"))),
        has_numa=draw(st.booleans()),
        has_l3=draw(st.booleans()),
    )
    ids = [one.cpu for one in spec.cpus()]
    offline = draw(st.sets(st.sampled_from(ids), max_size=len(ids) - 1))
    return MachineSpec(**{**spec.__dict__, "offline": tuple(sorted(offline))})


def test_a_regular_machine_is_read_as_the_model_describes_it() -> None:
    expected = uniform_topology(sockets=2, zones_per_socket=2, cpus_per_zone=8, memory_bytes_per_zone=4 * GIB)
    found = topology_of(TWO_BY_TWO)
    assert found.topology.cpus == expected.cpus
    assert [(one.zone, one.socket, one.cpus, one.memory_bytes) for one in found.topology.zones] == [
        (one.zone, one.socket, one.cpus, one.memory_bytes) for one in expected.zones
    ]
    assert found.topology.zones[1].distances == (12, 10, 21, 21)
    assert (found.topology.offline, found.assumed) == ("", ())
    assert [(one.cache, one.cpus, one.size_bytes) for one in found.topology.caches if one.level == 3][:2] == [
        (0, "0-7", 32 * 2**20),
        (1, "8-15", 32 * 2**20),
    ]


def test_threads_with_far_numbers_share_a_core() -> None:
    found = topology_of(MachineSpec(sockets=2, cores_per_zone=2, threads=2, numbering="split")).topology
    assert [(one.cpu, one.core, one.socket) for one in found.cpus] == [
        (0, 0, 0), (1, 1, 0), (2, 2, 1), (3, 3, 1), (4, 0, 0), (5, 1, 0), (6, 2, 1), (7, 3, 1),
    ]  # fmt: skip
    assert [one.cpus for one in found.zones] == ["0-1,4-5", "2-3,6-7"]


@given(machine_specs())
def test_every_machine_agrees_with_the_truth_it_was_made_from(spec: MachineSpec) -> None:
    found = topology_of(spec)
    truth = {one.cpu: one for one in spec.online()}
    assert [one.cpu for one in found.topology.cpus] == sorted(truth)
    assert found.topology.offline == id_list(spec.offline)
    for one in found.topology.cpus:
        assert one.socket == truth[one.cpu].socket
        assert one.zone == (truth[one.cpu].zone if spec.has_numa else 0)
    # Cores are the same groups as in truth, numbered without gaps by their lowest CPU.
    pairs = {(one.core, truth[one.cpu].core) for one in found.topology.cpus}
    assert len(pairs) == len({core for core, _ in pairs}) == len({core for _, core in pairs})
    assert sorted({one.core for one in found.topology.cpus}) == list(range(len(pairs)))
    # Zones stay, even when all their CPUs are offline, and so does all memory.
    assert len(found.topology.zones) == (spec.zones if spec.has_numa else 1)
    assert found.topology.memory_capacity_bytes == spec.zones * spec.memory_bytes_per_zone


@given(machine_specs())
def test_reading_asks_for_the_lists_first_and_for_everything_else_once(spec: MachineSpec) -> None:
    source = MachineTree(spec).texts()
    texts = gather_topology(source)
    assert topology_paths(texts) == ()
    assert len(topology_paths({})) == 8
    # Nothing is asked for CPUs that are offline: they have no such files.
    assert not [path for path in texts for cpu in spec.offline if path.startswith(f"{CPU}/cpu{cpu}/")]


def test_a_machine_without_zones_is_one_zone_with_all_memory() -> None:
    found = topology_of(MachineSpec(sockets=2, has_numa=False))
    assert [(one.zone, one.cpus, one.memory_bytes) for one in found.topology.zones] == [(0, "0-3", 8 * GIB)]
    assert found.assumed == (f"{NODE} is missing; the machine is one zone",)


def test_the_only_zone_has_the_memory_of_the_machine() -> None:
    # Seen on a virtual machine whose kernel sets up most pages when they are first needed.
    texts = MachineTree(MachineSpec()).texts()
    texts[f"{NODE}/node0/meminfo"] = "Node 0 MemTotal: 1024 kB\nNode 0 MemFree: 1 kB\n"
    assert read_topology(gather_topology(texts)).topology.memory_capacity_bytes == 4 * GIB


def test_without_l3_files_the_cpus_of_a_zone_share_one_domain() -> None:
    found = topology_of(MachineSpec(sockets=2, cores_per_zone=2, has_l3=False))
    assert [one.l3 for one in found.topology.cpus] == [0, 0, 1, 1]
    assert {one.level for one in found.topology.caches} == {2}
    assert "no L3 cache is published" in found.assumed[0]


def test_l3_ids_that_two_domains_share_are_replaced_by_ranks() -> None:
    texts = MachineTree(MachineSpec(sockets=2, cores_per_zone=2)).texts()
    for cpu in range(4):
        texts[f"{CPU}/cpu{cpu}/cache/index3/id"] = "7\n"
    assert [one.l3 for one in read_topology(gather_topology(texts)).topology.cpus] == [0, 0, 1, 1]


def test_l3_ids_of_the_kernel_are_kept_where_they_are_unique() -> None:
    texts = MachineTree(MachineSpec(sockets=2, cores_per_zone=2)).texts()
    for cpu in range(4):
        texts[f"{CPU}/cpu{cpu}/cache/index3/id"] = "8\n" if cpu < 2 else "3\n"
    found = read_topology(gather_topology(texts))
    assert [(one.cache, one.cpus) for one in found.topology.caches if one.level == 3] == [(3, "2-3"), (8, "0-1")]
    assert [one.l3 for one in found.topology.cpus] == [8, 8, 3, 3]


def test_ids_with_gaps_are_kept() -> None:
    texts = {
        f"{CPU}/online": "2,9\n",
        f"{CPU}/present": "0-9\n",
        f"{NODE}/online": "0,8\n",
        f"{NODE}/node0/cpulist": "9\n",
        f"{NODE}/node0/distance": "10 40\n",
        f"{NODE}/node0/meminfo": "Node 0 MemTotal: 1024 kB\nNode 0 MemFree: 1 kB\n",
        f"{NODE}/node8/cpulist": "2\n",
        f"{NODE}/node8/distance": "40 10\n",
        f"{NODE}/node8/meminfo": "Node 8 MemTotal: 2048 kB\nNode 8 MemFree: 1 kB\n",
        f"{CPU}/cpu2/topology/physical_package_id": "16\n",
        f"{CPU}/cpu9/topology/physical_package_id": "-1\n",
    }
    found = read_topology(gather_topology(texts))
    assert [(one.zone, one.socket, one.cpus, one.distances) for one in found.topology.zones] == [
        (0, 0, "9", (10, 40)),
        (8, 16, "2", (40, 10)),
    ]
    assert [(one.cpu, one.core, one.zone) for one in found.topology.cpus] == [(2, 0, 8), (9, 1, 0)]
    assert found.topology.offline == "0-1,3-8"


def test_a_zone_with_memory_only_counts_to_the_nearest_socket() -> None:
    texts = MachineTree(MachineSpec(sockets=2)).texts()
    texts[f"{NODE}/online"] = "0-2\n"
    for zone, line in enumerate(("10 21 30", "21 10 14", "30 14 10")):
        texts[f"{NODE}/node{zone}/distance"] = f"{line}\n"
    texts[f"{NODE}/node2/cpulist"] = "\n"
    texts[f"{NODE}/node2/meminfo"] = "Node 2 MemTotal: 1024 kB\nNode 2 MemFree: 1 kB\n"
    far = read_topology(gather_topology(texts)).topology.zones[2]
    assert (far.cpus, far.memory_bytes, far.socket) == ("", 1024 * 1024, 1)


def test_without_the_online_list_the_cpus_are_those_of_proc_stat() -> None:
    texts = MachineTree(MachineSpec(cores_per_zone=3, offline=(1,))).texts()
    del texts[f"{CPU}/online"]
    found = read_topology(gather_topology(texts))
    assert [one.cpu for one in found.topology.cpus] == [0, 2]
    assert "is missing" in found.assumed[0]


@pytest.mark.parametrize(
    ("path", "text", "field", "rule"),
    [
        (f"{CPU}/online", "\n", f"{CPU}/online line 1", "at least one CPU must be online"),
        (f"{CPU}/online", "0-x\n", f"{CPU}/online line 1", "must be a list"),
        (
            f"{CPU}/cpu0/topology/physical_package_id",
            "one\n",
            f"{CPU}/cpu0/topology/physical_package_id line 1",
            "unsi",
        ),
        (
            f"{CPU}/cpu1/topology/thread_siblings_list",
            "0\n",
            f"{CPU}/cpu1/topology/thread_siblings_list line 1",
            "itse",
        ),
        (f"{CPU}/cpu1/topology/thread_siblings_list", "0-1\n", f"{CPU}/cpu1/topology/thread_siblings_list", "as that"),
        (f"{CPU}/cpu0/cache/index3/level", "L3\n", f"{CPU}/cpu0/cache/index3/level line 1", "unsigned"),
        (f"{CPU}/cpu0/cache/index3/size", "much\n", f"{CPU}/cpu0/cache/index3/size line 1", "must be a size"),
        (
            f"{CPU}/cpu0/cache/index3/shared_cpu_list",
            "1\n",
            f"{CPU}/cpu0/cache/index3/shared_cpu_list line 1",
            "itself",
        ),
        (f"{NODE}/node0/distance", "10\n", f"{NODE}/node0/distance line 1", "each of the 2 zones"),
        (f"{NODE}/node1/cpulist", "1-3\n", f"{NODE}/node1/cpulist line 1", "in one zone only"),
        (f"{NODE}/node1/cpulist", "3\n", f"{NODE}/node*/cpulist", "must be in a zone"),
        (f"{NODE}/node1/meminfo", "MemTotal: 1 kB\n", f"{NODE}/node1/meminfo line 1", "must read"),
    ],
)
def test_an_absurd_file_is_named_with_its_rule(path: str, text: str, field: str, rule: str) -> None:
    texts = MachineTree(MachineSpec(sockets=2, cores_per_zone=2)).texts()
    texts[path] = text
    with pytest.raises(InvalidInput) as caught:
        read_topology(gather_topology(texts))
    assert caught.value.field == field
    assert rule in caught.value.rule


def test_a_zone_that_came_while_reading_is_refused_rather_than_guessed() -> None:
    texts = gather_topology(MachineTree(MachineSpec(sockets=2)).texts())
    texts[f"{NODE}/node1/cpulist"] = None
    with pytest.raises(InvalidInput, match="must be there for a zone that is online"):
        read_topology(texts)
