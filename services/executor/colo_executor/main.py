"""The executor's process: settings, runtime, cores and shell put together."""

import asyncio
import contextlib
import os
import resource
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_name import node_name
from colo_common.ports import Bus, Clock, SpanSink, Store
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.process import ServiceProcess, run
from colo_common.runtime.service import Service
from colo_common.runtime.settings import load
from colo_executor.cgroup_hierarchy import CgroupError, check_file_system, find_hierarchy
from colo_executor.core import Executor
from colo_executor.journal import JournalBusy
from colo_executor.not_restored import NotRestored
from colo_executor.process.machine import cpu_index, online_cpus
from colo_executor.process.observing import ObservingRuntime, WorkIsHere
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.watched import Watched
from colo_executor.runtime import Runtime
from colo_executor.settings import ExecutorSettings
from colo_executor.shell import (
    OBSERVE_CEILING,
    OBSERVE_DRIFT,
    OBSERVE_NODE,
    OBSERVE_UNMANAGED,
    ExecutorShell,
    no_span,
)
from colo_executor.subscriptions import executor_hears
from colo_executor.trials_file import TrialsFile

__all__ = ["NAME", "build", "executor_service", "main", "open_runtime", "restore"]

NAME = "executor"


def executor_service(
    node: str,
    runtime: Runtime,
    bus: Bus,
    clock: Clock,
    settings: ExecutorSettings,
    *,
    metrics: Metrics,
    span: SpanSink = no_span,
    seed: int | None = None,
    watched: Watched | None = None,
    trials: Store | None = None,
) -> tuple[Service, ExecutorShell]:
    """The service of one node and its shell. The caller must also run the shell's reflex, `run_teller` and `run_reconcile`.

    `trials`: where it notes which message ends it; None: nowhere, and a message that comes again too often is given up.
    """
    only_observes = settings.rules.only_observes
    core = Executor(node, settings.orders, colocation_mode=settings.rules.colocation_mode, only_observes=only_observes)
    shell = ExecutorShell(
        runtime,
        clock,
        policy=settings.reflex_policy(),
        period_ms=settings.period_ms,
        metrics=metrics,
        span=span,
        reconcile_ms=settings.reconcile_ms,
        observes=(*settings.observe, OBSERVE_NODE) if only_observes else settings.observe,
        beat=_nothing if watched is None else watched.beat,
        yields=core.suspension.is_held,
        paused=lambda: core.suspension.paused(core.active),
    )

    async def load() -> Sequence[Struct]:
        try:
            return await shell.load()
        except (CgroupError, OSError) as error:
            raise InvalidInput("process_cgroup_root", str(error), settings.process.cgroup_root) from error

    async def restore() -> Sequence[Struct]:
        if watched is not None:
            watched.start_no_more()
        return await shell.restore()

    service = Service(
        name=NAME,
        core=core,
        bus=bus,
        clock=clock,
        subscriptions=executor_hears(node),
        perform=shell.perform,
        load=load,
        leave=restore if settings.on_exit == "restore" else shell.leave,
        metrics=metrics,
        seed=seed,
        # An executor answers no requests, so service discovery need not list thousands of them.
        discoverable=False,
        # The lease and the reflex work without a control plane.
        never_waits=True,
        trials=trials,
    )
    metrics.gauge("colo_executor_replicas_count", "attempts on this node").set_function(lambda: float(len(core.active)))
    return service, shell


async def build(process: ServiceProcess, settings: ExecutorSettings) -> None:
    """Add the executor of this machine to a process. Raises InvalidInput when the machine cannot run it."""
    if settings.rules.only_observes:
        observing = open_observing(settings)
        process.at_close(observing.close)
        _add(process, settings, observing)
        return
    runtime = open_runtime(settings)
    process.at_close(runtime.close)
    for name, says, read in (
        ("colo_executor_stuck_replicas_count", "attempts that SIGKILL has not ended after ten seconds", runtime.stuck),
        ("colo_executor_journal_behind_count", "1 while the disk takes nothing of the journal", runtime.journal_behind),
    ):
        process.metrics.gauge(name, says).set_function(read)
    cookies = process.metrics.gauge(
        "colo_executor_core_cookies_count", "batch replicas that should have a core-scheduling cookie", ("cookie",)
    )
    cookies.labels("given").set_function(lambda: float(runtime.cookies()[0]))
    cookies.labels("missing").set_function(lambda: float(runtime.cookies()[1]))
    watched = None
    # A watchdog would write the ceiling that this rule leaves alone, and nobody would lift it.
    if settings.watchdog_ms and OBSERVE_CEILING not in settings.observe:
        floor_us = settings.floor_us(len(online_cpus(settings.process.sys_root)) * 1_000)
        watched = Watched(
            runtime.quota_path, floor_us, settings.watchdog_ms, runtime.frozen_path, runtime.take_watchdog
        )
        process.background(watched.look_after())
        process.at_close(watched.leave)
    _add(process, settings, runtime, watched, TrialsFile(Path(settings.process.state_dir) / "trials"))


