"""Devices that schedulers care about, from the PCI devices that the kernel lists: GPUs, accelerators, network cards, NVMe disks.

Two pure steps: `class_paths` and `device_paths` name the files to read, `read_devices` turns texts and links into values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from colo_collector.kernel_text import unsigned, where
from colo_common.model.invalid import InvalidInput
from colo_common.model.topology import Device

__all__ = [
    "KINDS",
    "PCI_ROOT",
    "KindRule",
    "class_paths",
    "device_addresses",
    "device_links",
    "device_paths",
    "parse_device_kinds",
    "read_devices",
]

PCI_ROOT: Final = "/sys/bus/pci/devices"

_ADDRESS: Final = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.ASCII)
_CLASS: Final = re.compile(r"0x([0-9a-f]{4})[0-9a-f]{2}", re.ASCII)
_KIND_RULE: Final = re.compile(
    r"([0-9a-f]{4})(?::([0-9a-f]{4}))?(?:/([0-9a-f]{2}|[0-9a-f]{4}))?=([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)", re.ASCII
)
_KIND_RULES_MAX: Final = 256
_ID: Final = re.compile(r"0x([0-9a-f]{4})", re.ASCII)
_NUMA_NODE: Final = re.compile(r"-?[0-9]{1,9}", re.ASCII)
_HOST_BRIDGE: Final = re.compile(r"/(pci[0-9a-f]{4,8}:[0-9a-f]{2})/", re.ASCII)
KINDS: Final = ("fpga", "gpu", "ib", "mlu", "nic", "npu", "nvme")
"""The kinds that are found without a setting."""
_CLASSES: Final = {"0207": "ib", "0108": "nvme", "03": "gpu", "02": "nic"}
"""The kind of a PCI class, or of all subclasses of one; the longer one counts."""
_VENDORS: Final = (
    ("19e5", "12", "npu"),
    ("1da3", "12", "npu"),
    ("cabc", "", "mlu"),
    ("10ee", "12", "fpga"),
    ("10ee", "05", "fpga"),
    ("1172", "12", "fpga"),
    ("1172", "05", "fpga"),
)
"""Vendor, beginning of the class ("" any) and kind of accelerators, whose class (12) does not say what they are: Huawei, Habana,
Cambricon, Xilinx, Altera.
"""
_NONE: Final = "none"
_MEMORY_MOST_BYTES: Final = 1 << 50
_NO_GPUS: Final = {
    "0x1a03": "ASPEED",
    "0x102b": "Matrox",
    "0x1234": "QEMU",
    "0x1013": "Cirrus",
    "0x1af4": "virtio",
    "0x1b36": "QXL",
    "0x15ad": "VMware",
    "0x1414": "Hyper-V",
    "0x80ee": "VirtualBox",
}
"""PCI vendors of the display adapters of management controllers and hypervisors, which show a console and compute nothing."""


class KindRule(Struct, frozen=True, kw_only=True):
    """Devices of this vendor, product ("" any) and class ("" any) are of that kind; kind "none" leaves them out."""

    vendor: str
    kind: str
    product: str = ""
    pci_class: str = ""


def parse_device_kinds(texts: Sequence[str], field: str = "device_kinds") -> tuple[KindRule, ...]:
    """The rules of texts such as "1ac1=npu", "1ac1:0043=npu" or "10ee/12=fpga", in their order.

    Raises InvalidInput that names the entry.
    """
    if len(texts) > _KIND_RULES_MAX:
        raise InvalidInput(field, f"may be at most {_KIND_RULES_MAX}", len(texts))
    found = []
    for index, text in enumerate(texts):
        match = _KIND_RULE.fullmatch(text)
        if match is None:
            rule = 'must read "VENDOR=kind", "VENDOR:PRODUCT=kind" or "VENDOR/CLASS=kind", ids as in lspci -n'
            raise InvalidInput(f"{field}[{index}]", rule, text)
        found.append(KindRule(vendor=match[1], product=match[2] or "", pci_class=match[3] or "", kind=match[4]))
    return tuple(found)


class _Found(Struct, frozen=True, kw_only=True):
    address: str
    kind: str


def class_paths(addresses: Sequence[str]) -> tuple[str, ...]:
    """The files of the PCI devices by which their kind is found."""
    return tuple(
        f"{PCI_ROOT}/{address}/{name}"
        for address in sorted(addresses)
        if _ADDRESS.fullmatch(address)
        for name in ("class", "vendor", "device")
    )


def device_paths(texts: Mapping[str, str | None], rules: Sequence[KindRule] = ()) -> tuple[str, ...]:
    """The other files to read of each device; `texts` has the files of class_paths."""
    names = ("numa_node", "mem_info_vram_total", "physfn/class")
    return tuple(f"{PCI_ROOT}/{one.address}/{name}" for one in _found(texts, rules, []) for name in names)


def device_links(texts: Mapping[str, str | None], rules: Sequence[KindRule] = ()) -> tuple[str, ...]:
    """The links that name the host bridge of each device."""
    return tuple(f"{PCI_ROOT}/{one.address}" for one in _found(texts, rules, []))


def read_devices(
    texts: Mapping[str, str | None],
    links: Mapping[str, str],
    zones: Sequence[int],
    refused: list[str],
    rules: Sequence[KindRule] = (),
) -> tuple[Device, ...]:
    """The devices in ascending kind and number; numbers follow the PCI address.

    Virtual functions are left out, and so are display adapters that are no GPUs. A device whose zone the kernel does not know (-1)
    counts to the lowest zone. `pcie` is the host bridge; the labels `vendor` and `product` are the PCI ids. `memory_bytes` is known
    for GPUs whose driver publishes it in /sys (amdgpu), else 0. A device with a malformed file is left out and keeps its number;
    `refused` gets a sentence that names the file. `zones` must not be empty.
    """
    devices: list[Device] = []
    for one, number in _numbered(texts, rules, refused):
        root = f"{PCI_ROOT}/{one.address}"
        try:
            zone = _zone(f"{root}/numa_node", texts, zones)
            memory_bytes = _memory_bytes(f"{root}/mem_info_vram_total", texts)
        except InvalidInput as error:
            refused.append(f"{error}; {one.kind} {number} is left out")
            continue
        bridge = _HOST_BRIDGE.search(links.get(root, ""))
        pcie = "" if bridge is None else bridge[1]
        labels = _labels(root, texts)
        devices.append(
            Device(
                kind=one.kind,
                device=number,
                zone=zone,
                memory_bytes=memory_bytes,
                pcie=pcie,
                labels=labels,
                address=one.address,
            )
        )
    return tuple(sorted(devices, key=lambda device: (device.kind, device.device)))


def device_addresses(texts: Mapping[str, str | None], rules: Sequence[KindRule] = ()) -> dict[tuple[str, int], str]:
    """The PCI address of each device by kind and number, as `read_devices` numbers them."""
    return {(one.kind, number): one.address for one, number in _numbered(texts, rules, [])}


def _numbered(
    texts: Mapping[str, str | None], rules: Sequence[KindRule], refused: list[str]
) -> Iterator[tuple[_Found, int]]:
    """The devices with their numbers, without virtual functions and displays that are no GPUs."""
    numbers: dict[str, int] = {}
    for one in _found(texts, rules, refused):
        root = f"{PCI_ROOT}/{one.address}"
        if texts.get(f"{root}/physfn/class") is not None:
            continue
        if one.kind == "gpu" and (texts.get(f"{root}/vendor") or "").strip() in _NO_GPUS:
            continue
        number = numbers.get(one.kind, 0)
        numbers[one.kind] = number + 1
        yield one, number


def _found(texts: Mapping[str, str | None], rules: Sequence[KindRule], refused: list[str]) -> list[_Found]:
    """The devices by address: what the operator's rules say counts, then the vendors of accelerators, then the class."""
    found = []
    for path, text in texts.items():
        if not path.startswith(f"{PCI_ROOT}/") or not path.endswith("/class") or text is None:
            continue
        address = path.removeprefix(f"{PCI_ROOT}/").removesuffix("/class")
        if not _ADDRESS.fullmatch(address):
            continue
        match = _CLASS.fullmatch(text.strip())
        if match is None:
            refused.append(
                f"{where(path, 1)}: must be a class such as 0x030200 (got {text[:40]!r}); the device is left out"
            )
            continue
        root = f"{PCI_ROOT}/{address}"
        vendor, product = (
            (texts.get(f"{root}/{name}") or "").strip().removeprefix("0x") for name in ("vendor", "device")
        )
        kind = _kind(match[1], vendor, product, rules)
        if kind not in ("", _NONE):
            found.append(_Found(address=address, kind=kind))
    return sorted(found, key=lambda one: _place(one.address))


