"""The whole machine beside its use: run queues, threads, disks, networks, kills, caches; from the files of the sample's pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from msgspec import Struct

from colo_collector.growth import growth, growth_of_pair
from colo_collector.kernel_text import flat_keyed, unsigned
from colo_collector.parse_tasks import parse_diskstats, parse_loadavg, parse_network, parse_run_queues
from colo_common.events.node import CacheUse, DeviceUse, MachineDetail
from colo_common.model.invalid import InvalidInput

__all__ = ["NODE_PATHS", "NodeReading", "node_detail_between", "read_node"]

_SCHEDSTAT: Final = "/proc/schedstat"
_LOADAVG: Final = "/proc/loadavg"
_DISKSTATS: Final = "/proc/diskstats"
_NETWORK: Final = "/proc/net/dev"
_VMSTAT: Final = "/proc/vmstat"
NODE_PATHS: Final = (_SCHEDSTAT, _LOADAVG, _DISKSTATS, _VMSTAT)
_NS_PER_US: Final = 1_000
_Value = TypeVar("_Value")


class NodeReading(Struct, frozen=True, kw_only=True):
    """The counters of one pass; None where the kernel does not say."""

    run_queues: tuple[int, int] | None = None
    threads: tuple[int, int] | None = None
    disks: tuple[int, int] | None = None
    network: tuple[int, int] | None = None
    oom_kills: int | None = None
    switches: int | None = None


def read_node(
    texts: Mapping[str, str | None], cut: tuple[str, ...], faults: list[str], *, network: str = _NETWORK
) -> NodeReading:
    """The counters of the texts of NODE_PATHS, `network` and /proc/stat.

    A malformed or cut file costs its values; `faults` gets a sentence. `network` is the file of the machine's own network
    devices, which a container does not have at the usual place.
    """

    def value(path: str, parse: Callable[[str], _Value]) -> _Value | None:
        text = texts.get(path)
        if not text or path in cut:
            return None
        try:
            return parse(text)
        except InvalidInput as error:
            faults.append(str(error))
            return None

    return NodeReading(
        run_queues=value(_SCHEDSTAT, parse_run_queues),
        threads=value(_LOADAVG, parse_loadavg),
        disks=value(_DISKSTATS, parse_diskstats),
        network=value(network, parse_network),
        oom_kills=value(_VMSTAT, lambda text: flat_keyed(_VMSTAT, text).get("oom_kill")),
        switches=value("/proc/stat", _context_switches),
    )


def node_detail_between(
    previous: NodeReading | None,
    now: NodeReading,
    caches: tuple[CacheUse, ...] = (),
    devices: tuple[DeviceUse, ...] = (),
) -> MachineDetail:
    """The detail of an interval; growth is unknown at the first reading and where a counter went back."""
    before = NodeReading() if previous is None else previous
    queues, disks = growth_of_pair(before.run_queues, now.run_queues), growth_of_pair(before.disks, now.disks)
    network = growth_of_pair(before.network, now.network)
    return MachineDetail(
        run_us=None if queues is None else queues[0] // _NS_PER_US,
        wait_us=None if queues is None else queues[1] // _NS_PER_US,
        runnable=None if now.threads is None else now.threads[0],
        tasks=None if now.threads is None else now.threads[1],
        disk_read_bytes=None if disks is None else disks[0],
        disk_written_bytes=None if disks is None else disks[1],
        network_received_bytes=None if network is None else network[0],
        network_sent_bytes=None if network is None else network[1],
        oom_kill_events=growth(before.oom_kills, now.oom_kills),
        context_switches=growth(before.switches, now.switches),
        caches=caches,
        devices=devices,
    )


def _context_switches(text: str) -> int | None:
    """The line ctxt of /proc/stat, which comes after the long line of interrupts; None where the text was cut before it."""
    begin = text.find("\nctxt ")
    if begin < 0:
        return None
    end = text.find("\n", begin + 1)
    return unsigned(text[begin + 6 : len(text) if end < 0 else end].strip(), "/proc/stat ctxt")
