"""The jobs service as a process."""

from collections.abc import Mapping, Sequence

from colo_common.runtime.bus_watch import tell_bus
from colo_common.runtime.holds import list_holds
from colo_common.runtime.process import ServiceProcess, run
from colo_jobs.core import JobsCore
from colo_jobs.settings import JobsSettings
from colo_jobs.shell import JobsShell, jobs_service

__all__ = ["build", "main"]


async def build(process: ServiceProcess, settings: JobsSettings) -> None:
    """Add the service to the process, which serves while it alone holds all jobs: the limits of a queue are over all of them."""
    leases = process.hold(settings.lease_ttl_ms)
    shell = JobsShell(process.store, process.clock, process.telemetry, process.replay)
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


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Run until SIGTERM and return the exit code."""
    return run("jobs", JobsSettings, build, argv, environ, is_sched_batch=True)
