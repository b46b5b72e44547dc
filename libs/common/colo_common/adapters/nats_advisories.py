"""What the server itself says about colo's streams and consumers: its advisories, which nobody asks for."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from nats.aio.msg import Msg

from colo_common.adapters.nats_connection import NatsConnection
from colo_common.adapters.nats_errors import NATS_ERRORS
from colo_common.ports import Advisory

__all__ = ["ADVISORY_SUBJECTS", "listen_advisories"]

_PREFIX: Final = "$JS.EVENT.ADVISORY."
#: Of the server's subjects those that mean trouble, and their kinds here. Elections of leaders and repeated deliveries do not.
_KINDS: Final = {
    "CONSUMER.MAX_DELIVERIES": "max-deliveries",
    "CONSUMER.MSG_TERMINATED": "message-terminated",
    "CONSUMER.DELETED": "consumer-deleted",
    "CONSUMER.QUORUM_LOST": "consumer-quorum-lost",
    "STREAM.DELETED": "stream-deleted",
    "STREAM.QUORUM_LOST": "stream-quorum-lost",
    "SERVER.OUT_OF_STORAGE": "out-of-storage",
}
#: What a listener subscribes to.
ADVISORY_SUBJECTS: Final = tuple(f"{_PREFIX}{kind}.>" for kind in _KINDS)
# Unnamed consumers come and go with their connections.
_NAMED: Final = "colo-"


async def listen_advisories(connection: NatsConnection, sink: Callable[[Advisory], Awaitable[None]]) -> None:
    """Hand every advisory about colo's streams and named consumers to the sink, until cancelled."""
    await connection.wait_usable()

    async def take(message: Msg) -> None:
        advisory = _advisory_of(message.subject)
        if advisory is not None:
            await sink(advisory)

    # The library resubscribes by itself after a reconnect.
    subscriptions = [await connection.client.subscribe(subject, cb=take) for subject in ADVISORY_SUBJECTS]
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        for subscription in subscriptions:
            with suppress(*NATS_ERRORS):
                await subscription.unsubscribe()


def _advisory_of(subject: str) -> Advisory | None:
    """The advisory of a subject; None when it is about something that is not colo's."""
    tokens = subject.removeprefix(_PREFIX).split(".")
    kind = _KINDS.get(".".join(tokens[:2]), "")
    stream, consumer = (*tokens[2:4], "", "")[:2]
    is_own = stream.startswith("COLO_") and (tokens[0] != "CONSUMER" or consumer.startswith(_NAMED))
    return Advisory(kind=kind, stream=stream, consumer=consumer) if kind and is_own else None
