"""Which device files a batch replica may open, in the words of cgroup v1's devices controller.

A device has its files by its place on the PCI bus: the kernel lists them below it in /sys, and NVIDIA's driver says in /proc which
of its files is which. Files that programs need beside them, whatever device they use, are opened with every device of the kind.
"""

import glob
import os
import re
import stat
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import DeviceShare, Placement
from colo_executor.knob_table import Knob
from colo_executor.located_devices import DeviceAddress
from colo_executor.order import KnobWrite
from colo_executor.process.settings import ProcessPolicy

__all__ = ["EVERYBODYS", "DevicePlaces", "check_patterns", "device_knobs", "device_rules", "why_unfenced"]

#: What every program may expect: null, zero, full, random, urandom, tty, ptmx and the terminals of pts. Files of devices may be
#: made (m) and are opened by these rules as well; container runtimes give the same.
EVERYBODYS: Final = (
    "c *:* m",
    "b *:* m",
    "c 1:3 rwm",
    "c 1:5 rwm",
    "c 1:7 rwm",
    "c 1:8 rwm",
    "c 1:9 rwm",
    "c 5:0 rwm",
    "c 5:2 rwm",
    "c 136:* rwm",
)
#: The files by which programs reach devices of a kind, below /dev. A driver numbers them in its own order, so that a share whose
#: own files nobody tells opens those of its kind.
_OF_KIND: Final[dict[str, tuple[str, ...]]] = {
    "gpu": ("nvidia*", "nvidia-caps/*", "dri/*", "kfd"),
    "npu": ("davinci*", "devmm_svm", "hisi_hdc"),
    "mlu": ("cambricon*",),
    "fpga": ("xclmgmt*", "dri/renderD*", "dfl-*"),
    "ib": ("infiniband/*",),
    "nic": (),
}
_OWN: Final[dict[str, tuple[str, ...]]] = {
    "gpu": ("drm/*/dev", "accel/*/dev"),
    "ib": ("infiniband_verbs/*/dev", "infiniband_mad/*/dev"),
}
"""The files of one device that say its numbers ("226:128"), below its directory in /sys."""
_NEEDED_WITH: Final[dict[str, tuple[str, ...]]] = {
    "gpu": ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "kfd"),
    "ib": ("infiniband/rdma_cm",),
}
"""What programs need beside the files of their own device, below /dev; none of them reaches a device by itself."""
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_NUMBERS: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,10})", re.ASCII)
_NVIDIA_MAJOR: Final = 195
_MINOR: Final = re.compile(r"^Device Minor:\s*([0-9]{1,3})\s*$", re.ASCII | re.MULTILINE)
_CAP_MINOR: Final = re.compile(r"^DeviceFileMinor:\s*([0-9]{1,9})\s*$", re.ASCII | re.MULTILINE)
_PATTERNS_MOST: Final = 64


def check_patterns(patterns: Sequence[str], field: str) -> None:
    """Raise InvalidInput for the first pattern that does not stay below /dev."""
    if len(patterns) > _PATTERNS_MOST:
        raise InvalidInput(field, f"must be at most {_PATTERNS_MOST} patterns", len(patterns))
    for number, pattern in enumerate(patterns):
        parts = pattern.split("/")
        if not all(parts) or ".." in parts or "\0" in pattern:
            rule = 'must be a file below /dev such as "fuse" or "net/tun", with * and ? for what varies'
            raise InvalidInput(f"{field}[{number}]", rule, pattern)


class DevicePlaces(Struct, frozen=True, kw_only=True):
    """Where the files are, and where on the PCI bus the node's devices."""

    addresses: tuple[DeviceAddress, ...] = ()
    dev_root: str = "/dev"
    sys_root: str = "/sys"
    proc_root: str = "/proc"


_HERE: Final = DevicePlaces()


def device_knobs(
    policy: ProcessPolicy,
    has: Collection[Knob],
    placement: Placement,
    path: str,
    addresses: tuple[DeviceAddress, ...],
) -> tuple[KnobWrite, ...]:
    """The knob of a batch replica's rules of devices, none where the kernel or the policy has none, or no fence may be."""
    if Knob.DEVICES not in has or policy.devices == "all":
        return ()
    places = DevicePlaces(addresses=addresses, sys_root=policy.sys_root, proc_root=policy.proc_root)
    rules = device_rules(placement, policy.device_files, places)
    return () if rules is None else (KnobWrite(path=path, knob=Knob.DEVICES, value="\n".join(rules)),)


