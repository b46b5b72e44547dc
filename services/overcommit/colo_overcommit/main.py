"""The overcommit service as a process."""

import sys
from functools import partial

from colo_common.runtime.bus_watch import tell_bus
from colo_common.runtime.holds import list_holds
from colo_common.runtime.process import ServiceProcess, run
from colo_overcommit.core import OvercommitCore
from colo_overcommit.fleet_metrics import FleetMetrics
from colo_overcommit.histories import ROW_KIND
from colo_overcommit.history_store import HistoryRows
from colo_overcommit.settings import OvercommitSettings
from colo_overcommit.shell import overcommit_service

__all__ = ["main"]


async def build(process: ServiceProcess, settings: OvercommitSettings) -> None:
    """Add the service, its reconciliation and its gauges to the process."""
    leases = process.hold(settings.lease_ttl_ms, settings.partitions, row_kinds=(ROW_KIND,))
    is_shared = settings.partitions > 1
    partitions = settings.partitions if is_shared else 0
    core = OvercommitCore(settings.policy(), settings.forget_node_ms, settings.guard(), partitions)
    # An instance that is alone needs no store, unless its own settings have something to remember.
    has_history = settings.history_ms > 0 and (leases is not None or core.policy.learns)
    histories = HistoryRows(process.store) if has_history else None
    service = overcommit_service(
        core,
        process.bus,
        process.clock,
        metrics=process.metrics,
        boot_id=leases.owner if leases is not None else "",
        more_problems=lambda: {"fleet": core.guard.problem()},
        leases=leases,
        has_risk=core.policy.risk.is_on,
        is_shared=is_shared,
        histories=histories,
    )
    if histories is not None:
        process.background(histories.keep(core, process.clock, settings.history_ms))
    process.add(service)
    process.share(service)
    process.background(tell_bus(process.bus, service.inject))
    process.background(list_holds(process.bus, process.clock, service))
    nodes = process.metrics.gauge("colo_overcommit_known_nodes", "nodes that have reported their topology")
    nodes.set_function(lambda: float(len(core.own_nodes())))
    promised = process.metrics.gauge(
        "colo_overcommit_batch_cpu_mcpu",
        "promised: the last published number, of all nodes; possible: what the newest sample of each would allow",
        ("what",),
    )
    promised.labels("promised").set_function(partial(_promised, core))
    promised.labels("possible").set_function(partial(_possible, core))
    process.metrics.register(FleetMetrics(core.own_nodes))
    promises = process.metrics.gauge(
        "colo_overcommit_day_promises",
        "promises of the last 24 hours that risk control judged, of all nodes, and those of them that were broken; 0 without it",
        ("resource", "what"),
    )
    for resource in ("cpu", "memory"):
        for what in ("judged", "broken"):
            promises.labels(resource, what).set_function(partial(_promises, core, resource, what))
    withheld = process.metrics.gauge(
        "colo_overcommit_withheld_losses_nodes", "nodes that fell silent with too many others to be declared lost"
    )
    withheld.set_function(lambda: float(len(core.guard.withheld)))
    dropped = process.metrics.gauge("colo_overcommit_inputs_dropped", "inputs that changed nothing", ("why",))
    for why in core.dropped.__struct_fields__:
        dropped.labels(why).set_function(partial(getattr, core.dropped, why))


def _promised(core: OvercommitCore) -> float:
    return float(
        sum(known.published.batch_cpu_mcpu for known in core.own_nodes().values() if known.published is not None)
    )


def _promises(core: OvercommitCore, resource: str, what: str) -> float:
    risks = (known.published.risk for known in core.own_nodes().values() if known.published is not None)
    return float(sum(getattr(getattr(risk, resource), what) for risk in risks if risk is not None))


def _possible(core: OvercommitCore) -> float:
    return float(sum(known.possible_mcpu for known in core.own_nodes().values()))


def main() -> int:
    """Run until SIGTERM and return the exit code."""
    return run("overcommit", OvercommitSettings, build, is_sched_batch=True)


if __name__ == "__main__":
    sys.exit(main())
