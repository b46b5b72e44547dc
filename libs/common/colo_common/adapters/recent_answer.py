"""One question to a server for several askers of one process."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

__all__ = ["RecentAnswer"]

# Long enough for those who ask in a row, and short beside the second after which they ask again.
_KEPT_S: Final = 0.1


class RecentAnswer:
    """Asks one at a time; who asks within a tenth of a second of an answer gets that one. What `ask` raises is kept for nobody."""

    def __init__(self, ask: Callable[[], Awaitable[str]]) -> None:
        self._ask = ask
        self._asking = asyncio.Lock()
        self._answer = ""
        self._until_s = 0.0

    async def get(self) -> str:
        """The answer. Raises what `ask` raises."""
        async with self._asking:
            if asyncio.get_running_loop().time() >= self._until_s:
                self._answer = await self._ask()
                self._until_s = asyncio.get_running_loop().time() + _KEPT_S
            return self._answer
