"""Why the gateway is not ready although its event stream is: its tables of restrictions and policy are services beside it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from colo_common.runtime.service import Service

__all__ = ["OwnProblems"]

_REST_S: Final = 1.0
_IMPATIENT_S: Final = 0.1


class OwnProblems:
    """The problems of the services beside the gateway's first one, at most about a second old."""

    def __init__(self, services: Sequence[Service]) -> None:
        self.services = tuple(services)
        self._found: dict[str, str] = {}

    def found(self) -> Mapping[str, str]:
        """For each part that is not ready, why."""
        return self._found

    async def look(self) -> None:
        """Ask each of the services once. The first one with a problem of a part names it."""
        found: dict[str, str] = {}
        for service in self.services:
            for part, problem in (await service.problems()).items():
                if problem:
                    found.setdefault(part, problem)
        self._found = found

    async def watch(self) -> None:
        """Keep `found` up to date until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_IMPATIENT_S if self._found else _REST_S)
