"""`colo node show --local`: this machine as the collector sees it: its topology as a tree, what it can do, and a live sample."""

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import Parameter

from colo_cli.failure import Failure
from colo_cli.output import SettingWords, bytes_text, counted, cpu_text, print_data, print_table, print_text
from colo_cli.workload_rows import class_lines, print_workloads

if TYPE_CHECKING:
    from colo_collector.readings import SampleRead, TopologyRead
    from colo_common.model.topology import NodeTopology, Zone

__all__ = ["show", "topology_lines"]

_SPAN_S: Final = 1.0
_TRIES: Final = 3
_WORKLOADS_SHOWN: Final = 50
_RESOURCES: Final = {"cpu": "CPU", "memory": "memory", "io": "disk"}


def show(
    *settings: SettingWords,
    local: Annotated[bool, Parameter(negative=())] = False,
    output: Annotated[Literal["table", "json", "yaml", "nrt"], Parameter(name=["--output", "-o"])] = "table",
) -> int:
    """Show this machine as the collector sees it, without any service: a tree of its topology and one second of its use.

    Args:
        settings: with --local, the collector's settings: --root, --online-groups, --device-kinds, --config and more.
        local: This machine. A node of the cluster is shown by `colo get node NAME`.
        output: table, json, yaml, or nrt: a NodeResourceTopology document.
    """
    if not local:
        name = next(iter(settings), "NAME")
        rule = f"`colo node show --local` shows this machine; `colo get node {name}` shows a node of the cluster"
        raise Failure(rule, 2)
    from colo_collector.assembly import machine_of
    from colo_collector.settings import CollectorSettings
    from colo_common.adapters.clock import SystemClock
    from colo_common.runtime.settings import load

    found = load(CollectorSettings, "collector", settings, os.environ)
    machine = machine_of(found, SystemClock())
    try:
        topology, sample, problem = _observed(machine)
    finally:
        machine.close()
    if topology is None:
        raise Failure(problem or "the machine cannot be read", 1)
    if output == "nrt":
        from colo_collector.nrt import node_resource_topology

        policy = _kubelet_policy(found.kubelet_state)
        print_data(node_resource_topology(found.node, topology.topology, topology.rules, policy), "yaml")
        return 0
    if output != "table":
        import msgspec

        shown = {"node": found.node, "topology": topology, "sample": sample, "problem": problem}
        print_data(msgspec.to_builtins(shown), output)
        return 0
    print_text(f"{found.node}: {_headline(topology)}", colour="bold")
    for line in topology_lines(topology.topology):
        print(line)
    _print_capabilities(topology)
    if sample is None:
        print_text(f"\nno sample: {problem}", colour="yellow")
        return 0
    _print_sample(sample, topology.topology)
    return 0


def _kubelet_policy(path: str) -> str:
    """The CPU policy of the kubelet's checkpoint file, "" without one."""
    from colo_collector.files import FileReader
    from colo_collector.kubelet import checkpoint_policy

    if not path:
        return ""
    with FileReader() as reader:
        return checkpoint_policy(reader.read(path) or "")


def _observed(machine: Any) -> "tuple[TopologyRead | None, SampleRead | None, str]":
    """The topology, and the first sample that can be made; else why there is none."""
    from colo_collector.readings import SampleRead

    topology, problem = None, ""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_SPAN_S)
        observation = machine.observe()
        topology = observation.topology_read or topology
        if isinstance(observation.event, SampleRead):
            return topology, observation.event, ""
        problem = observation.event.detail or observation.event.reason.value
    return topology, None, problem


def _headline(read: "TopologyRead") -> str:
    topology = read.topology
    sockets = counted(len({cpu.socket for cpu in topology.cpus}), "socket")
    cores = len({cpu.core for cpu in topology.cpus})
    model = topology.cpu_model or topology.cpu_vendor or "unknown CPU"
    return (
        f"{model}, {sockets}, {counted(cores, 'core')}, {counted(len(topology.cpus), 'CPU')},"
        f" {bytes_text(topology.memory_capacity_bytes)}"
    )


def topology_lines(topology: "NodeTopology") -> Iterator[str]:
    """The tree: sockets, zones with their memory and distances, caches with the cores that share them, and devices."""
    for socket in sorted({zone.socket for zone in topology.zones}):
        yield f"socket {socket}"
        for zone in (zone for zone in topology.zones if zone.socket == socket):
            yield f"  zone {zone.zone}: CPUs {zone.cpus or '-'}, {bytes_text(zone.memory_bytes)}{_of_zone(zone)}"
            yield from _caches(topology, zone.zone)
            for device in (device for device in topology.devices if device.zone == zone.zone):
                about = " ".join(f"{name}={value}" for name, value in device.labels)
                size = f", {bytes_text(device.memory_bytes)}" if device.memory_bytes else ""
                health = "" if device.is_healthy else ", unhealthy"
                yield f"    {device.kind} {device.device}: {about or device.pcie or '-'}{size}{health}"
    for name in ("offline", "isolated", "nohz_full"):
        cpus = getattr(topology, name)
        if cpus:
            yield f"{name.replace('_', '-')} CPUs: {cpus}"
    for name, value in topology.attributes:
        yield f"{name}: {value}"


