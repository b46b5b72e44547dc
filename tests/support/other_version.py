"""Runs a service that speaks as another version does: python -m tests.support.other_version, with OTHER_VERSION="older jobs"."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from msgspec import structs

from colo_common.adapters.bus_nats import NatsBus
from colo_common.events.subjects import PREFIX
from colo_common.events.wire import event_at
from colo_common.model.invalid import InvalidInput
from colo_common.ports import Answerer, Delivery, Missed, Outgoing, Sink, Source
from colo_common.runtime import process
from tests.support.newer_wire import NewerWire
from tests.support.older_wire import OlderWire

STATUS: Final = f"{PREFIX}.req.service."


def is_registered(subject: str) -> bool:
    try:
        event_at(subject)
    except InvalidInput:
        return False
    return True


class OtherBus(NatsBus):
    """The bus of a program of another version: what it says, understands and listens to is what that version knows."""

    wire: OlderWire | NewerWire

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        versioned = [structs.replace(each, data=self.wire.fact(each.subject, each.data)) for each in messages]
        await super().publish(versioned)

    async def listen(self, source: Source, sink: Sink, missed: Missed | None = None) -> None:
        async def understood(delivery: Delivery) -> None:
            # What this program does not know it passes over by itself, whatever it says.
            if is_registered(delivery.subject):
                delivery.data = self.wire.fact(delivery.subject, delivery.data)
            await sink(delivery)

        await super().listen(source, understood, missed)

    async def ask(self, subject: str, data: bytes, timeout_s: float, headers: Mapping[str, str] | None = None) -> bytes:
        answer = await super().ask(subject, self.wire.request(subject, data), timeout_s, headers)
        return self.wire.reply(subject, answer)

    def answer(
        self, service: str, answerers: Mapping[str, Answerer], *, is_listed: bool = True
    ) -> Coroutine[Any, Any, None]:
        # How an instance is it says with its fence, as every version does that has leases: others could not share work with it.
        versioned = {
            subject: each if subject.startswith(STATUS) else self._versioned(subject, each)
            for subject, each in answerers.items()
        }
        return super().answer(service, versioned, is_listed=is_listed)

    def _versioned(self, subject: str, answerer: Answerer) -> Answerer:
        async def answered(data: bytes, headers: Mapping[str, str]) -> bytes:
            body = await answerer(self.wire.request(subject, data), headers)
            return self.wire.reply(subject, body) if body else body

        return answered


def main() -> int:
    version, service = os.environ["OTHER_VERSION"].split()
    OtherBus.wire = {"older": OlderWire, "newer": NewerWire}[version]()
    process.NatsBus = OtherBus  # type: ignore[misc]
    code: int = importlib.import_module(f"colo_{service}.main").main()
    return code


if __name__ == "__main__":
    sys.exit(main())
