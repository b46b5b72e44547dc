"""A stream that keeps given facts, as whoever reads it from the beginning sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from colo_common.events.fact import Fact

__all__ = ["KeptFacts"]


class KeptFacts:
    """A Replay of facts in memory; it keeps them all, whatever is asked of their age."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self._facts = facts

    async def facts(
        self,
        types: Sequence[type[Fact]],
        take: Callable[[Fact], None],
        *,
        newest_ms: int | None = None,
        newest_of: Sequence[type[Fact]] = (),
    ) -> int:
        """See Replay.facts."""
        del newest_ms, newest_of
        found = [fact for fact in self._facts if isinstance(fact, tuple(types))]
        for fact in found:
            take(fact)
        return len(found)
