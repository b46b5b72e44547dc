"""Two headers of every reply: the time of the cluster's clock, and how fast that clock runs."""

from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

__all__ = ["CLOCK_SPEED_HEADER", "NOW_HEADER", "tell_clock"]

#: How many times as fast as the clock on the wall the times of a reply run: above 1 they are simulated.
CLOCK_SPEED_HEADER: Final = "Colo-Clock-Speed"
#: The cluster's clock at the reply, in Unix ms: an age is counted from it, never from the reader's own clock.
NOW_HEADER: Final = "Colo-Now-Ms"


def tell_clock(now_ms: Callable[[], int], speed: float) -> Middleware:
    """Add both headers to every reply, an error included. A reply that is under way already, which a stream is, has its own."""

    @web.middleware
    async def add(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        if not response.prepared:
            response.headers[CLOCK_SPEED_HEADER] = f"{speed:g}"
            response.headers[NOW_HEADER] = str(now_ms())
        return response

    return add