def why_unfenced(policy: ProcessPolicy, placement: Placement, lacking: str) -> str:
    """Why a batch replica that was given devices can open others, too; "" where it cannot, or the operator wants it so.

    `lacking` is why no group can be given rules of devices, "" where they can.
    """
    if policy.devices == "all" or not placement.devices:
        return ""
    unknown = sorted({share.kind for share in placement.devices} - _OF_KIND.keys())
    return lacking or (f"nobody knows the files of devices of the kind {', '.join(unknown)}" if unknown else "")


def device_rules(placement: Placement, patterns: Sequence[str], places: DevicePlaces = _HERE) -> tuple[str, ...] | None:
    """The rules of a replica, each once: everybody's, the operator's `patterns`, and the files of the devices that it was given.

    A device whose place is not known, or of a kind whose drivers do not tell which file is whose, opens all files of its kind.
    None: it was given a kind whose files nobody knows, so that a fence would keep it from its own device.
    """
    if not {share.kind for share in placement.devices} <= _OF_KIND.keys():
        return None
    found = {rule for pattern in patterns for rule in _rules_of(places.dev_root, pattern)}
    for share in placement.devices:
        own = _own_rules(share, places)
        others = _OF_KIND[share.kind] if own is None else _NEEDED_WITH[share.kind]
        found.update(own or (), *(_rules_of(places.dev_root, pattern) for pattern in others))
    return (*EVERYBODYS, *sorted(found - set(EVERYBODYS)))


def _own_rules(share: DeviceShare, places: DevicePlaces) -> list[str] | None:
    """The rules of the files of this device alone; None where nobody says which these are."""
    address = next(
        (each.address for each in places.addresses if (each.kind, each.device) == (share.kind, share.device)), ""
    )
    if share.kind not in _OWN or not _ADDRESS.fullmatch(address):
        return None
    directory = os.path.join(places.sys_root, "bus/pci/devices", address)
    if not os.path.isdir(directory):
        return None
    texts = (_text(directory, path) for pattern in _OWN[share.kind] for path in glob.glob(pattern, root_dir=directory))
    numbers = (_NUMBERS.fullmatch(text.strip()) for text in texts)
    rules = [f"c {int(match[1])}:{int(match[2])} rwm" for match in numbers if match is not None]
    return rules + (_nvidia_rules(address, places) if share.kind == "gpu" else [])


def _nvidia_rules(address: str, places: DevicePlaces) -> list[str]:
    """The file of NVIDIA's GPU at that address, and those of the instances that it is divided into; none for one of others."""
    driver = os.path.join(places.proc_root, "driver/nvidia")
    minor = _MINOR.search(_text(driver, f"gpus/{address}/information"))
    if minor is None:
        return []
    rules = [f"c {_NVIDIA_MAJOR}:{int(minor[1])} rwm"]
    for pattern in ("mig/gi*/access", "mig/gi*/ci*/access"):
        for path in glob.glob(f"capabilities/gpu{int(minor[1])}/{pattern}", root_dir=driver):
            match = _CAP_MINOR.search(_text(driver, path))
            if match is not None:
                rules += _rules_of(places.dev_root, f"nvidia-caps/nvidia-cap{int(match[1])}")
    return rules


def _text(directory: str, path: str) -> str:
    try:
        with open(os.path.join(directory, path), encoding="ascii", errors="replace") as file:
            return file.read(4_096)
    except OSError:
        return ""


def _rules_of(dev_root: str, pattern: str) -> list[str]:
    rules = []
    for path in glob.glob(pattern, root_dir=dev_root):
        try:
            found = os.stat(os.path.join(dev_root, path))
        except OSError:
            continue
        kind = "c" if stat.S_ISCHR(found.st_mode) else "b" if stat.S_ISBLK(found.st_mode) else ""
        if kind:
            rules.append(f"{kind} {os.major(found.st_rdev)}:{os.minor(found.st_rdev)} rwm")
    return rules
