"""How much devices are used: GPUs by the counters of their driver in /sys, network cards and InfiniBand ports by bytes.

Read seldom, from files that every user may read. What a driver does not publish there (NVIDIA's, most accelerators') is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from colo_collector.detail_reader import DetailSource
from colo_collector.devices import PCI_ROOT
from colo_collector.growth import growth
from colo_collector.kernel_text import unsigned, where
from colo_common.events.node import DeviceUse
from colo_common.model.invalid import InvalidInput

__all__ = ["DeviceMonitor"]

PERIODS: Final = 10
"""Of so many samples one has the use of devices."""
_DEVICES_MAX: Final = 256
_WORD_BYTES: Final = 4
"""The counters of an InfiniBand port count words (linux/Documentation/ABI/stable/sysfs-class-infiniband)."""
_NS_PER_MS: Final = 1_000_000


class _Files(Struct, frozen=True, kw_only=True):
    busy: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    received: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()
    unit_bytes: int = 1


class DeviceMonitor:
    """The counters of one machine's devices; `devices` has the PCI address of each by kind and number."""

    def __init__(self) -> None:
        self._round = 0
        self._devices: dict[tuple[str, int], str] = {}
        self._previous: dict[tuple[str, int], tuple[int | None, int | None]] = {}
        self._previous_ns = 0

    def set_devices(self, devices: Mapping[tuple[str, int], str]) -> None:
        """The devices of the topology as it is now; what grew in one that moved to another address is unknown once."""
        if dict(devices) != self._devices:
            self._devices = dict(sorted(devices.items())[:_DEVICES_MAX])
            self._previous = {}

    def take(self, reader: DetailSource, faults: list[str]) -> tuple[DeviceUse, ...]:
        """The use since the last reading; () in the periods between. A device of which nothing is known is left out."""
        self._round += 1
        if (self._round - 1) % PERIODS or not self._devices:
            return ()
        files = {key: self._files(reader, key[0], address) for key, address in self._devices.items()}
        paths = [path for one in files.values() for path in (*one.busy, *one.memory, *one.received, *one.sent)]
        batch = reader.read_all(paths, keep=False)
        now: dict[tuple[str, int], tuple[int | None, int | None]] = {}
        found = []
        for key, one in files.items():
            received = _sum(one.received, batch.texts, faults, one.unit_bytes)
            sent = _sum(one.sent, batch.texts, faults, one.unit_bytes)
            now[key] = (received, sent)
            before = self._previous.get(key, (None, None))
            use = DeviceUse(
                kind=key[0],
                device=key[1],
                span_ms=(batch.started_ns - self._previous_ns) // _NS_PER_MS if key in self._previous else 0,
                busy_pct=_sum(one.busy, batch.texts, faults, 1),
                memory_used_bytes=_sum(one.memory, batch.texts, faults, 1),
                received_bytes=growth(before[0], received),
                sent_bytes=growth(before[1], sent),
            )
            if (use.busy_pct, use.memory_used_bytes, use.received_bytes, use.sent_bytes) != (None, None, None, None):
                found.append(use)
        self._previous, self._previous_ns = now, batch.started_ns
        return tuple(found)

    def _files(self, reader: DetailSource, kind: str, address: str) -> _Files:
        root = f"{PCI_ROOT}/{address}"
        if kind == "nic":
            names = [f"{root}/net/{name}/statistics" for name in reader.list_directories(f"{root}/net")]
            # A virtual card's interface lies below its driver's own device.
            names += [
                f"{root}/{inner}/net/{name}/statistics"
                for inner in reader.list_directories(root)
                if inner.startswith("virtio")
                for name in reader.list_directories(f"{root}/{inner}/net")
            ]
            return _Files(
                received=tuple(f"{name}/rx_bytes" for name in names), sent=tuple(f"{name}/tx_bytes" for name in names)
            )
        if kind == "ib":
            ports = [
                f"{root}/infiniband/{name}/ports/{port}/counters"
                for name in reader.list_directories(f"{root}/infiniband")
                for port in reader.list_directories(f"{root}/infiniband/{name}/ports")
            ]
            return _Files(
                received=tuple(f"{port}/port_rcv_data" for port in ports),
                sent=tuple(f"{port}/port_xmit_data" for port in ports),
                unit_bytes=_WORD_BYTES,
            )
        return _Files(busy=(f"{root}/gpu_busy_percent",), memory=(f"{root}/mem_info_vram_used",))


def _sum(paths: tuple[str, ...], texts: Mapping[str, str | None], faults: list[str], unit: int) -> int | None:
    """The sum of the files that are there; None when none is, or one is malformed."""
    values = []
    for path in paths:
        text = texts.get(path)
        if text is None:
            continue
        try:
            values.append(unsigned(text.strip(), where(path, 1)))
        except InvalidInput as error:
            faults.append(str(error))
            return None
    return sum(values) * unit if values else None
