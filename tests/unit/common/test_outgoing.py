"""Several calls of the bus are under way at once: what follows them keeps its order, and a failed one waits for those before it."""

import asyncio
import random
from collections.abc import Sequence

from colo_common.adapters.bus_memory import MemoryBus
from colo_common.ports import Outgoing, Unavailable
from colo_common.runtime.metrics import Metrics, ServiceMetrics
from colo_common.runtime.outgoing import Parcel, Sender
from colo_common.runtime.patience import Patience
from tests.support.vloop import run_virtual


class SlowBus(MemoryBus):
    """Answers a call after its own time, and fails a call as often as it is told."""

    def __init__(self, seconds: dict[str, float], failures: dict[str, int] | None = None) -> None:
        super().__init__()
        self.seconds = seconds
        self.failures = failures or {}
        self.begun: list[str] = []
        self.at_once = 0
        self.most_at_once = 0

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        name = messages[0].msg_id
        self.begun.append(name)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.seconds[name])
        self.at_once -= 1
        if self.failures.get(name, 0):
            self.failures[name] -= 1
            raise Unavailable(f"{name} was not acknowledged")


def a_parcel(name: str) -> Parcel:
    # Too large to share a call with another one.
    message = Outgoing(subject="colo.v1.evt.job.changed", data=b"{}", durable=True, msg_id=name)
    return Parcel(messages=[message] * 600, replies=[(name, b"")])


async def sent(bus: SlowBus, names: Sequence[str]) -> list[str]:
    """Send a parcel of each name; the order in which they were followed up."""
    replied: list[str] = []
    metrics = ServiceMetrics(Metrics(), "test")
    patience = Patience("bus", random.Random(1), metrics.retries, asyncio.Event())
    sender = Sender(bus, None, patience, metrics, lambda request, _body: replied.append(request))
    for name in names:
        sender.put(a_parcel(name))
    task = asyncio.create_task(sender.run())
    await sender.drained()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return replied


def test_answers_keep_their_order_although_a_later_call_is_done_first() -> None:
    bus = SlowBus({"a": 3.0, "b": 1.0, "c": 2.0})
    assert run_virtual(sent(bus, "abc")) == ["a", "b", "c"]
    assert bus.begun == ["a", "b", "c"]
    assert bus.most_at_once == 2


def test_no_more_than_two_calls_are_under_way() -> None:
    bus = SlowBus(dict.fromkeys("abcdefgh", 1.0))
    assert run_virtual(sent(bus, "abcdefgh")) == list("abcdefgh")
    assert bus.most_at_once == 2


def test_what_failed_is_tried_again_when_all_before_it_are_done() -> None:
    bus = SlowBus({"a": 5.0, "b": 1.0, "c": 1.0}, {"b": 1})
    assert run_virtual(sent(bus, "abc")) == ["a", "b", "c"]
    assert bus.begun == ["a", "b", "c", "b"]


def test_while_one_is_tried_again_no_further_call_begins() -> None:
    bus = SlowBus(dict.fromkeys("abcdef", 1.0), {"a": 3})
    assert run_virtual(sent(bus, "abcdef")) == list("abcdef")
    assert bus.begun[:2] == list("ab")
    assert bus.begun.index("c") > max(number for number, name in enumerate(bus.begun) if name == "a")
