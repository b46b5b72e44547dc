"""The evictor as a process."""

import sys

from colo_common.runtime.bus_watch import tell_bus
from colo_common.runtime.holds import list_holds
from colo_common.runtime.process import ServiceProcess, run
from colo_evictor.core import EvictorCore
from colo_evictor.settings import EvictorSettings
from colo_evictor.shell import evictor_service
from colo_evictor.stored import ROW_KIND

__all__ = ["main"]


async def build(process: ServiceProcess, settings: EvictorSettings) -> None:
    """Add the service and its gauges to the process, which serves while it holds the cluster's evictions, or its share of them."""
    leases = process.hold(settings.lease_ttl_ms, settings.partitions, row_kinds=(ROW_KIND,))
    is_shared = settings.partitions > 1
    core = EvictorCore(
        settings.policy,
        settings.forget_node_ms,
        needs_holds=True,
        partitions=settings.partitions if is_shared else 0,
    )
    service = evictor_service(
        core,
        process.bus,
        process.store,
        process.clock,
        metrics=process.metrics,
        boot_id=leases.owner if leases is not None else "",
        more_problems=lambda: {"placements": core.problem()},
        leases=leases,
        is_shared=is_shared,
    )
    process.add(service)
    process.share(service)
    process.background(tell_bus(process.bus, service.inject))
    process.background(list_holds(process.bus, process.clock, service))
    refused = process.metrics.gauge(
        "colo_evictor_budget_refusals", "evictions that the cluster's budget refused since the last one it allowed"
    )
    refused.set_function(lambda: float(core.budget.refused))
    left_out = process.metrics.gauge("colo_evictor_facts_left_out", "facts about more nodes than are kept")
    left_out.set_function(lambda: float(core.too_many_nodes))


def main() -> int:
    """Run until SIGTERM and return the exit code."""
    return run("evictor", EvictorSettings, build)


if __name__ == "__main__":
    sys.exit(main())
