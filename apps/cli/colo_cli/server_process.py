"""Runs a server program as a child process, waits until it is ready, and ends it with this process."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = ["Recipe", "ServerProcess", "tied_command"]

#: A busy machine starts a server in seconds; one that stood still in between needs more.
START_LIMIT_MS: Final = 60_000
STOP_LIMIT_MS: Final = 5_000
POLL_MS: Final = 10
LOG_TAIL_LINES: Final = 3

# The child asks the kernel for SIGTERM at the death of its parent (option 1) and, if given, for timer slack (option 29), then
# executes the server. This is a program and not a preexec function, because a fork of a threaded process must not run Python
# before exec.
_TIED_TO_PARENT: Final = """
import ctypes, os, sys
if sys.platform == "linux":
    prctl = ctypes.CDLL(None).prctl
    prctl(1, 15, 0, 0, 0)
    if sys.argv[2] != "0":
        prctl(29, ctypes.c_ulong(int(sys.argv[2])), 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent ended before the server began")
os.execv(sys.argv[3], sys.argv[3:])
"""


def tied_command(command: Sequence[str], timer_slack_ns: int = 0) -> list[str]:
    """The command line that runs `command` (an absolute path first) as a child that ends when its parent does.

    `timer_slack_ns` is the kernel's timer slack of the child (PR_SET_TIMERSLACK); 0 keeps the default.
    """
    return [sys.executable, "-I", "-S", "-c", _TIED_TO_PARENT, str(os.getpid()), str(timer_slack_ns), *command]


class Recipe(Struct, frozen=True, kw_only=True):
    """How to run one kind of server: its name, the option that sets its port, its command line, its readiness."""

    name: str
    port_option: str
    find: Callable[[], Path]
    #: (directory, port or None) -> arguments; writes the configuration files of the server.
    arguments: Callable[[Path, int | None], list[str]]
    #: (directory, port or None, pid) -> address; None before the server takes connections.
    ready_url: Callable[[Path, int | None, int], str | None]
    #: -> environment variables of the server; variables of this process take precedence.
    environment: Callable[[], Mapping[str, str]] = dict
    #: The kernel's timer slack of the server; 0 keeps the default.
    timer_slack_ns: int = 0


class ServerProcess:
    """A child process with a directory and a log of its own, and time limits of start and stop.

    `start()` must be called from a thread that lives as long as the server (the main thread does): Linux ties the
    child to the thread that made it.
    """

    def __init__(self, recipe: Recipe, *, program: Path | None, directory: Path | None, port: int | None) -> None:
        """Starts and creates nothing. Raises InvalidInput for an impossible port."""
        if port is not None and not 0 < port < 65536:
            raise InvalidInput(recipe.port_option, "must lie between 1 and 65535", port)
        self._recipe = recipe
        self._program = program
        self._wanted_directory = directory
        self._port = port
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._url: str | None = None

    @property
    def url(self) -> str:
        """The address a client connects to; raises RuntimeError before start() and after stop()."""
        if self._url is None:
            raise RuntimeError(f"{self._recipe.name} is not running")
        return self._url

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def port(self) -> int:
        """The port that was asked for; 0 for none."""
        return self._port or 0

    @property
    def pid(self) -> int:
        """The process id; raises RuntimeError before start() and after stop()."""
        return self._running()[0].pid

    @property
    def directory(self) -> Path:
        """The directory of the server's files; raises RuntimeError before start() and after stop()."""
        return self._running()[1]

    async def start(self) -> None:
        """Return once the server takes connections; raise InvalidInput with the end of its log if it never will."""
        deadline = self._spawn()
        try:
            while not self._has_begun(deadline):  # noqa: ASYNC110 - neither a process nor a log signals a loop
                await asyncio.sleep(POLL_MS / 1000)
        except BaseException:
            self.stop_blocking(limit_ms=0)
            raise

    async def stop(self) -> None:
        """Terminate, after five seconds kill, and remove a temporary directory. Stopping twice does nothing."""
        if self._process is not None:
            self._process.terminate()
            deadline = time.monotonic() + STOP_LIMIT_MS / 1000
            while self._process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110 - as in start()
                await asyncio.sleep(POLL_MS / 1000)
        self.stop_blocking(limit_ms=0)

    def start_blocking(self) -> None:
        """Do as start(), for a caller without an event loop."""
        deadline = self._spawn()
        try:
            while not self._has_begun(deadline):
                time.sleep(POLL_MS / 1000)
        except BaseException:
            self.stop_blocking(limit_ms=0)
            raise

    def stop_blocking(self, limit_ms: int = STOP_LIMIT_MS) -> None:
        """Do as stop(), for a caller without an event loop; `limit_ms` is the wait between terminate and kill."""
        process, self._process, self._url = self._process, None, None
        if process is not None:
            process.terminate()  # Does nothing to a process that has already been waited for.
            try:
                process.wait(limit_ms / 1000)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        directory, self._directory = self._directory, None
        if directory is not None and self._wanted_directory is None:
            shutil.rmtree(directory, ignore_errors=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _running(self) -> tuple[subprocess.Popen[bytes], Path]:
        if self._process is None or self._directory is None:
            raise RuntimeError(f"{self._recipe.name} is not running")
        return self._process, self._directory

    def _spawn(self) -> float:
        """Start the child and return the monotonic second at which waiting for it ends."""
        if self._process is not None:
            raise RuntimeError(f"{self._recipe.name} is already running")
        program = self._program if self._program is not None else self._recipe.find()
        if self._port is not None:
            _refuse_taken_port(self._recipe.port_option, self._port)
        try:
            self._directory = self._make_directory()
            arguments = self._recipe.arguments(self._directory, self._port)
            command = tied_command([str(program), *arguments], self._recipe.timer_slack_ns)
            with self._log_path(self._directory).open("wb") as log:
                # In a session of its own Ctrl-C does not reach the server; colo stops the servers last.
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self._directory,
                    env={**self._recipe.environment(), **os.environ},
                    start_new_session=True,
                )
        except OSError as error:
            shown = str(self._directory or self._wanted_directory or tempfile.gettempdir())
            self.stop_blocking(limit_ms=0)
            raise InvalidInput(self._recipe.name, f"its directory must be writable: {error}", shown) from error
        except BaseException:
            self.stop_blocking(limit_ms=0)
            raise
        return time.monotonic() + START_LIMIT_MS / 1000

    def _make_directory(self) -> Path:
        if self._wanted_directory is None:
            return Path(tempfile.mkdtemp(prefix=f"colo-{self._recipe.name}-"))
        self._wanted_directory.mkdir(parents=True, exist_ok=True)
        return self._wanted_directory.resolve()

    def _has_begun(self, deadline: float) -> bool:
        """Whether the server takes connections; its address is set then. Raises InvalidInput if it ended or is too late."""
        process, directory = self._running()
        status = process.poll()
        if status is not None:
            rule = f"ended while it was starting: {self._log_tail(directory)}"
            raise InvalidInput(self._recipe.name, rule, f"exit status {status}")
        self._url = self._recipe.ready_url(directory, self._port, process.pid)
        if self._url is None and time.monotonic() > deadline:
            rule = f"must take connections within {START_LIMIT_MS} ms: {self._log_tail(directory)}"
            raise InvalidInput(self._recipe.name, rule, f"process {process.pid}")
        return self._url is not None

    def _log_path(self, directory: Path) -> Path:
        return directory / f"{self._recipe.name}.log"

    def _log_tail(self, directory: Path) -> str:
        try:
            lines = self._log_path(directory).read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return " / ".join(line.strip() for line in lines[-LOG_TAIL_LINES:]) or "its log is empty"


def _refuse_taken_port(option: str, port: int) -> None:
    """Raise InvalidInput when another program listens on the port. The server's own bind still has the last word."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise InvalidInput(option, f"must be a port this program may listen on: {error.strerror}", port) from error
