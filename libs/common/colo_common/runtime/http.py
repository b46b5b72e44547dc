"""The HTTP server of every service process: liveness, readiness and metrics."""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from aiohttp import web

from colo_common.model.invalid import InvalidInput
from colo_common.runtime.metrics import CONTENT_TYPE, Metrics

__all__ = ["HttpServer", "Problems", "health_routes", "listen", "start_http"]

#: For each part, empty or one sentence that says why it is not ready.
Problems = Callable[[], Awaitable[Mapping[str, str]]]

_SHUTDOWN_S: Final = 1.0
_BACKLOG: Final = 128


class HttpServer:
    """A running server; `port` is the port it listens on."""

    def __init__(self, runner: web.AppRunner, host: str, port: int) -> None:
        self._runner = runner
        self.host = host
        self.port = port

    async def close(self) -> None:
        """Stop listening and end open connections."""
        await self._runner.cleanup()


def health_routes(metrics: Metrics, problems: Problems) -> list[web.RouteDef]:
    """/livez and its alias /healthz, /readyz (with ?verbose one line a part), /metrics."""

    async def livez(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        found = await problems()
        failed = {name: problem for name, problem in found.items() if problem}
        status = 503 if failed else 200
        if "verbose" not in request.query:
            return web.Response(status=status, text="not ready\n" if failed else "ok\n")
        lines = [f"[-]{name} failed: {problem}" if problem else f"[+]{name} ok" for name, problem in found.items()]
        lines.append("readyz check failed" if failed else "readyz check passed")
        return web.Response(status=status, text="\n".join(lines) + "\n")

    ready = metrics.gauge("colo_ready", "1 while this part of the process is ready, else 0", ("part",))

    async def exposition(_request: web.Request) -> web.Response:
        found = await problems()
        # A part that is no part any more must not stay as it was.
        ready.clear()
        for part, problem in found.items():
            ready.labels(part).set(0 if problem else 1)
        return web.Response(body=metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    return [
        web.get("/livez", livez),
        web.get("/healthz", livez),
        web.get("/readyz", readyz),
        web.get("/metrics", exposition),
    ]


async def listen(host: str, port: int, setting: str = "http_port") -> list[socket.socket]:
    """Sockets that listen on the port (0: a free one), one for each address of the host.

    Connections wait until `start_http` serves them. Raises InvalidInput when the port, which this setting gives, or the address
    cannot be had.
    """
    if port > 65_535:
        raise InvalidInput(setting, "must be at most 65535", port)
    opened: list[socket.socket] = []
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _kind, _protocol, _name, address in dict.fromkeys(found):
            opened.append(socket.create_server(address, family=family, backlog=_BACKLOG))
    except OSError as error:
        for each in opened:
            each.close()
        # The library's own text would repeat address and port.
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise InvalidInput(setting, f"must be a port this program may listen on: {why}", port) from error
        raise InvalidInput("http_host", f"must be an address of this machine: {why}", host) from error
    return opened


async def start_http(
    sockets: Sequence[socket.socket],
    metrics: Metrics,
    problems: Problems,
    app: web.Application | None = None,
    tls: ssl.SSLContext | None = None,
) -> HttpServer:
    """Serve on these listening sockets, which are closed with the server; with `tls` nothing but TLS."""
    app = app or web.Application()
    app.add_routes(health_routes(metrics, problems))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    for each in sockets:
        await web.SockSite(runner, each, ssl_context=tls).start()
    host, port = sockets[0].getsockname()[:2]
    return HttpServer(runner, host, port)
