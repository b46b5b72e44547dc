"""Runs the lab: starts servers, services, simulated nodes and jobs, watches and ends them, and returns the verdict."""

import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec

from colo_cli.lab_feed import LabFeed
from colo_cli.lab_observe import LabObserver
from colo_cli.lab_options import LabOptions
from colo_cli.lab_pace import LabClock, is_late
from colo_cli.lab_processes import NO_PUBLIC_CA, LabFailed, LabProcesses, log_notices
from colo_cli.lab_progress import LabProgress
from colo_cli.lab_real import REAL_RESERVED_MCPU, RealNode
from colo_cli.lab_real_feed import RealFeed
from colo_cli.lab_screen import LabState, lab_picture, print_addresses
from colo_cli.lab_servers import LabServers
from colo_cli.lab_start import finished_before
from colo_cli.lab_verdict import LabFigures, LabVerdict, verdict_of
from colo_cli.lab_watch import LabCore, lab_hears
from colo_common.adapters.bus_nats import NatsBus
from colo_common.runtime import logs
from colo_common.runtime.service import Service
from colo_sim.job_source import GeneratedJobs, JobSource
from colo_sim.job_table import read_job_table
from colo_sim.machine_reading import MachineReport
from colo_sim.report import Verdict, verdict_from_ledgers

__all__ = ["run_lab"]

_CONTROL: Final = ("overcommit", "jobs", "scheduler", "evictor", "gateway")
_TURN_S: Final = 0.25
_SETTLE_S: Final = 5.0
_SETTLED_MS: Final = 2_000

Draw = Callable[[LabState], None]


async def run_lab(options: LabOptions, progress: LabProgress) -> LabVerdict:
    """The verdict after `duration_ms`, Ctrl-C or the end of the terminal; nothing is left behind.

    Raises InvalidInput for options with which no lab can run, LabFailed when a part of it fails.
    """
    started_s = time.monotonic()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(_directory(options))
        # The terminal is for the picture; the log of the lab itself is a file next to those of the services.
        logs.configure("info", "json", stack.enter_context((directory / "lab.log").open("a")), service="lab")
        source, notices = _job_source(options)
        progress.say("starts NATS and Redis")
        servers = LabServers(options, directory)
        if not await finished_before(stop, stack.enter_async_context(servers)):
            return _nothing_happened(options)
        lab = _Lab(options, directory, servers, started_s, stop)
        lab.notices += notices
        stack.push_async_callback(lab.close)
        progress.clear()
        with lab.screen() as draw:
            if not await finished_before(stop, lab.begin(draw)):
                return _nothing_happened(options)
            return await lab.run(source, draw)


