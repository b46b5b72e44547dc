"""The whole of colo as processes on this machine, each behind proxies of its own, and everything that can be done to them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import aiohttp

from colo_cli.lab_processes import LabProcesses
from colo_cli.server_process import ServerProcess
from colo_common.model.invalid import InvalidInput
from tests.chaos.proxy import Proxy
from tests.chaos.shape import LEASED, Instance
from tests.chaos.stepped import StepFile
from tests.chaos.stores import Stores
from tests.support.ports import free_ports
from tests.support.servers import made_streams

__all__ = ["ROOT", "ChaosCluster"]

ROOT: Final = Path(__file__).resolve().parents[2]
_ASK: Final = aiohttp.ClientTimeout(total=2.0)
_RESTART_S: Final = 0.5
_STARTS_MOST: Final = 20
_LOOK_S: Final = 0.25
_READY_LIMIT_S: Final = 60.0
# Of Redis 8.2: a short write to a file that replaced another leaves a hole, at which the next start ends.
_UNREADABLE: Final = "Bad file format"


class ChaosCluster:
    """Servers, services and nodes. What ends by itself is started again after half a second, as a supervisor does, and noted."""

    def __init__(self, directory: Path, instances: Sequence[Instance], stores: Stores, old: Path | None) -> None:
        self.directory = directory
        self.stores = stores
        self.instances = {instance.name: instance for instance in instances}
        self.old = old
        self.proxies: dict[tuple[str, str], Proxy] = {}
        self.clocks: dict[str, StepFile] = {}
        # A process that begins anew by itself listens on the same port again.
        self._ports = dict(zip((one.name for one in instances), free_ports(len(instances)), strict=True))
        self.ended: list[str] = []
        #: The servers that had to begin without their files.
        self.remade: list[str] = []
        self._server_starts = 0
        self.down: set[str] = set()
        self._olds: set[str] = set()
        self._processes = LabProcesses(directory, {"COLO_LOG_LEVEL": "info", "COLO_TRACE_RATIO": "0.02"})
        self._http: aiohttp.ClientSession | None = None
        self._healing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ChaosCluster:
        self._http = aiohttp.ClientSession(timeout=_ASK)
        await self.stores.start()
        for name in self.instances:
            for server in (one for servers in self.stores.proxied.values() for one in servers):
                proxy = self.proxies[name, server] = Proxy("127.0.0.1", self.stores.port_of(server))
                await proxy.start()
            self.clocks[name] = StepFile(self.directory / f"{name}.clock")
            await self.start(name)
        self._healing = asyncio.create_task(self._heal())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._healing is not None:
            self._healing.cancel()
            await asyncio.gather(self._healing, return_exceptions=True)
        for name in self.instances:
            self.resume(name)
        await self._processes.stop()
        for proxy in self.proxies.values():
            await proxy.close()
        await self.stores.stop()
        for disk in self.stores.disks.values():
            disk.close()
        if self._http is not None:
            await self._http.close()

    # ------------------------------------------------------------ processes

    async def start(self, name: str, *, is_old: bool = False) -> None:
        """Start an instance, of the older version when told so."""
        instance = self.instances[name]
        ports = {server: proxy.port for (one, server), proxy in self.proxies.items() if one == name}
        environment = {
            **instance.environment,
            **self.stores.environment,
            "COLO_NATS_URL": self.stores.url_of("nats", ports),
            "COLO_REDIS_URL": self.stores.url_of("redis", ports),
            "COLO_HTTP_PORT": str(self._ports[name]),
            "CHAOS_MODULE": instance.module,
            "CHAOS_CLOCK": str(self.directory / f"{name}.clock"),
        }
        tree = self.old if is_old and self.old is not None else ROOT
        environment["PYTHONPATH"] = os.pathsep.join(map(str, (*_sources(tree), ROOT)))
        (self._olds.add if is_old else self._olds.discard)(name)
        await self._processes.start(name, "tests.chaos.stepped", environment)
        self.down.discard(name)

    async def kill(self, name: str) -> None:
        """End an instance with SIGKILL; it stays away until `start`."""
        self.down.add(name)
        self.signal(name, signal.SIGKILL)
        await self._processes.running[name].process.wait()

    async def stop(self, name: str) -> None:
        """End an instance with SIGTERM, as a rolling update does; it stays away until `start`."""
        self.down.add(name)
        await self._processes.stop([name])

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self.signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self.signal(name, signal.SIGCONT)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to an instance or a server, if it runs."""
        if name in self.stores.servers:
            with suppress(RuntimeError, ProcessLookupError):
                os.kill(self.stores.servers[name].pid, number)
            return
        child = self._processes.running.get(name)
        if child is not None and child.process.returncode is None:
            child.process.send_signal(number)

    def pids(self) -> dict[str, int]:
        """The process of every instance that runs."""
        running = self._processes.running
        return {name: running[name].process.pid for name in self.instances if name in running}

    def rss_bytes(self) -> dict[str, int]:
        """Resident memory of every process and server."""
        found = {name: child.rss_bytes() for name, child in self._processes.running.items()}
        return found | {name: _rss_bytes(server.pid) for name, server in self.stores.servers.items()}

    async def kill_server(self, name: str, *, away_s: float, empty: bool = False) -> None:
        """End a server with SIGKILL and start it again on the same port, on its store or on an empty one."""
        server = self.stores.servers[name]
        self.down.add(name)
        # It may have ended by itself, as a replica of Redis does that cannot write.
        with suppress(RuntimeError, ProcessLookupError):
            os.kill(server.pid, signal.SIGKILL)
        await asyncio.sleep(away_s)
        server.stop_blocking(limit_ms=0)
        if empty:
            self.stores.disks[name].empty()
        await self._start_server(name, server)
        self.down.discard(name)
        await self.stores.wait_healthy()
        if empty and name == "nats":
            # What an operator does who puts an empty store in the place of a lost one.
            await made_streams(self.stores.nats_url)

    def proxies_between(self, name: str, store: str) -> list[Proxy]:
        """The proxies between an instance and the servers of a store."""
        return [self.proxies[name, server] for server in self.stores.proxied[store]]

    async def _heal(self) -> None:
        while True:
            await asyncio.sleep(_RESTART_S)
            for name, child in list(self._processes.running.items()):
                if child.process.returncode is None or name in self.down:
                    continue
                self.ended.append(f"{name} ended by itself with {child.process.returncode}: {child.tail(2)[-600:]}")
                if len(self.ended) <= _STARTS_MOST:
                    await self.start(name, is_old=name in self._olds)
            for name, server in self.stores.servers.items():
                if not server.is_running and name not in self.down:
                    await self._start_again(name, server)

    async def _start_again(self, name: str, server: ServerProcess) -> None:
        """Do as a supervisor of servers does; a replica of Redis ends by itself, at times long after its disk was full."""
        self._server_starts += 1
        if self._server_starts > _STARTS_MOST:
            self.ended.append(f"{name} does not run, and was started too often")
            self.down.add(name)
            return
        server.stop_blocking(limit_ms=0)
        with suppress(InvalidInput, OSError):
            await self._start_server(name, server)

    async def _start_server(self, name: str, server: ServerProcess) -> None:
        """Start it, and do as the runbook of a full disk says with a Redis that cannot read its own file."""
        try:
            await server.start()
        except InvalidInput as error:
            if _UNREADABLE not in str(error) or not await self.stores.can_empty(name):
                raise
            self.remade.append(f"{name} began without its file, which it could not read after a full disk")
            self.stores.disks[name].empty()
            await server.start()

    # ------------------------------------------------------------ how it is

    async def problems(self) -> dict[str, str]:
        """Why an instance is not ready, by its name; empty when all are."""
        answers = await asyncio.gather(*[self._problem(name) for name in self.instances])
        return {name: problem for name, problem in zip(self.instances, answers, strict=True) if problem}

    async def wait_ready(self, names: Iterable[str], what: str) -> None:
        """Wait until these are ready. One that is not in time is noted beside those that ended by themselves."""
        deadline_s = time.monotonic() + _READY_LIMIT_S
        for name in names:
            while problem := await self._problem(name):
                if time.monotonic() > deadline_s:
                    self.ended.append(f"{name}, {what}, was not ready within {_READY_LIMIT_S:g} s: {problem}")
                    break
                await asyncio.sleep(_LOOK_S)

    async def _problem(self, name: str) -> str:
        child = self._processes.running.get(name)
        if child is None or child.process.returncode is not None:
            return "does not run"
        assert self._http is not None
        try:
            async with self._http.get(f"http://127.0.0.1:{self._ports[name]}/readyz?verbose") as response:
                text = await response.text()
                failed = [line for line in text.splitlines() if line.startswith("[-]")]
                return "" if response.status == 200 else "; ".join(failed) or f"answers {response.status}"
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return f"does not answer: {type(error).__name__}"

    @property
    def shared_services(self) -> list[str]:
        """The services whose share another instance may take over."""
        counts = Counter(instance.service for instance in self.instances.values())
        return [service for service in LEASED if counts[service] > 1]

    @property
    def gateway_urls(self) -> list[str]:
        """The addresses of the gateways."""
        gateways = [name for name, instance in self.instances.items() if instance.service == "gateway"]
        return [f"http://127.0.0.1:{self._ports[name]}" for name in gateways]


def _sources(tree: Path) -> list[Path]:
    """The directories of a checkout in which its packages lie."""
    return [tree / "libs/common", tree / "apps/sim", tree / "apps/cli", *sorted((tree / "services").iterdir())]


def _rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