def _of_zone(zone: "Zone") -> str:
    parts = [f", distances {' '.join(map(str, zone.distances))}"] if zone.distances else []
    parts += [
        f", {bytes_text(pages.total_bytes)} in pages of {bytes_text(pages.page_bytes)}" for pages in zone.huge_pages
    ]
    return "".join(parts)


def _caches(topology: "NodeTopology", zone: int) -> Iterator[str]:
    """One line for each last-level cache of the zone, with its dies and its cores as the CPUs of each."""
    cpus = [cpu for cpu in topology.cpus if cpu.zone == zone]
    sizes = {cache.cache: cache.size_bytes for cache in topology.caches if cache.level == 3}
    for l3 in sorted({cpu.l3 for cpu in cpus}):
        members = [cpu for cpu in cpus if cpu.l3 == l3]
        cores: dict[int, list[int]] = {}
        for cpu in members:
            cores.setdefault(cpu.core, []).append(cpu.cpu)
        dies = sorted({cpu.die for cpu in members})
        size = f", {bytes_text(sizes[l3])}" if sizes.get(l3) else ""
        listed = " ".join("+".join(map(str, threads)) for _, threads in sorted(cores.items()))
        yield f"    die {' '.join(map(str, dies))}, L3 {l3}{size}: {counted(len(cores), 'core')}: {listed}"


def _print_capabilities(read: "TopologyRead") -> None:
    has = [one.name for one in read.capabilities if one.present]
    lacks = [one.name for one in read.capabilities if not one.present]
    print()
    print_text(f"has: {' '.join(has) or '-'}")
    print_text(f"lacks: {' '.join(lacks) or '-'} (`colo doctor` says why)")


def _print_sample(sample: "SampleRead", topology: "NodeTopology") -> None:
    print()
    print_text(
        f"use over {sample.interval_ms} ms: {cpu_text(sample.cpu_used_mcpu)} CPU, {bytes_text(sample.memory_used_bytes)};"
        f" stolen {cpu_text(sample.steal_mcpu)} CPU",
        colour="bold",
    )
    zones = [
        [
            str(use.zone),
            cpu_text(use.cpu_used_mcpu),
            cpu_text(zone.cpu_capacity_mcpu),
            bytes_text(use.memory_used_bytes),
            bytes_text(zone.memory_bytes),
            "-" if use.steal_mcpu is None else cpu_text(use.steal_mcpu),
            "-" if use.stall_pct is None else f"{use.stall_pct}%",
        ]
        for use, zone in zip(sample.zones, topology.zones, strict=True)
    ]
    print_table(["ZONE", "CPU USED>", "OF>", "MEM USED>", "OF>", "STOLEN>", "ONLINE STALL>"], zones, "no zones")
    print()
    largest = sorted(sample.workloads, key=lambda one: (-one.cpu_used_mcpu, one.workload))[:_WORKLOADS_SHOWN]
    print_workloads(largest, system=(sample.system_cpu_used_mcpu, sample.system_memory_used_bytes))
    more = len(sample.workloads) - _WORKLOADS_SHOWN
    if more > 0:
        print(f"and {counted(more, 'workload')} more")
    for line in class_lines(sample.classes):
        print_text(line)
    _print_machine(sample)


def _print_machine(sample: "SampleRead") -> None:
    for reading in sample.pressure:
        print_text(
            f"pressure of the node on {_RESOURCES[reading.resource]}: some {reading.some_avg10_centipct / 100:.2f}%, full"
            f" {reading.full_avg10_centipct / 100:.2f}% in 10 s (shown; decides nothing)"
        )
    detail = sample.detail
    if detail is not None:
        parts = [
            None if detail.tasks is None else counted(detail.tasks, "thread"),
            None if detail.disk_read_bytes is None else f"{bytes_text(detail.disk_read_bytes)} read from disks",
            None if detail.disk_written_bytes is None else f"{bytes_text(detail.disk_written_bytes)} written",
            None if detail.network_received_bytes is None else f"{bytes_text(detail.network_received_bytes)} received",
            None if detail.network_sent_bytes is None else f"{bytes_text(detail.network_sent_bytes)} sent",
        ]
        print_text(", ".join(part for part in parts if part is not None))
    for name in sample.missing:
        print_text(f"not known: {name}", colour="yellow")