class _Lab:
    def __init__(
        self, options: LabOptions, directory: Path, servers: LabServers, started_s: float, stop: asyncio.Event
    ) -> None:
        self._options = options
        self._started_s = started_s
        self._stop = stop
        self._servers = servers
        self._report = directory / "machines.json"
        self._pace = LabClock(directory, options.speed)
        self._clock = self._pace.clock
        self._begun_ms = self._pace.origin_ms
        self._machines: Verdict | None = None
        self._machines_read_ns = 0
        self.notices: list[str] = []
        self._processes = LabProcesses(directory, self._environment())
        self._bus = NatsBus(servers.nats_url, name="colo-lab", version="lab")
        self._real = RealNode(options, directory, self._processes) if options.real else None
        self._core = LabCore(self._real.see if self._real is not None else None)
        self._real_feed: RealFeed | None = None

    async def begin(self, draw: Draw) -> None:
        """Connect to the bus, start the services, and wait until they are ready; draw what is waited for."""
        drawing = asyncio.create_task(self._draw_start(draw))
        try:
            self._bus.start()
            await self._bus.connected(10.0)
            await self._start_services()
        finally:
            drawing.cancel()
        self._pace.begin()
        self._begun_ms = self._clock.now_ms()
        if self._options.json or not sys.stderr.isatty():
            print_addresses(self._state(0.0), sys.stderr, is_json=self._options.json)

    async def _draw_start(self, draw: Draw) -> None:
        while True:
            wall_s = time.monotonic() - self._started_s
            draw(msgspec.structs.replace(self._state(wall_s), starting=self._processes.not_ready or ("the bus",)))
            await asyncio.sleep(_TURN_S)

    async def run(self, source: JobSource, draw: Draw) -> LabVerdict:
        """Feed, watch and draw until the end; returns the verdict."""
        options = self._options
        feed = LabFeed(
            self._bus,
            self._clock,
            self._core.seen,
            source,
            nodes=options.nodes,
            load_pct=options.load_pct,
            avoids_devices=0 < options.device_nodes < options.nodes and options.gpus + options.nics > 0,
        )
        service = Service(
            name="lab", core=self._core, bus=self._bus, clock=self._clock, subscriptions=lab_hears(), discoverable=False
        )
        ended = asyncio.Event()
        watching = asyncio.create_task(service.run(ended))
        feeds = [asyncio.create_task(feed.run())]
        if self._real is not None and self._real.runs:
            self._real_feed = RealFeed(self._bus, self._clock, self._core.seen, self._real)
            feeds.append(asyncio.create_task(self._real_feed.run()))
        begun_s = time.monotonic()
        try:
            await self._watch(begun_s, (watching, *feeds), draw)
            figures = self._figures(feed, time.monotonic() - begun_s)
            await self._settle()
        finally:
            for feeding in feeds:
                feeding.cancel()
            await asyncio.gather(*feeds, return_exceptions=True)
        # The machines write their last account when they end; messages that are under way are still received.
        await self._processes.stop()
        ended.set()
        await asyncio.gather(watching, return_exceptions=True)
        real = msgspec.UNSET if self._real is None else self._real.account()
        return verdict_of(figures, self._core.seen, self._read_report(), real)

    async def close(self) -> None:
        await self._processes.stop()
        if self._real is not None:
            await self._real.close()
        await self._bus.close()

    def _environment(self) -> dict[str, str]:
        options = self._options
        period_ms = options.sample_period_ms
        found = {
            "COLO_NATS_URL": self._servers.nats_url,
            "COLO_REDIS_URL": self._servers.redis_url,
            "COLO_CLOCK_SPEED": str(options.speed),
            "COLO_CLOCK_ORIGIN_MS": str(self._pace.origin_ms),
            "COLO_CLOCK_PACE_FILE": str(self._pace.path),
            "COLO_LOG_LEVEL": "info",
            "COLO_OTLP_ENDPOINT": options.otlp_endpoint,
            "COLO_OVERCOMMIT_LEASE_MS": str(options.lease_ms),
            "COLO_OVERCOMMIT_STALE_AFTER_MS": str(5 * period_ms),
            "COLO_OVERCOMMIT_LOST_AFTER_MS": str(40 * period_ms),
            "COLO_OVERCOMMIT_REFRESH_MS": str(max(60_000, 8 * period_ms)),
            "COLO_SIM_REFLEX_LEASE_DEFAULT_MS": str(options.lease_ms),
            "COLO_EVICTOR_POLICY_GAP_MS": str(max(10_000, 4 * period_ms)),
        }
        if not (options.nats_url or options.redis_url or options.otlp_endpoint.startswith("https:")):
            found |= NO_PUBLIC_CA
        if options.real:
            found["COLO_OVERCOMMIT_NODE_RESERVED_CPU_MCPU"] = str(REAL_RESERVED_MCPU)
        return {key: value for key, value in found.items() if value}

    async def _start_services(self) -> None:
        options = self._options
        for name in _CONTROL:
            own = {"COLO_GATEWAY_HTTP_PORT": str(self._servers.gateway_port)} if name == "gateway" else {}
            await self._processes.start(name, f"colo_{name}", own)
        machines = {
            "COLO_SIM_NODES": str(options.nodes),
            "COLO_SIM_SEED": str(options.seed),
            "COLO_SIM_TRACE": options.trace,
            "COLO_SIM_SAMPLE_MS": str(options.sample_period_ms),
            "COLO_SIM_REPORT": str(self._report),
            "COLO_SIM_GPUS_PER_ZONE": str(options.gpus),
            "COLO_SIM_NICS_PER_ZONE": str(options.nics),
            "COLO_SIM_PLAIN_FILL_PCT": str(min(options.load_pct, 100)),
            "COLO_SIM_DEVICE_NODES": str(options.device_nodes),
        }
        await self._processes.start("sim", "colo_sim", {key: value for key, value in machines.items() if value})
        simulated = list(self._processes.running)
        if self._real is not None:
            await self._real.start()
        await self._processes.wait_ready(simulated)
        if self._real is not None:
            await self._real.wait_ready()

    async def _watch(self, begun_s: float, tasks: tuple["asyncio.Task[None]", ...], draw: Draw) -> None:
        """Draw the picture and restart ended services until the time is over, the user stops the lab, or a task fails."""
        limit_s = None if self._options.duration_ms is None else self._options.duration_ms / 1000
        while not self._stop.is_set():
            wall_s = time.monotonic() - begun_s
            if limit_s is not None and wall_s >= limit_s:
                return
            for task in tasks:
                if task.done():
                    task.result()
            await self._processes.heal()
            if self._real is not None:
                self._real.observe()
            self._pace.adjust(self._late_periods())
            draw(self._state(wall_s))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TURN_S if limit_s is None else min(_TURN_S, max(limit_s - wall_s, 0.01))):
                    await self._stop.wait()

    def _late_periods(self) -> float:
        return self._core.seen.oldest_sample_ms(self._clock.now_ms()) / self._options.sample_period_ms

    async def _settle(self) -> None:
        """Hold the clock until late machines have lived what it claims, at most 5 s."""
        if not is_late(self._late_periods()):
            return
        self._pace.hold()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_S):
                while not self._has_settled():  # noqa: ASYNC110 - a file signals no event
                    await asyncio.sleep(_TURN_S)

    def _has_settled(self) -> bool:
        report = self._read_report()
        return all(ledger.node_ms + _SETTLED_MS >= report.claimed_ms for ledger in report.ledgers.values())

    def _state(self, wall_s: float) -> LabState:
        with contextlib.suppress(LabFailed, OSError):
            written_ns = self._report.stat().st_mtime_ns
            if written_ns != self._machines_read_ns:
                self._machines = verdict_from_ledgers(self._read_report().ledgers.values())
                self._machines_read_ns = written_ns
        return LabState(
            wall_s=wall_s,
            simulated_s=(self._clock.now_ms() - self._begun_ms) / 1000,
            speed=self._pace.speed,
            asked_speed=self._options.speed,
            api=self._servers.gateway_url,
            nats_url=self._servers.nats_url,
            machines=self._machines,
            notes=self._real.notes if self._real is not None else (),
        )

    @contextlib.contextmanager
    def screen(self) -> Iterator[Draw]:
        """Draws pictures on the terminal; nothing where there is none."""
        if self._options.json or not sys.stderr.isatty():
            yield lambda _state: None
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True)
        with Live(console=console, refresh_per_second=4, screen=False, vertical_overflow="crop") as live:

            def draw(state: LabState) -> None:
                # The line below the picture is the cursor's.
                live.update(lab_picture(self._core.seen, state, width=console.width, height=console.height - 1))

            yield draw

    def _figures(self, feed: LabFeed, duration_s: float) -> LabFigures:
        simulated_ms = self._clock.now_ms() - self._begun_ms
        first_us = self._core.seen.first_placement_us
        first_s = None
        if first_us is not None:
            wall_start_us = time.time_ns() // 1000 - int((time.monotonic() - self._started_s) * 1_000_000)
            first_s = round((first_us - wall_start_us) / 1_000_000, 2)
        own_s = time.process_time()
        children = self._processes.running
        return LabFigures(
            nodes=self._options.nodes + (1 if self._real is not None and self._real.runs else 0),
            speed=self._options.speed,
            duration_s=duration_s,
            speed_reached=simulated_ms / 1000 / duration_s if duration_s > 0 else 0.0,
            slowest_speed=self._pace.slowest,
            speed_at_end=self._pace.speed,
            submitted=feed.submitted + (self._real_feed.submitted if self._real_feed is not None else 0),
            first_placement_s=first_s,
            cpu_s={"lab": own_s, **self._servers.cpu_s(), **{name: child.cpu_s() for name, child in children.items()}},
            rss_bytes={**self._servers.rss_bytes(), **{name: child.rss_bytes() for name, child in children.items()}},
            errors=[
                *(f"{name} ended by itself and was started again" for name in self._processes.restarts),
                *feed.refused[:5],
                *(self._real_feed.refused[:5] if self._real_feed is not None else ()),
                *(f"placed twice: {key}" for key in self._core.seen.placed_twice[:5]),
            ],
            notices=[
                *self.notices,
                *log_notices(children.get("sim")),
                *feed.notices(),
                *(self._real.findings() if self._real is not None else ()),
            ],
        )

    def _read_report(self) -> MachineReport:
        try:
            return msgspec.json.decode(self._report.read_bytes(), type=MachineReport)
        except (OSError, msgspec.MsgspecError) as error:
            raise LabFailed(f"the machines' account {self._report} cannot be read: {error}") from error


def _job_source(options: LabOptions) -> tuple[JobSource, list[str]]:
    """The source of jobs, and notices about it. Raises InvalidInput for a table that cannot be read, before a server starts."""
    if not options.jobs:
        return GeneratedJobs(options.seed), []
    read = read_job_table(Path(options.jobs), max_cpu_mcpu=12_000, max_memory_bytes=32 << 30, speed_up=options.speed)
    return read.jobs, list(read.notices)


def _nothing_happened(options: LabOptions) -> LabVerdict:
    """The verdict of a lab that was stopped before it began."""
    figures = LabFigures(nodes=0, speed=options.speed, notices=("stopped before it began",))
    return verdict_of(figures, LabObserver(), MachineReport())


@contextlib.contextmanager
def _directory(options: LabOptions) -> Iterator[Path]:
    """The directory of the lab: that of `keep`, or a temporary one that is removed at the end."""
    if options.keep:
        path = Path(options.keep)
        path.mkdir(parents=True, exist_ok=True)
        yield path.resolve()
        return
    path = Path(tempfile.mkdtemp(prefix="colo-lab-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
