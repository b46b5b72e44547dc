"""The devices of one node, the shares of each that attempts hold, and which devices are close to each other.

A device has 100 % of its cores (units, for a NIC or an FPGA) and, when it is known, an amount of memory. A share holds both parts;
the free part is never handed out twice. An unhealthy device has nothing to give, and neither has a device on a PCIe root that
another attempt holds exclusively for the kind.

Devices are close under the same PCIe switch, then in the same zone, then on the same node. The deepest scope that holds a request
wins; between equally deep ones the one that lies in more scopes that are used already, so that empty ones stay empty; for a share
of a GPU then the higher score (koordinator-sh/koordinator:deviceshare/allocator_gpu.go:357).
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from colo_common.model.constraints import DeviceExclusive
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.placement import Attempt, DeviceShare
from colo_common.model.topology import Device

__all__ = [
    "DeviceInventory",
    "FreeDevice",
    "ProximityScope",
    "WHOLE_PCT",
    "choose_in_scopes",
    "most_in_scope",
    "pcie_of",
]

WHOLE_PCT: Final = 100
DeviceKey = tuple[str, int]
"""A kind and the device's number among those of its kind."""


class FreeDevice(NamedTuple):
    """A healthy device and what is free of it.

    `is_root_used`: a share is held of it, or of another device of the kind on the same PCIe root.
    """

    device: Device
    core_pct: int
    memory_bytes: int
    is_root_used: bool = False

    @property
    def number(self) -> int:
        """The device's number among those of its kind."""
        return self.device.device

    @property
    def is_used(self) -> bool:
        """Whether a share of it is held."""
        return self.core_pct < WHOLE_PCT or self.memory_bytes < self.device.memory_bytes


