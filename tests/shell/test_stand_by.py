"""An instance that stands by is ready while another one serves, also when that one does not answer at once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from colo_common.events.wire import encode_reply
from colo_common.runtime.term import ServiceTerm
from tests.support.builders import a_status
from tests.support.manual_clock import ManualClock
from tests.support.vloop import run_virtual

HOLDER = a_status(started_at_ms=0, now_ms=0, held=(0,), fence=1)


class _Leases:
    """Never holds anything."""

    owner, problem, term = "jobs-2", "", ()

    async def run(self, _changed: object, never: asyncio.Event) -> None:
        await never.wait()


class _Bus:
    """A bus on which the instance that serves answers while `serves` is set."""

    def __init__(self) -> None:
        self.serves = True

    async def answer(self, *_: object) -> None:
        await asyncio.Event().wait()

    async def ask_all(self, *_: object) -> list[bytes]:
        await asyncio.sleep(0.5)
        return [encode_reply(HOLDER)] if self.serves else []


def test_a_holder_that_is_silent_for_some_seconds_still_holds() -> None:
    async def story() -> list[str]:
        bus = cast(Any, _Bus())
        term = ServiceTerm("jobs", cast(Any, _Leases()), bus, bus, ManualClock())
        stop = asyncio.Event()
        standing = asyncio.create_task(term.begin(stop))
        seen = []
        for serves, wait_s in ((True, 2.0), (False, 8.0), (False, 5.0), (True, 2.0)):
            bus.serves = serves
            await asyncio.sleep(wait_s)
            seen.append(term.problems()["leases"])
        stop.set()
        await standing
        return seen

    assert run_virtual(story()) == ["", "", "nobody holds the work of this service yet", ""]
