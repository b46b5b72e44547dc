"""Whether a NATS keeps what it acknowledges: JetStream, streams and their replicas, room, message limit, syncs to disk, clocks."""

import asyncio
import http.client
import json
import time
import urllib.request
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from colo_common.adapters.nats_access import NatsAccess
from colo_common.adapters.nats_errors import NATS_ERRORS, port_error
from colo_common.adapters.nats_stream_config import StreamWish
from colo_common.adapters.nats_streams import StreamState, check_streams, connected_client
from colo_common.adapters.server_check import ServerCheck
from colo_common.model.quantity import bytes_text
from colo_common.ports import PortError

__all__ = ["check_nats"]

_MESSAGE_BYTES: Final = 1 << 20
_CLOCK_MOST_S: Final = 1.0
_MONITOR_S: Final = 10.0
_SYNC_MOST_NS: Final = 10 * 1_000_000_000
_NO_MONITOR_PORT: Final = "is no monitoring port of a NATS server, such as http://host:8222"
_MONITOR_PORT: Final = 8222


async def check_nats(access: NatsAccess, wish: StreamWish, monitors: Sequence[str]) -> list[ServerCheck]:
    """The findings about the servers. Raises InvalidInput for a bad access."""
    checks: list[ServerCheck] = []
    try:
        async with connected_client(access) as client:
            version = client._server_info.get("version", "")
            cluster = client._server_info.get("cluster", "")
            where = f"cluster {cluster}" if cluster else "one server"
            checks.append(ServerCheck(name="nats", ok=True, detail=f"{version}, {where} at {access.shown}"))
            checks.append(_message(client.max_payload))
            try:
                account = await client.jetstream(timeout=5).account_info()
            except NATS_ERRORS as error:
                raise port_error(error, "JetStream") from error
            limit = account.limits.max_storage
            detail = (
                f"{bytes_text(account.storage)} used, {bytes_text(limit) if limit > 0 else 'no limit of the account'}"
            )
            checks.append(ServerCheck(name="nats-jetstream", ok=True, detail=detail))
        states = await check_streams(access, wish)
        checks += [_stream(state) for state in states]
    except PortError as error:
        name = "nats-jetstream" if checks else "nats"
        checks.append(ServerCheck(name=name, ok=False, detail=str(error), means="no service can start"))
    replicas = wish.replicas
    if not monitors:
        checks.append(_not_asked(access))
    for url in monitors:
        checks += await asyncio.to_thread(_monitored, url.rstrip("/"), replicas)
    return checks


def _not_asked(access: NatsAccess) -> ServerCheck:
    """What has to be added to the command, for servers with the usual port."""
    hosts = [urlsplit(server).hostname or "" for server in access.servers]
    ports = ",".join(f"http://{f'[{host}]' if ':' in host else host}:{_MONITOR_PORT}" for host in dict.fromkeys(hosts))
    return ServerCheck(
        name="nats-sync",
        ok=None,
        detail=f"no client can ask for sync_interval: add --monitor {ports} (what http says in each server's configuration)",
        means="power that fails may take what was acknowledged since the last sync",
    )


def _message(most_bytes: int) -> ServerCheck:
    if most_bytes < _MESSAGE_BYTES:
        means = f"pages of lists need {bytes_text(_MESSAGE_BYTES)}: max_payload"
        return ServerCheck(name="nats-max-payload", ok=False, detail=bytes_text(most_bytes), means=means)
    return ServerCheck(name="nats-max-payload", ok=True, detail=bytes_text(most_bytes))


def _stream(state: StreamState) -> ServerCheck:
    if not state.exists:
        return ServerCheck(name=state.stream, ok=False, detail="missing", means=state.problem)
    share = f"{bytes_text(state.size_bytes)} of {bytes_text(state.max_bytes)}, {state.replicas} replicas, version {state.version}"
    if state.problem:
        return ServerCheck(name=state.stream, ok=False, detail=share, means=state.problem)
    if state.behind:
        means = f"one more server that goes may stop it: {', '.join(state.behind)} is away or behind"
        return ServerCheck(name=state.stream, ok=False, detail=share, means=means)
    return ServerCheck(name=state.stream, ok=True, detail=share)


def _monitored(url: str, replicas: int) -> list[ServerCheck]:
    """What one server says on its monitoring port: its syncs, its room, its clock."""
    try:
        before_s = time.time()
        found = _read(f"{url}/varz")
        middle_s = (before_s + time.time()) / 2
        config = _read(f"{url}/jsz?config=true").get("config") or {}
        name = str(found.get("server_name", url))
        offset_s = datetime.fromisoformat(str(found["now"])[:26].rstrip("Z") + "+00:00").timestamp() - middle_s
        sync = _sync(name, config, replicas)
    except OSError as error:
        return [ServerCheck(name="nats-sync", ok=None, detail=f"{url}: {error}")]
    except (ValueError, KeyError, AttributeError, TypeError, http.client.HTTPException):
        return [ServerCheck(name="nats-sync", ok=None, detail=f"{url} {_NO_MONITOR_PORT}")]
    is_near = abs(offset_s) <= _CLOCK_MOST_S
    return [
        sync,
        ServerCheck(
            name="nats-clock",
            ok=is_near,
            detail=f"{name}: {offset_s:+.3f} s from this machine",
            means="" if is_near else "messages are dated by its clock: use NTP",
        ),
    ]


def _sync(name: str, config: dict[str, Any], replicas: int) -> ServerCheck:
    every_ns = int(config.get("sync_interval", 0))
    if config.get("sync_always"):
        return ServerCheck(name="nats-sync", ok=True, detail=f"{name}: always")
    detail = f"{name}: every {every_ns / 1e9:g} s"
    if replicas > 1 and every_ns <= _SYNC_MOST_NS:
        return ServerCheck(name="nats-sync", ok=True, detail=detail)
    lost = "" if replicas == 1 else " on most servers at once"
    means = f"power that fails{lost} takes what was acknowledged since the last sync: sync_interval: always"
    return ServerCheck(name="nats-sync", ok=False, detail=detail, means=means)


def _read(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=_MONITOR_S) as reply:
        found: dict[str, Any] = json.loads(reply.read())
        return found