class DeviceInventory:
    """Equal devices and holds, taken in any order, answer alike."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices: dict[DeviceKey, Device] = {}
        for device in devices:
            key = (device.kind, device.device)
            if key in self._devices:
                raise InvalidInput(f"devices[{_shown(key)}]", "must appear once", device.device)
            self._devices[key] = device
        self._holds: dict[Attempt, tuple[DeviceShare, ...]] = {}
        self._held: dict[DeviceKey, tuple[int, int]] = {}
        self._alone: dict[DeviceKey, int] = {}
        """How many shares of a device keep others away from its PCIe root."""
        self._limits: dict[str, dict[int, DeviceShare]] = {}
        self._free_devices: dict[str, tuple[FreeDevice, ...]] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of devices that the node has, healthy or not, sorted."""
        return tuple(sorted({kind for kind, _ in self._devices}))

    def held_by(self, attempt: Attempt) -> tuple[DeviceShare, ...]:
        """The shares that an attempt holds on this node."""
        return self._holds.get(attempt, ())

    def free_devices(self, kind: str) -> tuple[FreeDevice, ...]:
        """The healthy devices of a kind by number."""
        if kind not in self._free_devices:
            self._free_devices[kind] = self._free_devices_of(kind)
        return self._free_devices[kind]

    def limit(self, kind: str, shares: Sequence[DeviceShare]) -> None:
        """From now on offer nothing of a kind but these shares, as far as they are free."""
        self._limits[kind] = {share.device: share for share in shares if share.kind == kind}
        self._free_devices.clear()

    def has(self, kind: str, labels: Sequence[tuple[str, str]] = ()) -> bool:
        """Whether the node has a device of the kind with all these labels, healthy or not."""
        return any(key[0] == kind and set(labels) <= set(device.labels) for key, device in self._devices.items())

    def _free_devices_of(self, kind: str) -> tuple[FreeDevice, ...]:
        free_devices = [self._free_device(device) for key, device in sorted(self._devices.items()) if key[0] == kind]
        used = {free_device.device.pcie for free_device in free_devices if free_device.is_used}
        alone = {self._devices[key].pcie for key in self._alone if key[0] == kind and key in self._devices} - {""}
        found = []
        for free_device in free_devices:
            if not free_device.device.is_healthy:
                continue
            pcie = free_device.device.pcie
            if pcie in alone and (kind, free_device.number) not in self._alone:
                found.append(free_device._replace(core_pct=0, memory_bytes=0, is_root_used=True))
            elif free_device.is_used or (pcie and pcie in used):
                found.append(free_device._replace(is_root_used=True))
            else:
                found.append(free_device)
        return tuple(found) if kind not in self._limits else _limited(found, self._limits[kind])

    def _free_device(self, device: Device) -> FreeDevice:
        core_pct, memory_bytes = self._held.get((device.kind, device.device), (0, 0))
        return FreeDevice(
            device,
            core_pct=WHOLE_PCT - min(max(core_pct, 0), WHOLE_PCT),
            memory_bytes=device.memory_bytes - min(max(memory_bytes, 0), device.memory_bytes),
        )

    def hold(self, attempt: Attempt, shares: Sequence[DeviceShare]) -> None:
        """Give these shares to an attempt; a second call for the attempt replaces its shares.

        Raises InvalidInput, and changes nothing, for a device that the node lacks or that has less left.
        """
        before = self._holds.get(attempt, ())
        self._change(before, -1)
        problem = self._problem_of(shares)
        if problem is not None:
            self._change(before, 1)
            raise problem
        self._keep(attempt, shares)

    def load(self, attempt: Attempt, shares: Sequence[DeviceShare]) -> tuple[str, ...]:
        """Take the ledger's shares of an attempt as the truth. Returns a sentence for each share that contradicts the node.

        A share of a device that has too little counts in full, so that it is not handed out again.
        """
        self._change(self._holds.get(attempt, ()), -1)
        problem = self._problem_of(shares)
        self._keep(attempt, shares)
        return () if problem is None else (str(problem),)

    def release(self, attempt: Attempt) -> tuple[DeviceShare, ...]:
        """Release the shares of an attempt and return them."""
        shares = self._holds.pop(attempt, ())
        self._change(shares, -1)
        return shares

    def _keep(self, attempt: Attempt, shares: Sequence[DeviceShare]) -> None:
        self._holds.pop(attempt, None)
        if shares:
            self._holds[attempt] = tuple(shares)
            self._change(shares, 1)

    def _change(self, shares: Sequence[DeviceShare], sign: int) -> None:
        self._free_devices.clear()
        for share in shares:
            key = (share.kind, share.device)
            core_pct, memory_bytes = self._held.get(key, (0, 0))
            held = (core_pct + sign * share.core_pct, memory_bytes + sign * share.memory_bytes)
            if held == (0, 0):
                self._held.pop(key, None)
            else:
                self._held[key] = held
            if share.exclusive is DeviceExclusive.PCIE_LEVEL:
                alone = self._alone.get(key, 0) + sign
                if alone:
                    self._alone[key] = alone
                else:
                    self._alone.pop(key, None)

    def _problem_of(self, shares: Sequence[DeviceShare]) -> InvalidInput | None:
        seen: set[DeviceKey] = set()
        for share in shares:
            key = (share.kind, share.device)
            where = f"devices[{_shown(key)}]"
            device = self._devices.get(key)
            if device is None:
                return InvalidInput(where, "must be a device of the node", _shown(key))
            if key in seen:
                return InvalidInput(where, "must appear once", _shown(key))
            seen.add(key)
            if not 0 <= share.core_pct <= WHOLE_PCT or share.memory_bytes < 0:
                return InvalidInput(where, "must be a share from 0 to 100 %, of memory not below 0", share.core_pct)
            held_pct, held_bytes = self._held.get(key, (0, 0))
            if held_pct + share.core_pct > WHOLE_PCT:
                return InvalidInput(f"{where}.core_pct", f"must be at most {WHOLE_PCT - held_pct}", share.core_pct)
            if held_bytes + share.memory_bytes > device.memory_bytes:
                left = device.memory_bytes - held_bytes
                return InvalidInput(f"{where}.memory_bytes", f"must be at most {left}", share.memory_bytes)
        return None

    def check(self) -> None:
        """Raise InvariantBroken unless the used part of every device is the sum of its shares."""
        sums: dict[DeviceKey, tuple[int, int]] = {}
        for shares in self._holds.values():
            for share in shares:
                core_pct, memory_bytes = sums.get((share.kind, share.device), (0, 0))
                sums[share.kind, share.device] = (core_pct + share.core_pct, memory_bytes + share.memory_bytes)
        kept: Mapping[DeviceKey, tuple[int, int]] = self._held
        if {key: held for key, held in sums.items() if held != (0, 0)} != kept:
            raise InvariantBroken("what is held of devices differs from the holds", kept=kept, computed=sums)