def _add(
    process: ServiceProcess,
    settings: ExecutorSettings,
    runtime: Runtime,
    watched: Watched | None = None,
    trials: Store | None = None,
) -> None:
    service, shell = executor_service(
        settings.node or node_name(socket.gethostname()),
        runtime,
        process.bus,
        process.clock,
        settings,
        metrics=process.metrics,
        span=process.telemetry.span,
        watched=watched,
        trials=trials,
    )
    process.add(service)
    process.at_close(partial(_say_not_restored, shell, settings))
    process.background(shell.run_reflex())
    process.background(shell.run_teller(service.inject))
    process.background(shell.run_reconcile(service.inject))


async def _say_not_restored(shell: ExecutorShell, settings: ExecutorSettings) -> None:
    """Raise InvalidInput, which ends the process with one sentence and exit code 2, where its end did not put the machine back."""
    if shell.not_restored:
        raise _not_restored(shell.not_restored, settings)


def _not_restored(why: str, settings: ExecutorSettings) -> InvalidInput:
    return InvalidInput("process_cgroup_root", f"is not as it was before colo: {why}", settings.process.cgroup_root)


def _nothing() -> None:
    """Beat for no watchdog."""


def open_runtime(settings: ExecutorSettings) -> ProcessRuntime:
    """The process runtime. Raises InvalidInput that names the setting when the machine refuses it or another executor runs."""
    try:
        return ProcessRuntime(
            settings.process,
            admits_online=settings.online,
            withheld=_withheld(settings),
            is_free=OBSERVE_CEILING in settings.observe,
            leaves_others=OBSERVE_DRIFT in settings.observe,
            leaves_unmanaged=OBSERVE_UNMANAGED in settings.observe,
            reads_memory=settings.bandwidth.zone_bytes_per_s > 0,
        )
    except JournalBusy as error:
        raise InvalidInput("process_state_dir", str(error), settings.process.state_dir) from error
    except CgroupError as error:
        raise InvalidInput("process_cgroup_root", str(error), settings.process.cgroup_root) from error
    except OSError as error:
        raise InvalidInput("process_state_dir", f"must be writable: {error}", settings.process.state_dir) from error


def open_observing(settings: ExecutorSettings) -> ObservingRuntime:
    """The runtime of a node that only observes. Raises InvalidInput when work of colo runs there, or an executor."""
    try:
        return ObservingRuntime(
            settings.process,
            admits_online=settings.online,
            withheld=_withheld(settings),
            reads_memory=settings.bandwidth.zone_bytes_per_s > 0,
        )
    except WorkIsHere as error:
        raise InvalidInput("rules_enforcement", str(error), settings.rules.enforcement) from error
    except (CgroupError, OSError) as error:
        raise InvalidInput("process_cgroup_root", str(error), settings.process.cgroup_root) from error


def _withheld(settings: ExecutorSettings) -> CpuSet:
    """The CPUs that no placed work may use, once each place of control groups is known to be one."""
    hierarchy = find_hierarchy(settings.process.cgroup_root)
    for mount in (*hierarchy.mounts.values(), *hierarchy.others):
        check_file_system(mount, settings.process.proc_root)
    return settings.withheld_cpus(cpu_index(settings.process.sys_root))


async def restore(settings: ExecutorSettings) -> None:
    """End the replicas of an earlier executor and put the kernel back. Raises InvalidInput for what could not be put back."""
    # Nothing is started, so that nothing is asked for what a start needs.
    hygiene = replace(settings.process.hygiene, namespaces="no", core_scheduling="no")
    runtime = open_runtime(replace(settings, process=replace(settings.process, hygiene=hygiene)))
    try:
        await runtime.restore()
    except NotRestored as error:
        raise _not_restored(str(error), settings) from error
    finally:
        await runtime.close()


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Run until a signal comes. With `restore` as first word, put the machine back instead. Returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    _may_open_more_files()
    if words[:1] != ["restore"]:
        return run(NAME, ExecutorSettings, build, words, environ)
    try:
        asyncio.run(restore(load(ExecutorSettings, NAME, words[1:], os.environ if environ is None else environ)))
    except InvalidInput as error:
        sys.stderr.write(f"colo {NAME} restore: {error}\n")
        return 2
    return 0


def _may_open_more_files() -> None:
    """Let this process have as many files open as it may at most: it keeps one for each replica, and the usual limit is 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    sys.exit(main())
