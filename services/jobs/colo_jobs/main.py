"""The jobs service as a process."""

from collections.abc import Mapping, Sequence
from itertools import count

from colo_common.runtime.bus_watch import tell_bus
from colo_common.runtime.holds import list_holds
from colo_common.runtime.lease_keeper import HeldTerm
from colo_common.runtime.partition_services import PartitionService
from colo_common.runtime.process import ServiceProcess, run
from colo_jobs.core import JobsCore
from colo_jobs.settings import JobsSettings
from colo_jobs.shell import ANSWERS, JobsMetrics, JobsShell, jobs_service
from colo_jobs.transaction import Counters

__all__ = ["build", "main"]


async def build(process: ServiceProcess, settings: JobsSettings) -> None:
    """Add the service to the process, which serves while it alone holds all jobs, or a service for each partition that it holds."""
    if settings.partitions > 1:
        _host(process, settings)
        return
    leases = process.hold(settings.lease_ttl_ms)
    shell = JobsShell(process.store, process.clock, process.telemetry, process.replay, retention=settings.retention)
    service = jobs_service(
        JobsCore(settings.policy()),
        bus=process.bus,
        store=process.store,
        clock=process.clock,
        metrics=process.metrics,
        telemetry=process.telemetry,
        boot_id=leases.owner if leases is not None else "",
        leases=leases,
        shell=shell,
    )
    process.add(service)
    process.background(tell_bus(process.bus, service.inject))
    process.background(list_holds(process.bus, process.clock, service, due=shell.holds_due))


def _host(process: ServiceProcess, settings: JobsSettings) -> None:
    exported = JobsMetrics(Counters())
    process.metrics.register(exported)
    starts = count(1)

    def make(term: HeldTerm) -> PartitionService:
        share, store = term.share, process.store_under(term)
        core = JobsCore(settings.policy(), share, exported.counters)
        shell = JobsShell(store, process.clock, process.telemetry, process.replay, share, settings.retention)
        service = jobs_service(
            core,
            bus=process.bus,
            store=store,
            clock=process.clock,
            metrics=process.metrics,
            telemetry=process.telemetry,
            boot_id=f"{keeper.owner}-{share.partition}-{next(starts)}",
            term=term,
            shell=shell,
        )
        exported.cores.append(core)
        return PartitionService(
            service,
            (
                tell_bus(process.bus, service.inject),
                list_holds(process.bus, process.clock, service, due=shell.holds_due),
            ),
            lambda: exported.cores.remove(core),
        )

    keeper = process.host(settings.lease_ttl_ms, settings.partitions, ANSWERS, make)


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Run until SIGTERM and return the exit code."""
    return run("jobs", JobsSettings, build, argv, environ, is_sched_batch=True)
