"""The lab's services as child processes: starts, watches, restarts and ends them."""

import asyncio
import contextlib
import os
import signal
import sys
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from colo_cli.lab_usage import cpu_s, rss_bytes
from colo_cli.server_process import tied_command
from colo_common.ports import Refused

__all__ = ["NO_PUBLIC_CA", "LabFailed", "LabProcess", "LabProcesses", "LogLine", "log_events", "log_notices"]

#: The environment of processes that meet no certificate of a public authority. A library reads all of these authorities when it is
#: imported, which is an eighth of the CPU time in which a service starts.
NO_PUBLIC_CA: Final[Mapping[str, str]] = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}

_READY_LIMIT_S: Final = 120.0
_STOP_LIMIT_S: Final = 3.0
_POLL_S: Final = 0.05


class LabFailed(Exception):
    """A part of the lab failed, for no fault of what the user typed."""


class LogLine(Struct, frozen=True):
    """The fields of a log line that the lab reads; the others are skipped."""

    event: str
    host: str = ""
    port: int = 0
    notice: str = ""


class LabProcess:
    """One service: its name, its process, its log, and the address of its health page."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path, log_start: int) -> None:
        self.name = name
        self.process = process
        self.log = log
        self._log_start = log_start
        self._address: str | None = None

    @property
    def address(self) -> str | None:
        """The "host:port" of the HTTP server, from the log; None before it listens."""
        if self._address is None:
            for line in log_events(self.log, "http-listening", since=self._log_start):
                self._address = f"{line.host}:{line.port}"
        return self._address

    def rss_bytes(self) -> int:
        """Resident memory now in bytes; 0 when the process has exited."""
        return rss_bytes(self.process.pid)

    def cpu_s(self) -> float:
        """CPU time of the process in seconds, user and system; 0.0 when it has exited."""
        return cpu_s(self.process.pid)

    def tail(self, lines: int = 5) -> str:
        """The last lines of the log in one line."""
        try:
            return (
                " / ".join(self.log.read_text("utf-8", "replace").strip().splitlines()[-lines:]) or "its log is empty"
            )
        except OSError:
            return "it has no log"


class LabProcesses:
    """Starts services with a common environment and logs in one directory; restarts ended ones a bounded number of times."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._directory = directory
        self._environment = environment
        self.running: dict[str, LabProcess] = {}
        self._modules: dict[str, tuple[str, dict[str, str]]] = {}
        self.restarts: list[str] = []
        self.not_ready: tuple[str, ...] = ()

    async def start(self, name: str, module: str, environment: dict[str, str] | None = None) -> LabProcess:
        """Start `python -m module`; does not wait until it is ready."""
        self._modules[name] = (module, environment or {})
        self.not_ready = (*self.not_ready, name)
        log = self._directory / f"{name}.log"
        log_start = log.stat().st_size if log.exists() else 0
        merged = {**os.environ, **self._environment, **(environment or {})}
        with log.open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                *tied_command([sys.executable, "-m", module]),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=merged,
                start_new_session=True,
            )
        self.running[name] = LabProcess(name, process, log, log_start)
        return self.running[name]

    async def wait_ready(self, names: list[str]) -> None:
        """Wait until each service answers /readyz with 200. Raises LabFailed when a service ends or takes 120 s, Refused when it
        refuses its input.
        """
        deadline = asyncio.get_running_loop().time() + _READY_LIMIT_S
        waiting = list(names)
        while waiting:
            for name in list(waiting):
                child = self.running[name]
                if child.process.returncode is not None:
                    raise _not_started(child)
                address = child.address
                if address is not None and await asyncio.to_thread(_is_ready, address):
                    waiting.remove(name)
                self.not_ready = tuple(waiting)
            if asyncio.get_running_loop().time() > deadline:
                tails = "; ".join(f"{name}: {self.running[name].tail(2)}" for name in waiting)
                raise LabFailed(f"not every service was ready within {_READY_LIMIT_S:g} s: {tails}")
            await asyncio.sleep(_POLL_S)

    async def heal(self, restarts_max: int = 20) -> None:
        """Restart the services that ended by themselves. Raises LabFailed after more than `restarts_max` restarts."""
        for name, child in list(self.running.items()):
            if child.process.returncode is None:
                continue
            self.restarts.append(name)
            if len(self.restarts) > restarts_max:
                raise LabFailed(f"{name} ended too often, with {child.process.returncode} at last: {child.tail()}")
            module, environment = self._modules[name]
            await self.start(name, module, environment)

    async def stop(self, names: Iterable[str] | None = None) -> None:
        """Send SIGTERM to these services (None: all), and SIGKILL to those that run after 3 s."""
        chosen = [name for name in (tuple(self.running) if names is None else names) if name in self.running]
        children = [self.running[name].process for name in chosen if self.running[name].process.returncode is None]
        for process in children:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        if children:
            waits = [asyncio.create_task(process.wait()) for process in children]
            _, late = await asyncio.wait(waits, timeout=_STOP_LIMIT_S)
            for process in children if late else ():
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
            # A process that does not exit now (a busy machine) is tied to this process and ends with it; the lab does not wait.
            _, stuck = await asyncio.wait(waits, timeout=_STOP_LIMIT_S)
            for wait in stuck:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        for name in chosen:
            del self.running[name]


def _not_started(child: LabProcess) -> LabFailed | Refused:
    """The error of a service that ended at its start: its own sentence for exit code 2, else the end of its log."""
    code = child.process.returncode
    if code == 2:
        return Refused(child.tail(1).removeprefix("colo "))
    return LabFailed(f"{child.name} ended with {code} while it was starting: {child.tail()}")


def log_events(log: Path, event: str, since: int = 0) -> list[LogLine]:
    """The JSON lines of a log with that event, after `since` bytes; other lines are skipped."""
    try:
        with log.open("rb") as lines:
            lines.seek(since)
            found = [line for line in lines if event.encode() in line]
    except OSError:
        return []
    events = []
    for line in found:
        with contextlib.suppress(msgspec.MsgspecError):
            decoded = msgspec.json.decode(line, type=LogLine)
            if decoded.event == event:
                events.append(decoded)
    return events


def log_notices(child: LabProcess | None) -> list[str]:
    """The notices about a trace that a service logged, for the verdict."""
    return [] if child is None else [line.notice for line in log_events(child.log, "trace")]


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=1) as response:
            return bool(response.status == 200)
    except (OSError, ValueError):
        return False
