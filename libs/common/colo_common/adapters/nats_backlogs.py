"""How far the named consumers of streams are behind, as the server lists them.

The library makes forty fields of each consumer, and the gateways ask every few seconds: only what is wanted is taken out here.
"""

from typing import Any, Final

import msgspec
import nats.errors
import nats.js.errors
from msgspec import Struct

from colo_common.adapters.nats_client import ColoClient
from colo_common.ports import Backlog

__all__ = ["backlogs_of"]

# A page has 256 consumers. More than these pages are not looked at.
_PAGES_MOST: Final = 100


class _Config(Struct, frozen=True):
    durable_name: str = ""


class _Consumer(Struct, frozen=True):
    config: _Config
    num_pending: int = 0
    num_ack_pending: int = 0
    num_waiting: int = 0


class _Page(Struct, frozen=True):
    total: int = 0
    consumers: tuple[_Consumer, ...] = ()
    error: dict[str, Any] | None = None


class _Offset(Struct, frozen=True):
    offset: int


_PAGE: Final = msgspec.json.Decoder(_Page)


async def backlogs_of(client: ColoClient, stream: str, timeout_s: float) -> list[Backlog]:
    """The backlog of each durable consumer of the stream, none for a stream that is not there. Raises the library's errors."""
    found: list[Backlog] = []
    seen = 0
    for _ in range(_PAGES_MOST):
        page = await _page(client, stream, seen, timeout_s)
        seen += len(page.consumers)
        found += [
            Backlog(
                stream=stream,
                consumer=each.config.durable_name,
                pending=each.num_pending,
                unacknowledged=each.num_ack_pending,
                is_read=each.num_waiting > 0 or each.num_ack_pending > 0,
            )
            for each in page.consumers
            if each.config.durable_name
        ]
        if not page.consumers or seen >= page.total:
            break
    return found


async def _page(client: ColoClient, stream: str, offset: int, timeout_s: float) -> _Page:
    request = msgspec.json.encode(_Offset(offset))
    try:
        answer = await client.request(f"$JS.API.CONSUMER.LIST.{stream}", request, timeout=timeout_s)
        page = _PAGE.decode(answer.data)
        if page.error is not None:
            nats.js.errors.APIError.from_error(page.error)
    except nats.errors.NoRespondersError as error:
        raise nats.js.errors.ServiceUnavailableError from error
    except nats.js.errors.NotFoundError:
        return _Page()
    except msgspec.MsgspecError as error:
        raise nats.errors.Error(f"an answer that is no list of consumers: {error}") from error
    return page
