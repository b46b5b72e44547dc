"""Cores of several gateways that keep one row of one store, as the runtime drives them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Conflict, Effect, Publish, Record, Reply, RequestReceived
from colo_common.events.requests import Refusal
from colo_common.ports import StoreConflict

__all__ = ["RowGateway"]

CoreT = TypeVar("CoreT", bound="RowCore")
FactT = TypeVar("FactT", bound=Struct)
ReplyT = TypeVar("ReplyT", bound=Struct)


class RowCore(Protocol):
    """A core that keeps one row."""

    def handle(self, event: Struct, now_ms: int) -> list[Effect]: ...

    def check(self) -> None: ...


class RowGateway(ABC, Generic[CoreT, FactT, ReplyT]):
    """One gateway's core on a store that others share; `sent` is what it published, in order."""

    def __init__(
        self,
        core: CoreT,
        store: MemoryStore,
        *,
        fact: type[FactT],
        reply: type[ReplyT],
        reads: type[Struct],
        known: Iterable[Struct] = (),
    ) -> None:
        self.core = core
        self.store = store
        self.sent: list[FactT] = []
        self.replies: list[Struct] = []
        # So early that the revisions, which are times, count from 1.
        self.now_ms = 1
        self._fact, self._reply, self._reads = fact, reply, reads
        for event in known:
            self.tell(event)
        self.load()

    @abstractmethod
    def load(self) -> None:
        """Read the row and tell the core."""

    def tell(self, event: Struct) -> None:
        """Hand the core one event and carry out its effects."""
        self._carry_out(self.core.handle(event, self.now_ms))
        self.core.check()

    def ask(self, body: Struct) -> ReplyT | Refusal:
        """The one reply to this request."""
        self.replies.clear()
        self.tell(RequestReceived(request="r", body=body))
        (reply,) = self.replies
        assert isinstance(reply, (self._reply, Refusal))
        return reply

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        """As the runtime does: what belongs to a refused record is dropped, and the conflict comes back."""
        dropped = False
        for effect in effects:
            match effect:
                case Record(writes=writes):
                    try:
                        asyncio.run(self.store.write(writes))
                    except StoreConflict as error:
                        dropped = True
                        self.tell(Conflict(kind=error.kind, id=error.id, expected=error.expected, found=error.found))
                case Publish(fact=fact) if isinstance(fact, self._fact) and not dropped:
                    self.sent.append(fact)
                case Reply(body=body) if not dropped:
                    self.replies.append(body)
                case _ if isinstance(effect, self._reads):
                    self.load()
                case _:
                    pass
