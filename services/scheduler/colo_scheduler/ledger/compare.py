"""Compares the ledger with the stream of facts, and puts back and releases there what Redis lost of both.

A Redis that begins again may lack its last second, or everything. Who wrote that, and lives, puts it back; what a scheduler wrote
that went down with Redis stands in the stream alone.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from msgspec import Struct

from colo_common.events.enforcement import PlacementRefused, ReplicaEnded
from colo_common.events.fact import Fact
from colo_common.events.job import ReplicasWithdrawn
from colo_common.model.placement import Placement
from colo_common.ports import Replay
from colo_scheduler.ledger.port import CALL_MAX, PUT_BACK_MAX, Ending, Ledger, NodeRow, ReleaseHolds
from colo_scheduler.ledger.rebuild import REBUILT_FROM, FactsOfHolds

__all__ = ["Compared", "compare_ledger", "ended_last", "read_rows"]

# Redis loses a second or two at its worst, and other schedulers may have gone on since.
_NEWEST_MS: Final = 120_000
# Ends come by the thousand, and only those of the lost seconds are needed.
_ENDED_MS: Final = 10_000


class Compared(Struct, frozen=True, kw_only=True):
    """The rows of the ledger after a comparison, the number of facts that were read, and what was put back and released.

    `from_jobs`: how many of the places that were put back no fact told, but the jobs service.
    """

    rows: tuple[NodeRow, ...]
    facts: int
    from_jobs: int = 0
    put_back: tuple[Ending, ...] = ()
    released: tuple[Ending, ...] = ()


async def read_rows(ledger: Ledger) -> tuple[NodeRow, ...]:
    """Every row of the ledger."""
    names = sorted(await ledger.changes())
    return tuple([row for at in range(0, len(names), CALL_MAX) for row in await ledger.rows(names[at : at + CALL_MAX])])


async def compare_ledger(
    ledger: Ledger, replay: Replay, known_places: Callable[[], Awaitable[Sequence[Placement]]] | None = None
) -> Compared:
    """Put back what was decided and not released and is in no row, and release what a row holds although it was released.

    Where the ledger has no rows, facts may be missing too: `known_places` tells what the jobs service knows to hold a place.

    A ledger without rows is compared with all that the stream keeps, any other one with its newest minutes: what was released then
    is over in the ledger once more, so that it is not decided again. Holds whose ends nobody published are left to `ended_last`.
    """
    before = await read_rows(ledger)
    facts = FactsOfHolds()
    count = await replay.facts(REBUILT_FROM, facts.take, newest_ms=_NEWEST_MS if before else None)
    from_jobs = 0 if before or known_places is None else facts.take_known(await known_places())
    for call in ReleaseHolds.of(facts.released(before) if before else ()):
        await ledger.release(call.attempts, call.nodes)
    lost = facts.lost(before, await ledger.floor())
    for start in range(0, len(lost), PUT_BACK_MAX):
        await ledger.put_back(lost[start : start + PUT_BACK_MAX], 0)
    # What is over by the ledger was not put back: its release is about to be published.
    after = await read_rows(ledger)
    held, holds = _held(before), _held(after)
    return Compared(
        rows=after,
        facts=count,
        from_jobs=from_jobs,
        put_back=tuple(sorted(holds & _held(lost) - held)),
        released=tuple(sorted((held - holds).intersection(facts.released(before)))),
    )


def _held(rows: Sequence[NodeRow]) -> set[Ending]:
    return {(hold.attempt, row.node) for row in rows for hold in row.holds}


async def ended_last(replay: Replay) -> list[Fact]:
    """The ends that a scheduler may have received and acknowledged, while the releases that followed were lost.

    Nodes go on while no scheduler is there: what one handled last came before the newest fact about places.
    """
    found: list[Fact] = []
    for types in ((ReplicaEnded, PlacementRefused), (ReplicasWithdrawn,)):
        await replay.facts(types, found.append, newest_ms=_ENDED_MS, newest_of=REBUILT_FROM)
    return found
