"""A process of colo from its first line to its exit code: settings, logs, connections, HTTP, services, signals."""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog
from msgspec import Struct
from prometheus_client import ProcessCollector

from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.clock import SystemClock
from colo_common.adapters.clock_pace import ClockPace
from colo_common.model.invalid import InvalidInput
from colo_common.ports import (
    AuditLog,
    Bus,
    Clock,
    DeadLetters,
    Fenced,
    FencedStore,
    PortError,
    Refused,
    Replay,
    Store,
    Survey,
    Unavailable,
)
from colo_common.runtime import logs
from colo_common.runtime.access import check_reach, nats_access_of, redis_access_of, redis_replicas_of, stream_wish_of
from colo_common.runtime.build import build_version
from colo_common.runtime.bus_watch import BusWatch
from colo_common.runtime.lease_keeper import HeldTerm, LeaseKeeper
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.partition_services import MakePartitionService, PartitionServices
from colo_common.runtime.service import Service
from colo_common.runtime.settings import Common, common_of, keys_of, load
from colo_common.runtime.shares import ServiceShares
from colo_common.runtime.telemetry import Exporter, Telemetry
from colo_common.runtime.term import HeldStore, ServiceTerm

if TYPE_CHECKING:
    import ssl

    import redis.asyncio
    from aiohttp import web

__all__ = ["ServiceProcess", "run"]

Settings = TypeVar("Settings", bound=Struct)

_CONNECT_S: Final = 5.0
_LAG_EVERY_S: Final = 0.5
_CLOSE_S: Final = 3.0
# gc.set_threshold: new containers before a young collection, and collections of a generation before one of the next older. The
# middle generation is collected a hundred thousand containers at a time, and everything waits for that.
_COLLECT_AFTER: Final = (10_000, 10, 1_000)