def _limited(free_devices: Sequence[FreeDevice], limits: Mapping[int, DeviceShare]) -> tuple[FreeDevice, ...]:
    return tuple(
        free_device._replace(
            core_pct=min(free_device.core_pct, limits[free_device.number].core_pct),
            memory_bytes=min(free_device.memory_bytes, limits[free_device.number].memory_bytes),
        )
        for free_device in free_devices
        if free_device.number in limits
    )


def _shown(key: DeviceKey) -> str:
    return f"{key[0]}-{key[1]}"


class ProximityScope(IntEnum):
    """How close devices must be to each other; a larger one is closer."""

    NODE = 1
    ZONE = 2
    PCIE = 3


class _Place(NamedTuple):
    scope: ProximityScope
    free_devices: tuple[FreeDevice, ...]
    inner: tuple["_Place", ...]


class _Found(NamedTuple):
    depth: int
    used_scopes: int
    score: int
    free_devices: tuple[FreeDevice, ...]


def pcie_of(free_device: FreeDevice) -> str:
    """The switch of a device; one whose switch is not known stands alone."""
    return free_device.device.pcie or f"{free_device.device.kind} {free_device.number}"


def choose_in_scopes(
    free_devices: Sequence[FreeDevice],
    count: int,
    *,
    fits: Callable[[FreeDevice], bool],
    score: Callable[[FreeDevice], int] | None,
    required: ProximityScope = ProximityScope.NODE,
) -> tuple[FreeDevice, ...] | None:
    """`count` devices that fit, in the closest scope and none wider than `required`; None when there is none.

    In a scope the lowest numbers are taken; with `score`, which is for a share of a single device, the one of the highest score.
    """
    found = _search(_tree(free_devices), count, fits, score, required, 0, 0)
    return None if found is None else found.free_devices


def most_in_scope(free_devices: Sequence[FreeDevice], scope: ProximityScope) -> int:
    """How many of the devices lie together in the one place of that scope that has most of them."""
    if scope is ProximityScope.NODE:
        return len(free_devices)
    counts: dict[tuple[object, ...], int] = {}
    for free_device in free_devices:
        place = (free_device.device.zone, *((pcie_of(free_device),) if scope > ProximityScope.ZONE else ()))
        counts[place] = counts.get(place, 0) + 1
    return max(counts.values(), default=0)


def _tree(free_devices: Sequence[FreeDevice]) -> _Place:
    ordered = tuple(sorted(free_devices, key=lambda free_device: free_device.number))
    zones = []
    for zone in sorted({free_device.device.zone for free_device in ordered}):
        in_zone = tuple(free_device for free_device in ordered if free_device.device.zone == zone)
        switches = tuple(
            _Place(
                ProximityScope.PCIE, tuple(free_device for free_device in in_zone if pcie_of(free_device) == pcie), ()
            )
            for pcie in sorted({pcie_of(free_device) for free_device in in_zone})
        )
        zones.append(_Place(ProximityScope.ZONE, in_zone, switches))
    return _Place(ProximityScope.NODE, ordered, tuple(zones))


def _search(
    place: _Place,
    count: int,
    fits: Callable[[FreeDevice], bool],
    score: Callable[[FreeDevice], int] | None,
    required: ProximityScope,
    depth: int,
    used_scopes: int,
) -> _Found | None:
    if len(place.free_devices) < count:
        return None
    depth += 1
    used_scopes += any(free_device.is_used for free_device in place.free_devices)
    best: _Found | None = None
    for inner in place.inner:
        found = _search(inner, count, fits, score, required, depth, used_scopes)
        if found is not None and (best is None or found[:3] > best[:3]):
            best = found
    if best is not None or place.scope < required:
        return best
    fitting = [free_device for free_device in place.free_devices if fits(free_device)]
    if len(fitting) < count:
        return None
    if score is None:
        return _Found(depth, used_scopes, 0, tuple(fitting[:count]))
    scored = max(fitting, key=score)
    return _Found(depth, used_scopes, score(scored), (scored,))
