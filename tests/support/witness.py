"""A reader of a cluster that shares no code with it: every message of the bus, and the ledger in Redis, as plain objects."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import msgspec
import nats
import redis

__all__ = ["Received", "Witness"]

_KEPT_MOST: Final = 200_000


class Received(NamedTuple):
    """One message: its subject and its body, whatever its encoding was."""

    subject: str
    body: dict[str, Any]


class Witness:
    """Hears everything on the bus from the moment it is entered, in a thread of its own, and reads Redis when it is asked."""

    def __init__(self, nats_url: str, redis_socket: Path) -> None:
        self._nats_url = nats_url
        self._redis = redis.Redis(unix_socket_path=str(redis_socket))
        self._received: list[Received] = []
        self._listens, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._listen()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listens.wait(60), "no NATS server answers"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._redis.close()

    def received(self, part: str) -> list[Received]:
        """The messages so far with this in their subject, oldest first."""
        return [one for one in tuple(self._received) if part in one.subject]

    def newest(self, part: str) -> dict[str, dict[str, Any]]:
        """The newest message of each node with this in its subject."""
        return {one.body["node"]: one.body for one in self.received(part)}

    def holds(self) -> list[dict[str, Any]]:
        """Every placement that the ledger holds now."""
        found = []
        for key in self._redis.scan_iter("colo:v1:ledger:node:*"):
            fields: Any = self._redis.hgetall(key)
            found += [msgspec.json.decode(value)["placement"] for name, value in fields.items() if name[:2] == b"h:"]
        return found

    def held_mcpu(self, node: str = "") -> int:
        """The CPU that the ledger holds, on one node or on all."""
        return sum(hold["cpu_mcpu"] for hold in self.holds() if node in ("", hold["node"]))

    async def _listen(self) -> None:
        client = await nats.connect(self._nats_url)

        async def take(message: Any) -> None:
            if message.data and ".req." not in message.subject and len(self._received) < _KEPT_MOST:
                telemetry = ".tlm." in message.subject
                decoder = msgspec.msgpack.decode if telemetry else msgspec.json.decode
                self._received.append(Received(message.subject, decoder(message.data)))

        await client.subscribe("colo.v1.>", cb=take)
        # The library writes the ping of the first flush ahead of what waits to be written; only the second one comes after it.
        for _ in range(2):
            await client.flush(timeout=60)
        self._listens.set()
        await asyncio.to_thread(self._stop.wait)
        await client.close()