def _kind(pci_class: str, vendor: str, product: str, rules: Sequence[KindRule]) -> str:
    for rule in rules:
        if rule.vendor == vendor and rule.product in ("", product) and pci_class.startswith(rule.pci_class):
            return rule.kind
    for known, begin, kind in _VENDORS:
        if known == vendor and pci_class.startswith(begin):
            return kind
    return _CLASSES.get(pci_class) or _CLASSES.get(pci_class[:2], "")


def _place(address: str) -> tuple[int, ...]:
    match = _ADDRESS.fullmatch(address)
    return () if match is None else tuple(int(part, 16) for part in match.groups())


def _zone(path: str, texts: Mapping[str, str | None], zones: Sequence[int]) -> int:
    text = texts.get(path)
    # A kernel without NUMA has no such file, or writes -1.
    if text is None:
        return min(zones)
    word = text.strip()
    if not _NUMA_NODE.fullmatch(word):
        raise InvalidInput(where(path, 1), "must be the number of a zone, or -1", text)
    zone = int(word)
    if zone < 0:
        return min(zones)
    if zone not in zones:
        raise InvalidInput(where(path, 1), "must be a zone of the machine, or -1", zone)
    return zone


def _labels(root: str, texts: Mapping[str, str | None]) -> tuple[tuple[str, str], ...]:
    """The PCI ids of product and vendor, four hexadecimal digits each; an id of another form is left out."""
    found = (("product", texts.get(f"{root}/device")), ("vendor", texts.get(f"{root}/vendor")))
    matches = ((name, _ID.fullmatch((text or "").strip())) for name, text in found)
    return tuple((name, match[1]) for name, match in matches if match is not None)


def _memory_bytes(path: str, texts: Mapping[str, str | None]) -> int:
    text = texts.get(path)
    if text is None:
        return 0
    memory_bytes = unsigned(text.strip(), where(path, 1))
    if memory_bytes > _MEMORY_MOST_BYTES:
        raise InvalidInput(where(path, 1), f"must be at most {_MEMORY_MOST_BYTES} bytes", memory_bytes)
    return memory_bytes
