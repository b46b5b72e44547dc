"""What the machines and the moves of replicas may speak against a world at its end, whatever its services believed.

Without faults of the agents online work is hurt for at most one percent of the machines' time, and ten seconds in one piece. A
world may cut off, stop or kill agents: a reflex that does not run takes nothing back, so that harm lasts for as long as an agent
may be away beside that, and two percent in all. Where machines live so shortly that one such piece is more than the share, the
piece counts. Replicas may come back to a node that they left (A -> B -> A) for a reason from outside, such as a node that was
lost: in one of two moves, and twice in a world of few.

The worlds of the first forty seeds came to about half of that at most: 0.9 percent, four seconds in one piece, 6 of 18 moves back
in a world of two nodes, where every second move is one, and 4 of 31 else. Of 225 later ones one was above the share: 8 s of
492 s in pieces of a second, in each of which the kernel killed batch work for memory.
"""

from __future__ import annotations

from typing import Final

from colo_sim.faults import FaultKind, FaultPlan
from colo_sim.world import Outcome, WorldSettings

__all__ = ["broken_bound"]

HARM_MOST_PERMILLE: Final = 10
HARM_LONGEST_MS: Final = 10_000
AWAY_PERMILLE: Final = 20
BACK_OF_MOVES: Final = 2
BACK_ALWAYS: Final = 2
#: After these an agent of a node hears, measures or does nothing for a while.
AGENT_FAULTS: Final[frozenset[FaultKind]] = frozenset(
    {
        "crash-executor",
        "crash-collector",
        "stop-node",
        "cut-node",
        "cut-one-way",
        "lose-node",
        "step-clock",
        "tear-journal",
    }
)


def broken_bound(settings: WorldSettings, outcome: Outcome) -> str:
    """The first bound that the world broke, as a sentence; "" when it kept all."""
    away_ms = _agents_away_ms(settings.faults, settings.other_versions)
    harm = outcome.online
    permille = AWAY_PERMILLE if away_ms else HARM_MOST_PERMILLE
    longest_ms = HARM_LONGEST_MS + away_ms
    if harm.added_ms * 1_000 > max(permille * harm.node_ms, longest_ms * 1_000):
        return f"batch work hurt online work for more than {permille} permille of the time: {harm}"
    if harm.longest_added_ms > longest_ms:
        return f"batch work hurt online work for longer than {longest_ms} ms: {harm}"
    if outcome.moves_back > BACK_ALWAYS + outcome.moves // BACK_OF_MOVES:
        return f"replicas move to and fro: {outcome.moves_back} of {outcome.moves} moves were A -> B -> A"
    return ""


def _agents_away_ms(faults: FaultPlan, other_versions: int) -> int:
    """For how long an agent may do nothing in one piece; 0 where nothing strikes it."""
    if not other_versions and AGENT_FAULTS.isdisjoint(kind for kind, _ in faults.weights):
        return 0
    return faults.away_most_ms * (10 if faults.long_permille else 1) + faults.down_most_ms