class ServiceProcess:
    """What the services of one process share: bus, clock, store, metrics, telemetry. Built before them, closed after them."""

    def __init__(
        self, name: str, common: Common, *, bus: NatsBus, clock: Clock, metrics: Metrics, telemetry: Telemetry
    ) -> None:
        self.name = name
        self.common = common
        self.bus: Bus = bus
        self._survey = bus
        self.dead_letters: DeadLetters = bus.dead_letters
        self.audit: AuditLog = bus.audit
        self.replay: Replay = bus.replay
        self.clock = clock
        self.metrics = metrics
        self.telemetry = telemetry
        self.stop = asyncio.Event()
        self.is_leaving = False
        self.services: list[Service | PartitionServices] = []
        #: A service with HTTP pages of its own sets this in its `build`; the health pages are added to it.
        self.app: web.Application | None = None
        #: The context of its TLS, likewise; None serves plain HTTP.
        self.tls: ssl.SSLContext | None = None
        #: Where the health pages and the metrics are served in plain HTTP as well; 0: nowhere.
        self.health_port = 0
        self._background: list[Coroutine[Any, Any, None]] = []
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._redis: redis.asyncio.Redis | None = None
        self._store: Store | None = None
        self._stored: FencedStore | None = None
        self._nats = bus
        self._leases: LeaseKeeper | None = None
        self._row_kinds: frozenset[str] = frozenset()
        self.term: ServiceTerm | None = None
        self.shares: ServiceShares | None = None

    @property
    def survey(self) -> Survey:
        """Questions to everybody on the bus."""
        return self._survey

    @property
    def redis(self) -> "redis.asyncio.Redis":
        """The client of the process, made at its first use. Raises InvalidInput for a bad address."""
        if self._redis is None:
            from colo_common.adapters.redis_client import redis_client

            self._redis = redis_client(redis_access_of(self.common), name=f"colo-{self.name}")
        return self._redis

    @property
    def min_replicas(self) -> int:
        """How many replicas of Redis must have a write before it counts. Raises InvalidInput for a bad address."""
        return redis_replicas_of(self.common)

    @property
    def store(self) -> Store:
        """The store of the process, made at its first use."""
        if self._store is None:
            store = self._unfenced()
            self._store = store if self._leases is None else HeldStore(store, self.name, self._leases, self._row_kinds)
        return self._store

    def store_under(self, term: HeldTerm) -> Store:
        """The store, whose writes name the fences of this term."""
        return HeldStore(self._unfenced(), self.name, term)

    def _unfenced(self) -> FencedStore:
        if self._stored is None:
            from colo_common.adapters.store_redis import RedisStore

            store = RedisStore(self.redis, min_replicas=self.min_replicas, must_append=self.common.redis_must_append)
            appends = self.metrics.gauge(
                "colo_redis_appends", "1: Redis has an append-only file; 0: it has none, or has not answered yet"
            )
            appends.set_function(lambda: float(bool(store.appends)))
            self._stored = store
            self._closers.append(store.close)
        return self._stored

    def hold(self, ttl_ms: int, partitions: int = 1, row_kinds: Collection[str] = ()) -> LeaseKeeper | None:
        """Serve only while this process alone holds the work of its service, and stand by while another one does.

        To be called first of all in `build`. `ttl_ms` is how long a lease lasts; with 0 this process is alone: None is returned.
        With more than one of the `partitions` all processes serve, and each holds its share of them: `share` tells the service.
        The rows of `row_kinds` belong to the partition of their id.
        """
        if not ttl_ms:
            return None
        keeper = self._leases = self._keeper(ttl_ms, partitions)
        if partitions > 1:
            self._row_kinds = frozenset(row_kinds)
            self.shares = ServiceShares(self.name, keeper, self.survey)
            return keeper
        self._nats.answers_alone = True
        self.term = ServiceTerm(self.name, keeper, self.bus, self.survey, self.clock)
        return keeper

    def host(
        self, ttl_ms: int, partitions: int, answers: Sequence[type[Struct]], make: MakePartitionService
    ) -> LeaseKeeper:
        """Run a service for each of the partitions that this process holds, beside other processes with their share.

        `answers` are the requests of each. What `make` makes writes to `store_under` its term.
        """
        keeper = self._keeper(ttl_ms, partitions)
        # Now, so that what it lacks is said at the start, whatever this process holds then.
        self._unfenced()
        self._nats.answers_alone = True
        self.services.append(
            PartitionServices(
                self.name,
                keeper,
                bus=self.bus,
                survey=self.survey,
                clock=self.clock,
                metrics=self.metrics,
                answers=answers,
                make=make,
            )
        )
        return keeper

    def _keeper(self, ttl_ms: int, partitions: int) -> LeaseKeeper:
        from colo_common.adapters.leases_redis import RedisLeases, lease_prefix

        leases = RedisLeases(self.redis, prefix=lease_prefix(self.name), min_replicas=self.min_replicas)
        self._closers.append(leases.close)
        return LeaseKeeper(leases, token_hex(6), partitions, ttl_ms, stays_when_away=True, bus=self.bus_watch())

    def bus_watch(self) -> BusWatch:
        """What tells the keeper of leases whether this process reaches the bus and can use its streams."""
        self._nats.watch_streams()
        return BusWatch(lambda: self._nats.present_connection)

    def share(self, service: Service) -> None:
        """Keep this process's share of the work of the service, if it is shared."""
        if self.shares is not None:
            self.background(self.shares.run(service))

    def leave(self) -> None:
        """Stop for good, also when the term ends at the same time."""
        self.is_leaving = True
        self.stop.set()

    def add(self, service: Service) -> None:
        """Run this service."""
        self.services.append(service)

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this coroutine while the services run; when it raises, the process ends with code 1."""
        self._background.append(work)

    def at_close(self, closer: Callable[[], Awaitable[None]]) -> None:
        """Call this closer after the services have ended; the last one added is called first."""
        self._closers.append(closer)

    async def problems(self) -> Mapping[str, str]:
        """Why the process is not ready: the problems of all its services."""
        if self.term is not None and not self.term.is_on:
            return {"nats": await self.bus.ready(), **self.term.problems()}
        found: dict[str, str] = {} if self.shares is None else dict(self.shares.problems())
        for service in self.services:
            for part, problem in (await service.problems()).items():
                found[part] = found.get(part) or problem
        return found or {"nats": await self.bus.ready()}

    async def serve(self) -> None:
        """Run everything until `stop` is set or something raises; then stop the rest, within 10 s, and raise it.

        A process that must `hold` its work stands by first, and raises Fenced when it lost it.
        """
        if self.term is None:
            try:
                await self._serve()
            finally:
                if self.shares is not None:
                    await self.shares.leave()
            return
        try:
            if await self.term.begin(self.stop):
                await self._serve()
        finally:
            await self.term.end()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        services = [loop.create_task(service.run(self.stop), name=service.name) for service in self.services]
        background = [loop.create_task(work) for work in self._background]
        background.append(loop.create_task(self.telemetry.run(self.bus, self.clock)))
        background.append(loop.create_task(_measure_lag(self.metrics)))
        if self._stored is not None:
            background.append(loop.create_task(_look_at(self._stored)))
        stopped = loop.create_task(self.stop.wait())
        lost = () if self.term is None or self.term.lost is None else (self.term.lost,)
        try:
            waiting: set[asyncio.Future[Any]] = {stopped, *services, *background, *lost}
            while not stopped.done():
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            await asyncio.gather(*services)
        finally:
            self.stop.set()
            await asyncio.gather(*services, return_exceptions=True)
            for task in (stopped, *background):
                task.cancel()
            await asyncio.gather(stopped, *background, return_exceptions=True)

    async def close(self) -> None:
        """Publish the last spans, then close all connections."""
        for work in self._background:
            # A process that refuses its settings never started this coroutine; closing one that has ended does nothing.
            work.close()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.bus.close)
            for closer in self._closers:
                stack.push_async_callback(closer)
            stack.callback(self.telemetry.close)
            stack.push_async_callback(self.telemetry.flush, self.bus, self.clock)


def run(
    name: str,
    settings: type[Settings],
    build: Callable[[ServiceProcess, Settings], Awaitable[None]],
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    is_sched_batch: bool = False,
) -> int:
    """Run a service process; its exit code: 0 after a signal, 2 for bad settings or servers that cannot serve, 1 after a crash.

    `build` makes the services from the process and the settings and adds them. `is_sched_batch`: run under SCHED_BATCH where the
    kernel has it, so that the process preempts no other when it wakes, neither an online service nor a server that it waits for.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if "--help" in words or "-h" in words:
        sys.stdout.write(_help(name, settings))
        return 0
    try:
        loaded = load(settings, name, words, os.environ if environ is None else environ)
        if is_sched_batch:
            _use_sched_batch()
        ports: list[int] = []
        while True:
            try:
                return asyncio.run(_main(name, loaded, build, ports))
            except Fenced:
                # Begin again from what is stored, with nothing of the old view.
                continue
    except (InvalidInput, Refused) as error:
        sys.stderr.write(f"colo {name}: {error}\n")
        return 2


