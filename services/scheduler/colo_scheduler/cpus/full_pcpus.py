"""FullPCPUs: whole physical cores, from one zone, else one socket, else as few sockets as possible."""

from colo_scheduler.cpus.binding import ExclusivePolicy
from colo_scheduler.cpus.stock import Stock
from colo_scheduler.cpus.topology import cpus_of_mask

__all__ = ["take_full_cores"]


def take_full_cores(stock: Stock) -> None:
    """Take as many of the needed CPUs as whole free cores give; what is left of `need` is less than a core, or has no full core.

    A need that is no multiple of a core takes a part of its last core when one zone or socket has room for all.
    """
    if _take_in_zone(stock) or _take_in_socket(stock):
        return
    _take_across_sockets(stock)


def _full_cores(stock: Stock, free: int, cores: tuple[int, ...]) -> list[int]:
    """The cores whose CPUs are all in `free`: the largest first, then those with the fewest holders, then by id."""
    masks = stock.topology.core_masks
    full = [core for core in cores if not masks[core] & ~free]
    if stock.refs or stock.topology.cpu_count != stock.topology.cpus_per_core * len(masks):
        full.sort(key=lambda core: (-masks[core].bit_count(), stock.core_refs(core), core))
    return full


def _cpus_of(stock: Stock, cores: list[int], limit: int) -> list[int]:
    cpus: list[int] = []
    for core in cores:
        if len(cpus) >= limit:
            break
        cpus += cpus_of_mask(stock.topology.core_masks[core])
    return cpus[:limit]


def _count(stock: Stock, cores: list[int]) -> int:
    masks = stock.topology.core_masks
    return sum(masks[core].bit_count() for core in cores)


def _take_in_zone(stock: Stock) -> bool:
    topology = stock.topology
    if stock.need > topology.cpus_per_zone:
        return False
    for free in stock.passes(ExclusivePolicy.NUMA_NODE_LEVEL):
        socket_free = [(free & mask).bit_count() for mask in topology.socket_masks]
        found: tuple[tuple[int, int, int], list[int]] | None = None
        for zone, members in enumerate(topology.cores_of_zone):
            cores = _full_cores(stock, free, members)
            count = _count(stock, cores)
            if count < stock.need:
                continue
            in_socket = socket_free[topology.socket_of_core[cores[0]]]
            key = (stock.sign * count, stock.sign * in_socket, zone)
            if found is None or key < found[0]:
                found = (key, cores)
        if found is not None:
            stock.take(_cpus_of(stock, found[1], stock.need))
            return True
    return False


def _take_in_socket(stock: Stock) -> bool:
    topology = stock.topology
    if stock.need > topology.cpus_per_socket:
        return False
    found: tuple[tuple[int, int], list[int]] | None = None
    for socket, members in enumerate(topology.cores_of_socket):
        cores = _full_cores(stock, stock.free, members)
        count = _count(stock, cores)
        key = (stock.sign * count, socket)
        if count >= stock.need and (found is None or key < found[0]):
            found = (key, cores)
    if found is None:
        return False
    stock.take(_cpus_of(stock, found[1], stock.need))
    return True


def _take_across_sockets(stock: Stock) -> None:
    """Whole sockets' full cores, the largest first whatever the strategy, while they fit; then core after core of the smallest."""
    topology = stock.topology
    by_socket = [_full_cores(stock, stock.free, members) for members in topology.cores_of_socket]
    left: list[tuple[int, int, list[int]]] = []
    for socket in sorted(range(len(by_socket)), key=lambda socket: (-_count(stock, by_socket[socket]), socket)):
        count = _count(stock, by_socket[socket])
        if count > stock.need:
            left.append((count, socket, by_socket[socket]))
            continue
        stock.take(_cpus_of(stock, by_socket[socket], count))
        if not stock.need:
            return
    for _, _, cores in sorted(left):
        for core in cores:
            cpus = cpus_of_mask(topology.core_masks[core])
            if len(cpus) > stock.need:
                continue
            stock.take(cpus)
