"""The environment variables by which a replica learns its identity and its shares of the node.

They replace variables of the same name in a job's own environment. GPUs are also listed under the names that CUDA, HIP and NVIDIA's
container runtime read, so that a program sees its own devices and no others without knowing colo.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import DeviceShare, Placement, ZoneHugePages

__all__ = ["environment_of"]

_GPU: Final = "gpu"
_NO_GPU_NVIDIA: Final = "void"
_NO_GPU_CUDA: Final = "-1"
"""NVIDIA's container runtime reads `void` as no device; CUDA stops at the first number that is no device."""


def environment_of(placement: Placement) -> dict[str, str]:
    """The variables of one attempt. Lists of CPUs and zones are kernel lists ("0-3,8"); amounts are integers in the name's unit.

    `COLO_CPUS` is empty in the shared pool. `COLO_DEVICES` and `COLO_HUGE_PAGES` are JSON arrays, ordered by kind and number, or
    zone and page size; "[]" means none. Their objects have kind, device, zone, core_pct and memory_bytes, or zone, page_bytes and
    total_bytes. GPU variables list values in the order of the GPUs' numbers, which follow the PCI address.
    """
    task, _, index = placement.replica.removeprefix(f"{placement.job}/").rpartition("/")
    zones = CpuSet.from_iterable(share.zone for share in placement.zones)
    return {
        "COLO_JOB": placement.job,
        "COLO_TASK": task,
        "COLO_INDEX": index,
        "COLO_REPLICA": placement.replica,
        "COLO_ATTEMPT": str(placement.attempt),
        "COLO_NODE": placement.node,
        "COLO_QOS": placement.qos.value,
        "COLO_CPU_MCPU": str(placement.cpu_mcpu),
        "COLO_MEMORY_BYTES": str(placement.memory_bytes),
        "COLO_CPUS": placement.cpus,
        "COLO_ZONES": zones.format(),
        "COLO_DEVICES": _devices(placement.devices),
        "COLO_HUGE_PAGES": _huge_pages(placement.huge_pages),
        **_gpus([share for share in placement.devices if share.kind == _GPU]),
    }


def _devices(shares: Sequence[DeviceShare]) -> str:
    rows = [
        {
            "kind": share.kind,
            "device": share.device,
            "zone": share.zone,
            "core_pct": share.core_pct,
            "memory_bytes": share.memory_bytes,
        }
        for share in sorted(shares, key=lambda share: (share.kind, share.device))
    ]
    return msgspec.json.encode(rows).decode()


def _huge_pages(shares: Sequence[ZoneHugePages]) -> str:
    ordered = sorted(shares, key=lambda share: (share.zone, share.page_bytes))
    return msgspec.json.encode(ordered).decode()


def _gpus(shares: Sequence[DeviceShare]) -> dict[str, str]:
    """The GPU variables. They are set even without a GPU, because CUDA otherwise shows a program every GPU of the machine."""
    ordered = sorted(shares, key=lambda share: share.device)
    numbers = ",".join(str(share.device) for share in ordered)
    return {
        "NVIDIA_VISIBLE_DEVICES": numbers or _NO_GPU_NVIDIA,
        "CUDA_VISIBLE_DEVICES": numbers or _NO_GPU_CUDA,
        # By default CUDA counts the fastest device first.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "COLO_GPU_CORE_PCT": ",".join(str(share.core_pct) for share in ordered),
        "COLO_GPU_MEMORY_BYTES": ",".join(str(share.memory_bytes) for share in ordered),
    }
