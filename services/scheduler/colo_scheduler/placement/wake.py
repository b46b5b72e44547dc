"""Wakes the parked request classes that some node may hold now, because nodes can hold more than before."""

from colo_scheduler.cluster.cluster import Cluster
from colo_scheduler.cluster.pool import PoolName, pool_of
from colo_scheduler.numa.zones import IntArray
from colo_scheduler.requests.queue import Parked, RequestQueue
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["wake_by_capacity"]


def wake_by_capacity(queue: RequestQueue, cluster: Cluster) -> None:
    """Wake the parked classes that might fit on a node that has grown since the last call."""
    if not cluster.grown:
        return
    # Mostly no class waits, and then no node is read.
    free: dict[PoolName, tuple[IntArray, IntArray]] = {}

    def might_fit(request: RequestClass, parked: Parked) -> bool:
        if parked.is_unresolvable:
            return request.is_admitted and parked.capacity_changes != cluster.capacity_changes
        if not free:
            free.update(cluster.grown_free())
        free_cpu, free_memory = free[pool_of(request.band)]
        return bool(((free_cpu >= request.cpu_mcpu) & (free_memory >= request.memory_bytes)).any())

    queue.wake_where(might_fit)
    cluster.forget_grown()
