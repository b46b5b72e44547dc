"""The lab's services as child processes: started together, watched, ended together."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from colo_cli.server_process import tied_command
from colo_common.model.invalid import InvalidInput
from colo_common.ports import Refused

__all__ = ["LabProcess", "LabProcesses", "log_events", "log_notices"]

_READY_LIMIT_S: Final = 30.0
_STOP_LIMIT_S: Final = 3.0
_POLL_S: Final = 0.05


class LabProcess:
    """One service: its name, its process, and the address of its health page once it has said it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path, log_start: int) -> None:
        self.name = name
        self.process = process
        self.log = log
        self._log_start = log_start
        self._address: str | None = None

    @property
    def address(self) -> str | None:
        """ "host:port" of its HTTP side, from its log; None before it listens."""
        if self._address is None:
            for line in log_events(self.log, "http-listening", since=self._log_start):
                self._address = f"{line['host']}:{line['port']}"
        return self._address

    def rss_bytes(self) -> int:
        """Resident memory now; 0 when the process is gone."""
        try:
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text("ascii").split()[1])
        except (OSError, IndexError, ValueError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_s(self) -> float:
        """CPU time that it has used, user and system."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def tail(self, lines: int = 5) -> str:
        """The end of its log."""
        try:
            return (
                " / ".join(self.log.read_text("utf-8", "replace").strip().splitlines()[-lines:]) or "its log is empty"
            )
        except OSError:
            return "it has no log"


class LabProcesses:
    """Starts services with a common environment in a directory of the lab; restarts one that died, a bounded number of times."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._directory = directory
        self._environment = environment
        self.running: dict[str, LabProcess] = {}
        self._modules: dict[str, tuple[str, dict[str, str]]] = {}
        self.restarts: list[str] = []

    async def start(self, name: str, module: str, environment: dict[str, str] | None = None) -> LabProcess:
        """Run `python -m module`; returns at once."""
        self._modules[name] = (module, environment or {})
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
        """Return when each answers /readyz with 200. Raises InvalidInput or Refused when one ends or takes 30 s."""
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
            if asyncio.get_running_loop().time() > deadline:
                tails = "; ".join(f"{name}: {self.running[name].tail(2)}" for name in waiting)
                raise InvalidInput("lab", f"every service must be ready within {_READY_LIMIT_S:g} s: {tails}", waiting)
            await asyncio.sleep(_POLL_S)

    async def heal(self, restarts_max: int = 20) -> None:
        """Start again what ended by itself; InvalidInput when that happened too often."""
        for name, child in list(self.running.items()):
            if child.process.returncode is None:
                continue
            self.restarts.append(name)
            if len(self.restarts) > restarts_max:
                raise InvalidInput(name, f"ended too often: {child.tail()}", child.process.returncode)
            module, environment = self._modules[name]
            await self.start(name, module, environment)

    async def stop(self, names: Iterable[str] | None = None) -> None:
        """SIGTERM to these (None: all), SIGKILL to what is left after 3 s."""
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
            # One that cannot die now (a busy machine) is tied to this process and dies with it; the lab does not wait for it.
            _, stuck = await asyncio.wait(waits, timeout=_STOP_LIMIT_S)
            for wait in stuck:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        for name in chosen:
            del self.running[name]


def _not_started(child: LabProcess) -> InvalidInput | Refused:
    """A service that ends with 2 said in one sentence what was wrong with its input; of any other the end of the log is shown."""
    code = child.process.returncode
    if code == 2:
        return Refused(child.tail(1).removeprefix("colo "))
    return InvalidInput(child.name, f"ended while it was starting: {child.tail()}", code)


def log_events(log: Path, event: str, since: int = 0) -> list[dict[str, Any]]:
    """The lines of a JSON log with that event, after `since` bytes; what is no JSON is passed over."""
    try:
        with log.open("rb") as lines:
            lines.seek(since)
            found = [line for line in lines if event.encode() in line]
    except OSError:
        return []
    events = []
    for line in found:
        with contextlib.suppress(ValueError):
            decoded = json.loads(line)
            if isinstance(decoded, dict) and decoded.get("event") == event:
                events.append(decoded)
    return events


def log_notices(child: LabProcess | None) -> list[str]:
    """What a service said about its inputs that belongs into the verdict."""
    return [] if child is None else [str(line.get("notice", "")) for line in log_events(child.log, "trace")]


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=1) as response:
            return bool(response.status == 200)
    except (OSError, ValueError, json.JSONDecodeError):
        return False
