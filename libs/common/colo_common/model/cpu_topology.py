"""The CPUs of one machine, indexed for choosing among them: which core, last-level cache, zone and socket each belongs to."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import Struct

from colo_common.model.cpuset import MAX_CPUS, CpuSet
from colo_common.model.invalid import InvalidInput

__all__ = ["CpuRow", "CpuTopology", "cpus_of_mask"]

_ABSENT: Final = -1
_ID_MAX: Final = (1 << 31) - 1


class CpuRow(NamedTuple):
    """One logical CPU. `core` and `l3` need only be unique within the socket; an unknown `l3` (None) means the socket's."""

    cpu: int
    core: int
    zone: int
    socket: int
    l3: int | None = None


class CpuTopology(Struct, frozen=True, kw_only=True):
    """A frozen index over the online CPUs of one machine. Equal rows in any order give an equal index.

    CPU sets are bit masks (bit i is CPU i, as in `CpuSet.mask`). Cores, caches, zones and sockets are named by *index*: their
    place in `cores`, `l3s`, `zone_ids` and `socket_ids`, which ascend; a core's order is (socket id, core id), so that core ids
    that repeat from socket to socket stay apart. Every core lies in one zone, one cache and one socket. A zone may span sockets and
    a socket may hold several zones. Zones without CPUs do not appear.
    """

    all_mask: int
    cores: tuple[tuple[int, int], ...]
    """(socket id, core id) of each core."""
    l3s: tuple[tuple[int, int], ...]
    """(socket id, cache id) of each last-level cache."""
    zone_ids: tuple[int, ...]
    socket_ids: tuple[int, ...]
    core_masks: tuple[int, ...]
    l3_masks: tuple[int, ...]
    zone_masks: tuple[int, ...]
    socket_masks: tuple[int, ...]
    core_of_cpu: tuple[int, ...]
    """By CPU id: the index of its core, -1 where no such CPU exists; so also the next two."""
    zone_of_cpu: tuple[int, ...]
    socket_of_cpu: tuple[int, ...]
    zone_of_core: tuple[int, ...]
    socket_of_core: tuple[int, ...]
    cores_of_zone: tuple[tuple[int, ...], ...]
    cores_of_socket: tuple[tuple[int, ...], ...]
    zones_of_socket: tuple[tuple[int, ...], ...]
    """The zones that have a CPU in the socket."""
    sockets_of_zone: tuple[tuple[int, ...], ...]

    @classmethod
    def from_rows(cls, rows: Iterable[CpuRow], field: str = "topology.cpus") -> "CpuTopology":
        """Index plain rows. Raises InvalidInput, naming field and rule, for no CPU, a CPU twice, an id that is missing, negative
        or too large, and a core or a cache that lies in two places.
        """
        known: dict[int, CpuRow] = {}
        for row in rows:
            _check_row(row, field)
            if row.cpu in known:
                raise InvalidInput(f"{field}[{row.cpu}]", "a CPU must be listed once", row.cpu)
            known[row.cpu] = row
        if not known:
            raise InvalidInput(field, "at least one CPU is needed", ())
        return _index([known[cpu] for cpu in sorted(known)], field)

    @property
    def cpu_count(self) -> int:
        """Online CPUs."""
        return self.all_mask.bit_count()

    @property
    def cpus_per_core(self) -> int:
        """CPUs over cores, rounded down (Koordinator cpu_topology.go, kubelet topology.go)."""
        return self.cpu_count // len(self.cores)

    @property
    def cpus_per_zone(self) -> int:
        """CPUs over zones that have CPUs, rounded down."""
        return self.cpu_count // len(self.zone_ids)

    @property
    def cpus_per_socket(self) -> int:
        """CPUs over sockets, rounded down."""
        return self.cpu_count // len(self.socket_ids)

    def cpus_of_zone(self, zone_id: int) -> CpuSet:
        """The CPUs of the zone of that id; empty when the machine has no such zone."""
        if zone_id not in self.zone_ids:
            return CpuSet()
        return CpuSet(self.zone_masks[self.zone_ids.index(zone_id)])


def cpus_of_mask(mask: int) -> list[int]:
    """The CPU ids of a mask, ascending."""
    cpus = []
    while mask:
        low = mask & -mask
        cpus.append(low.bit_length() - 1)
        mask ^= low
    return cpus


