"""What an operator may set of the scheduler."""

from msgspec import Struct, field

from colo_scheduler.queue import Backoff
from colo_scheduler.scores import Weights

__all__ = ["Policy"]


class Policy(Struct, frozen=True, kw_only=True):
    """What the core decides by. Every limit names what happens there.

    batch_max: the most wants decided between two looks at the inbox; the rest follow at once.
    quantum: the most equal wants decided in one turn, before an older want of another class has its turn.
    waiting_max: the most waiting wants; more are left out, counted, and asked for again when half of the room is free.
    records_max: the most decisions kept for explanations; the oldest is forgotten.
    over_max: the most finished attempts remembered here (the ledger remembers them longer).
    commit_tries: after so many lost commits in a row a want waits conflict_wait_ms.
    facts_max_age_ms: an allocatable older than this counts as not fresh (0: never).
    ledger_refresh_ms: how often to look for rows that other schedulers changed (0: never).
    """

    batch_max: int = 1_000
    quantum: int = 250
    waiting_max: int = 200_000
    records_max: int = 20_000
    over_max: int = 200_000
    commit_tries: int = 5
    conflict_wait_ms: int = 1_000
    facts_max_age_ms: int = 300_000
    ledger_refresh_ms: int = 30_000
    reject_again_ms: int = 60_000
    score_rows: int = 5
    backoff: Backoff = field(default_factory=Backoff)
    weights: Weights = field(default_factory=Weights)
