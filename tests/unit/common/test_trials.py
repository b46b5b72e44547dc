"""A message that ended the process is known by its place and by when it was stored."""

import asyncio

from colo_common.adapters.store_memory import MemoryStore
from colo_common.ports import Delivery
from colo_common.runtime.trials import Trials

SUBJECT = "colo.v1.evt.queue.changed"


def stored_at(stored_us: int) -> Delivery:
    return Delivery(SUBJECT, b"{}", stream="COLO_EVT", stream_seq=7, stored_us=stored_us)


def test_a_message_that_has_the_place_of_a_poisonous_one_in_a_stream_that_was_made_again_is_not_blamed() -> None:
    async def story() -> None:
        store = MemoryStore()
        for boot in ("b1", "b2", "b3"):
            trials = Trials(store, "jobs", boot)
            await trials.begin()
            await trials.start(stored_at(1))
        last = Trials(store, "jobs", "b4")
        await last.begin()
        assert last.tries_of(stored_at(1)) == 3
        assert last.tries_of(stored_at(2)) == 0
        assert last.is_suspect(stored_at(1))
        assert not last.is_suspect(stored_at(2))

    asyncio.run(story())