def _use_sched_batch() -> None:
    """Let this process preempt no other when it wakes: many small preemptions cost more than they save."""
    if sys.platform == "linux":
        # Without the right to set a policy the process keeps the default one.
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _tune_gc() -> None:
    """Let the cyclic garbage collector run seldom, and never over the objects made at the start.

    The hot paths make many objects and no cycles. A full collection of a large state stops the process for as long as it takes.
    What was frozen before is of a life of the process that is over: it is in cycles, with all that was hung to it since.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


async def _main(
    name: str, settings: Settings, build: Callable[[ServiceProcess, Settings], Awaitable[None]], ports: list[int]
) -> int:
    """One life of the process. `ports` has the port of its pages, if it had one in a life before, and gets it."""
    common = common_of(settings)
    logs.configure(common.log_level, common.log_format, service=name)
    log = structlog.get_logger(source="process")
    check_reach(common)
    version = build_version()
    metrics = Metrics(version)
    # CPU time, memory and open files of this process, under the names that every dashboard knows.
    ProcessCollector(registry=metrics.registry)
    bus = NatsBus(nats_access_of(common), name=f"colo-{name}", version=version, wish=stream_wish_of(common))
    reached = metrics.gauge("colo_bus_connections", "how often NATS was reached since the start")
    reached.set_function(lambda: float(bus.connections))
    refused = metrics.counter(
        "colo_bus_refusals_total", "publishes and subscriptions for which NATS gave this process no right", ("right",)
    )
    for right in ("publish", "subscription"):
        refused.labels(right)
    bus.on_refused(lambda right: refused.labels(right).inc())
    telemetry = Telemetry(name, metrics=metrics, exporter=_exporter(common, name, version))
    pace = ClockPace(common.clock_pace_file) if common.clock_pace_file else None
    clock = SystemClock(common.clock_speed, common.clock_origin_ms, pace)
    process = ServiceProcess(name, common, bus=bus, clock=clock, metrics=metrics, telemetry=telemetry)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, process.leave)
    try:
        sockets: list[socket.socket] = []
        if common.http_port >= 0:
            # Agents that serve no HTTP do not pay for importing it.
            from colo_common.runtime.http import listen, start_http

            # First of all: a process that cannot have its port changes nothing on the machine.
            sockets = await listen(common.http_host, ports[0] if ports else common.http_port)
            ports[:] = [sockets[0].getsockname()[1]]
            process.at_close(_closer(sockets))
        await build(process, settings)
        # Only now: a process that this machine refuses says that alone, whether or not a server is there.
        bus.start()
        if sockets:
            # Before the other one: who sees that this process listens finds its health as well.
            if process.health_port:
                plain = await listen(common.http_host, process.health_port, "health_port")
                process.at_close(_closer(plain))
                process.at_close((await start_http(plain, metrics, process.problems)).close)
            server = await start_http(sockets, metrics, process.problems, process.app, process.tls)
            process.at_close(server.close)
            log.info("http-listening", host=server.host, port=server.port)
        try:
            await bus.connected(_CONNECT_S)
        except Unavailable as error:
            log.warning("nats-not-there-yet", error=str(error))
        _tune_gc()
        await process.serve()
    except Fenced:
        if not process.is_leaving:
            raise
    except (InvalidInput, Refused):
        raise
    except Exception as error:
        log.critical("process-crashed", error=f"{type(error).__name__}: {error}", exc_info=True)
        return 1
    finally:
        await _close(process, log)
    return 0


def _closer(sockets: Sequence[socket.socket]) -> Callable[[], Awaitable[None]]:
    async def close() -> None:
        for each in sockets:
            each.close()

    return close


async def _close(process: ServiceProcess, log: Any) -> None:
    try:
        async with asyncio.timeout(_CLOSE_S):
            await process.close()
    except (TimeoutError, PortError) as error:
        log.warning("close-unfinished", error=f"{type(error).__name__}: {error}")


def _exporter(common: Common, name: str, version: str) -> Exporter | None:
    if not common.otlp_endpoint:
        return None
    from colo_common.runtime.otlp import OtlpExporter

    return OtlpExporter(common.otlp_endpoint, name, version)


async def _measure_lag(metrics: Metrics) -> None:
    """Observe how late the event loop runs a timer, which is how long its other callbacks take."""
    histogram = metrics.histogram("colo_loop_lag_seconds", "how late the event loop ran a timer")
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + _LAG_EVERY_S
        await asyncio.sleep(_LAG_EVERY_S)
        histogram.observe(max(0.0, loop.time() - due_s))


async def _look_at(store: Store) -> None:
    """Ask once how the store is, so that what it lacks is in the log although nobody asks whether this process is ready."""
    await store.ready()


def _help(name: str, settings: type[Struct]) -> str:
    lines = [
        f"colo {name}: every setting is --key, COLO_{name.upper().replace('-', '_')}_KEY, COLO_KEY or a key of --config FILE."
    ]
    for key, default in keys_of(settings).items():
        lines.append(f"  --{key.replace('_', '-'):<32} {default!r}")
    return "\n".join(lines) + "\n"