def _check_row(row: CpuRow, field: str) -> None:
    for name, value in zip(("cpu", "core", "zone", "socket"), row, strict=False):
        limit = MAX_CPUS - 1 if name == "cpu" else _ID_MAX
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
            raise InvalidInput(f"{field}[{row.cpu}].{name}", f"must be an id from 0 to {limit}", value)
    if row.l3 is not None and not 0 <= row.l3 <= _ID_MAX:
        raise InvalidInput(f"{field}[{row.cpu}].l3", f"must be an id from 0 to {_ID_MAX}", row.l3)


def _index(rows: list[CpuRow], field: str) -> CpuTopology:
    cores = tuple(sorted({(row.socket, row.core) for row in rows}))
    l3s = tuple(sorted({_l3(row) for row in rows}))
    zone_ids = tuple(sorted({row.zone for row in rows}))
    socket_ids = tuple(sorted({row.socket for row in rows}))
    core_at, l3_at = {key: at for at, key in enumerate(cores)}, {key: at for at, key in enumerate(l3s)}
    zone_at, socket_at = {key: at for at, key in enumerate(zone_ids)}, {key: at for at, key in enumerate(socket_ids)}
    size = rows[-1].cpu + 1
    of_cpu = {name: [_ABSENT] * size for name in ("core", "l3", "zone", "socket")}
    for row in rows:
        of_cpu["core"][row.cpu] = core_at[row.socket, row.core]
        of_cpu["l3"][row.cpu] = l3_at[_l3(row)]
        of_cpu["zone"][row.cpu] = zone_at[row.zone]
        of_cpu["socket"][row.cpu] = socket_at[row.socket]
    core_masks = _masks(of_cpu["core"], len(cores))
    firsts = [(mask & -mask).bit_length() - 1 for mask in core_masks]
    for core, mask in enumerate(core_masks):
        for cpu in cpus_of_mask(mask):
            for name, rule in (
                ("zone", "a core must lie in one zone"),
                ("l3", "a core must have one last-level cache"),
            ):
                if of_cpu[name][cpu] != of_cpu[name][firsts[core]]:
                    raise InvalidInput(f"{field}[{cpu}].{name}", rule, of_cpu[name][cpu])
    zone_of_core = tuple(of_cpu["zone"][cpu] for cpu in firsts)
    socket_of_core = tuple(of_cpu["socket"][cpu] for cpu in firsts)
    pairs = sorted(set(zip(zone_of_core, socket_of_core, strict=True)))
    return CpuTopology(
        all_mask=sum(core_masks),
        cores=cores,
        l3s=l3s,
        zone_ids=zone_ids,
        socket_ids=socket_ids,
        core_masks=core_masks,
        l3_masks=_masks(of_cpu["l3"], len(l3s)),
        zone_masks=_masks(of_cpu["zone"], len(zone_ids)),
        socket_masks=_masks(of_cpu["socket"], len(socket_ids)),
        core_of_cpu=tuple(of_cpu["core"]),
        zone_of_cpu=tuple(of_cpu["zone"]),
        socket_of_cpu=tuple(of_cpu["socket"]),
        zone_of_core=zone_of_core,
        socket_of_core=socket_of_core,
        cores_of_zone=_members(list(enumerate(zone_of_core)), len(zone_ids)),
        cores_of_socket=_members(list(enumerate(socket_of_core)), len(socket_ids)),
        zones_of_socket=_members(pairs, len(socket_ids)),
        sockets_of_zone=_members([(socket, zone) for zone, socket in pairs], len(zone_ids)),
    )


def _l3(row: CpuRow) -> tuple[int, int]:
    return (row.socket, row.socket if row.l3 is None else row.l3)


def _masks(index_of_cpu: list[int], count: int) -> tuple[int, ...]:
    masks = [0] * count
    for cpu, index in enumerate(index_of_cpu):
        if index != _ABSENT:
            masks[index] |= 1 << cpu
    return tuple(masks)


def _members(pairs: list[tuple[int, int]], count: int) -> tuple[tuple[int, ...], ...]:
    """Group (member, group) pairs by group, members in the order given."""
    groups: list[list[int]] = [[] for _ in range(count)]
    for member, group in pairs:
        groups[group].append(member)
    return tuple(tuple(group) for group in groups)
