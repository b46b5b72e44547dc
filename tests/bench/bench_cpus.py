"""How many choices of CPUs one core makes in a second, on a machine of two sockets and 128 CPUs.

Run: python -m tests.bench.bench_cpus [--seconds 0.5]

The machine is filled with allocations of 2 to 16 CPUs until one is refused, then emptied, and so on: the figure is the mean over
all degrees of fullness. The last lines show the longest single choice of the kubelet's distribution over many different zones.
"""

import argparse
import time
from collections.abc import Iterator

from colo_common.model.cpu_topology import CpuTopology
from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import ZoneShare
from colo_common.model.topology import uniform_topology
from colo_scheduler.cpus.binding import BindPolicy, ExclusivePolicy, NoCpus
from colo_scheduler.cpus.choose import CpuRequest, choose_cpus
from colo_scheduler.cpus.exclusive import HeldCpus
from colo_scheduler.peers.kubelet.options import KubeletOptions
from colo_scheduler.peers.kubelet.static_policy import choose_static
from tests.support.cpu_topology import topology_from_node

SIZES = (4, 2, 8, 2, 16, 6, 2, 4)
GIB = 1 << 30


def machine(*, sockets: int, zones_per_socket: int, cpus_per_zone: int) -> CpuTopology:
    return topology_from_node(
        uniform_topology(
            sockets=sockets, zones_per_socket=zones_per_socket, cpus_per_zone=cpus_per_zone, memory_bytes_per_zone=GIB
        )
    )


def requests(**options: object) -> Iterator[CpuRequest]:
    """The same kinds of request for ever, of the sizes in turn."""
    made = tuple(CpuRequest(count=count, **options) for count in SIZES)  # type: ignore[arg-type]
    while True:
        yield from made


def measure(name: str, topology: CpuTopology, seconds: float, *, is_in_zone: bool = False, **options: object) -> None:
    """Fill and empty the machine for so long, print the rate."""
    wanted, held, choices = requests(**options), [], 0
    exclusive = options.get("exclusive", ExclusivePolicy.NONE)
    assert isinstance(exclusive, ExclusivePolicy)
    zone = 0
    started_s = time.perf_counter()
    while (spent_s := time.perf_counter() - started_s) < seconds:
        request = next(wanted)
        shares = (ZoneShare(zone=zone, cpu_mcpu=request.count * 1000, memory_bytes=0),) if is_in_zone else ()
        found = choose_cpus(topology, request, held, zones=shares)
        choices += 1
        zone = choices % len(topology.zone_ids)
        if isinstance(found, NoCpus):
            held = []
        else:
            held.append(HeldCpus(cpus=found, exclusive=exclusive))
    print(f"{name:<52} {choices / spent_s:>10,.0f} choices/s  {spent_s / choices * 1e6:>7.1f} us each")


def measure_static(name: str, topology: CpuTopology, seconds: float, options: KubeletOptions) -> None:
    """The same by the kubelet's static policy."""
    held: list[HeldCpus] = []
    choices = 0
    started_s = time.perf_counter()
    while (spent_s := time.perf_counter() - started_s) < seconds:
        found = choose_static(topology, SIZES[choices % len(SIZES)], options, held)
        choices += 1
        held = [] if isinstance(found, NoCpus) else [*held, HeldCpus(cpus=found)]
    print(f"{name:<52} {choices / spent_s:>10,.0f} choices/s  {spent_s / choices * 1e6:>7.1f} us each")


def longest(zones: int) -> None:
    """The slowest choice of the kubelet's distribution when every zone has another number of free CPUs."""
    topology = machine(sockets=2, zones_per_socket=zones // 2, cpus_per_zone=32)
    reserved = CpuSet()
    for zone in range(zones):
        reserved = reserved | topology.cpus_of_zone(zone).first(zone + zone // 2)
    longest_s, at = 0.0, 0
    free = topology.cpu_count - len(reserved)
    for count in range(4, free, max(1, free // 60)):
        started_s = time.perf_counter()
        choose_static(topology, count, KubeletOptions(is_across_numa=True), reserved=reserved)
        spent_s = time.perf_counter() - started_s
        if spent_s > longest_s:
            longest_s, at = spent_s, count
    print(f"{f'distributed over {zones} zones, all different':<52} {longest_s * 1e3:>10.1f} ms at most ({at} CPUs)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.5)
    seconds = parser.parse_args().seconds
    topology = machine(sockets=2, zones_per_socket=2, cpus_per_zone=32)
    full, spread = BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS
    measure("FullPCPUs", topology, seconds, bind=full)
    measure("FullPCPUs, zone given", topology, seconds, bind=full, is_in_zone=True)
    measure("FullPCPUs, required", topology, seconds, bind=full, is_bind_required=True)
    measure("SpreadByPCPUs", topology, seconds, bind=spread)
    measure("SpreadByPCPUs, zone given", topology, seconds, bind=spread, is_in_zone=True)
    measure("SpreadByPCPUs, exclusive cores", topology, seconds, bind=spread, exclusive=ExclusivePolicy.PCPU_LEVEL)
    measure_static("kubelet packed", topology, seconds, KubeletOptions())
    measure_static("kubelet full-pcpus-only", topology, seconds, KubeletOptions(is_full_pcpus_only=True))
    measure_static("kubelet by cache", topology, seconds, KubeletOptions(is_by_l3=True))
    measure_static("kubelet distributed", topology, seconds, KubeletOptions(is_across_numa=True))
    for zones in (8, 16, 32):
        longest(zones)


if __name__ == "__main__":
    main()
