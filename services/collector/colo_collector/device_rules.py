"""The operator's settings for the devices of a node: labels, such as a model, and partitions of linked GPUs.

A label reads "gpu:model=H100" for all devices of a kind, or "gpu/0-3:model=H100" for some; a partition reads "0-3" or
"0+2:score=2:bandwidth=200Gi". Devices are numbered within their kind; numbers and ranges are joined by "+".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct, structs

from colo_collector.rules import is_label
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.quantity import parse_bytes
from colo_common.model.topology import Device, DevicePartition, NodeTopology

__all__ = ["DeviceLabel", "parse_device_labels", "parse_gpu_partitions", "with_declared"]

_KIND: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_NUMBERS: Final = re.compile(r"[0-9]{1,4}(?:-[0-9]{1,4})?(?:\+[0-9]{1,4}(?:-[0-9]{1,4})?)*", re.ASCII)
_SCORE: Final = re.compile(r"[0-9]{1,6}", re.ASCII)
_DEVICES_MOST: Final = 1_024
_ENTRIES_MOST: Final = 256
_LABELS_MOST: Final = 14
"""The most label names of a kind, not counting the two that the PCI bus gives."""
_OF_THE_BUS: Final = ("product", "vendor")
_BANDWIDTH_MOST: Final = 1 << 60


class DeviceLabel(Struct, frozen=True, kw_only=True):
    """A label of the devices of one kind that have these numbers; `numbers` None means every device of the kind."""

    kind: str
    numbers: tuple[int, ...] | None
    name: str
    value: str


def parse_device_labels(texts: Sequence[str], field: str = "device_labels") -> tuple[DeviceLabel, ...]:
    """The labels of texts such as "gpu:model=H100". Raises InvalidInput that names the entry."""
    if len(texts) > _ENTRIES_MOST:
        raise InvalidInput(field, f"may be at most {_ENTRIES_MOST}", len(texts))
    found = []
    for index, text in enumerate(texts):
        where = f"{field}[{index}]"
        devices, _, pair = text.partition(":")
        kind, slash, numbers = devices.partition("/")
        name, equals, value = pair.partition("=")
        if not _KIND.fullmatch(kind) or not equals or not is_label(name, value):
            raise InvalidInput(where, 'must read "kind:name=value" or "kind/0-3:name=value", as labels are', text)
        if name in _OF_THE_BUS:
            raise InvalidInput(where, f"{' and '.join(_OF_THE_BUS)} are read from the PCI bus", name)
        found.append(
            DeviceLabel(kind=kind, numbers=_numbers(numbers, where) if slash else None, name=name, value=value)
        )
    names = {(label.kind, label.name) for label in found}
    for kind in {kind for kind, _ in names}:
        if sum(other == kind for other, _ in names) > _LABELS_MOST:
            raise InvalidInput(field, f"may be at most {_LABELS_MOST} names of a kind", kind)
    return tuple(found)


def parse_gpu_partitions(texts: Sequence[str], field: str = "gpu_partitions") -> tuple[DevicePartition, ...]:
    """The partitions of texts such as "0-3:score=1:bandwidth=200Gi". Raises InvalidInput that names the entry."""
    if len(texts) > _ENTRIES_MOST:
        raise InvalidInput(field, f"may be at most {_ENTRIES_MOST}", len(texts))
    found: dict[tuple[int, ...], DevicePartition] = {}
    for index, text in enumerate(texts):
        where = f"{field}[{index}]"
        numbers, *options = text.split(":")
        devices = _numbers(numbers, where)
        if devices in found:
            raise InvalidInput(where, "a group may come once", text)
        known: dict[str, str] = {}
        for option in options:
            name, _, value = option.partition("=")
            if name not in ("score", "bandwidth") or name in known:
                raise InvalidInput(where, 'may add ":score=N" and ":bandwidth=200Gi", each once', option)
            known[name] = value
        if not _SCORE.fullmatch(known.get("score", "1")):
            raise InvalidInput(f"{where}.score", "must be a whole number up to 999999", known["score"])
        bandwidth = parse_bytes(known["bandwidth"], f"{where}.bandwidth") if "bandwidth" in known else None
        if bandwidth is not None and bandwidth > _BANDWIDTH_MOST:
            raise InvalidInput(f"{where}.bandwidth", f"must be at most {_BANDWIDTH_MOST} bytes a second", bandwidth)
        found[devices] = DevicePartition(
            devices=devices, score=int(known.get("score", "1")), bandwidth_bytes_per_s=bandwidth
        )
    return tuple(found.values())


def _numbers(text: str, where: str) -> tuple[int, ...]:
    if not _NUMBERS.fullmatch(text):
        raise InvalidInput(where, 'must name devices by numbers such as "0-3" or "0+2"', text)
    numbers = tuple(CpuSet.parse(text.replace("+", ","), where))
    if numbers[-1] >= _DEVICES_MOST:
        raise InvalidInput(where, f"must be numbers below {_DEVICES_MOST}", text)
    return numbers


def with_declared(
    topology: NodeTopology,
    labels: Sequence[DeviceLabel],
    partitions: Sequence[DevicePartition],
    assumed: list[str],
) -> NodeTopology:
    """The topology with the operator's labels and partitions; of two labels of one name the last one counts.

    An entry for devices that the machine lacks is left out, and `assumed` gets a sentence about it.
    """
    own: dict[tuple[str, int], dict[str, str]] = {}
    numbers: dict[str, set[int]] = {}
    for device in topology.devices:
        own[device.kind, device.device] = dict(device.labels)
        numbers.setdefault(device.kind, set()).add(device.device)
    for label in labels:
        there = numbers.get(label.kind, set())
        named = there if label.numbers is None else set(label.numbers)
        if named - there or not there:
            lacking = " ".join(f"{label.kind}-{number}" for number in sorted(named - there)[:10]) or label.kind
            assumed.append(f"device_labels names {lacking}, which the machine lacks; it is left out")
        for number in named & there:
            own[label.kind, number][label.name] = label.value
    kept = []
    for part in partitions:
        if set(part.devices) <= numbers.get("gpu", set()):
            kept.append(part)
        else:
            shown = CpuSet.from_iterable(part.devices)
            assumed.append(f"gpu_partitions names the GPUs {shown}, which the machine lacks in part; it is left out")
    devices = tuple(_labelled(device, own[device.kind, device.device]) for device in topology.devices)
    return structs.replace(topology, devices=devices, gpu_partitions=tuple(kept))


def _labelled(device: Device, labels: dict[str, str]) -> Device:
    return structs.replace(device, labels=tuple(sorted(labels.items())))
