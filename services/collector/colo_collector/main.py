"""The collector's process: settings, machine, core and shell put together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from colo_collector.assembly import machine_of
from colo_collector.core import CollectorCore
from colo_collector.kernel_triggers import KernelTriggers, may_set_triggers
from colo_collector.kubelet_client import KubeletClient
from colo_collector.metric_scraper import MetricScraper
from colo_collector.settings import CollectorSettings
from colo_collector.shell import CollectorShell, collector_hears, collector_performer
from colo_common.events.kernel import ListKernelGroups
from colo_common.events.metric import PushMetric
from colo_common.runtime.process import ServiceProcess, run
from colo_common.runtime.service import Service

__all__ = ["build", "main"]


class _Collector(Service):
    """A service that is not ready while the machine cannot be read."""

    shell: CollectorShell | None = None

    async def problems(self) -> dict[str, str]:
        """The problems of every service, and under "machine" why there is no sample ("" when there is one)."""
        machine = "has not been read yet" if self.shell is None else self.shell.problem()
        return {**await super().problems(), "machine": machine}


async def build(process: ServiceProcess, settings: CollectorSettings) -> None:
    """Add the service of one node and the shell that feeds it."""
    machine = machine_of(settings, process.clock)
    rules = settings.metric_rules()
    scraper = MetricScraper(
        rules,
        machine.set_business,
        process.metrics,
        period_ms=settings.business_period_ms,
        timeout_ms=settings.business_timeout_ms,
    )
    core = CollectorCore(settings.node, settings.policy(), rules)
    service = _Collector(
        name="collector",
        core=core,
        bus=process.bus,
        clock=process.clock,
        subscriptions=collector_hears(settings.node),
        answers=(ListKernelGroups, PushMetric),
        answers_for={"node": settings.node},
        perform=collector_performer(machine, scraper),
        metrics=process.metrics,
        never_waits=True,
    )
    loop = asyncio.get_running_loop()
    triggers = KernelTriggers(
        settings.root,
        lambda names: loop.call_soon_threadsafe(shell.wake, names),
        always=settings.policy().triggers() if settings.pressure_triggers and may_set_triggers() else {},
    )
    shell = CollectorShell(
        machine,
        inject=service.inject,
        skipped=core.skipped,
        clock=process.clock,
        period_ms=settings.period_ms,
        metrics=process.metrics,
        triggers=triggers,
        kernel=machine,
    )
    service.shell = shell
    process.add(service)
    process.background(shell.run())
    process.background(shell.hear_kernel())
    access = settings.kubelet()
    if access.url:
        process.background(KubeletClient(access, machine.set_pods, process.metrics).run())
    if any(rule.url for rule in rules):
        process.background(scraper.run())
    process.at_close(lambda: asyncio.to_thread(machine.close))
    process.at_close(lambda: asyncio.to_thread(triggers.close))


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal comes. Returns the exit code."""
    return run("collector", CollectorSettings, build, argv)
