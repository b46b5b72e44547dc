"""What the ledger said no to: it is counted, and asked anew after a while; nothing else waits for it."""

from collections import Counter
from itertools import islice
from typing import Final

from colo_common.events.effects import Effect
from colo_common.model.reasons import Reason
from colo_scheduler.ledger.port import (
    CALL_MAX,
    Attempt,
    CommitLedger,
    ConfirmHolds,
    ForgetRows,
    HoldRefused,
    LedgerAnswered,
    LedgerRefused,
    LoadLedgerRows,
    NodeAnswer,
    NodeCommit,
    RefreshLedger,
    ReleaseHolds,
)
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.requests.queue import BackoffPolicy

__all__ = ["LedgerRetry", "as_answered"]

_WAIT_MOST_MS: Final = 60_000
# So long the shell asks before it takes a no for an answer, and longer.
_CALL_MOST_MS: Final = 10_000


class LedgerRetry:
    """Releases, rows and refreshes that are asked anew a while after the last no; at most `over_max` releases.

    The wait is `conflict_wait_ms`, doubled with every no in a row, up to a minute.

    A confirmation is not asked anew: after a restart it is only asked for once more whether the order was carried out. Nor is it
    asked anew to forget rows: those that stay are met again.
    """

    def __init__(self, policy: SchedulerPolicy, counts: Counter[str]) -> None:
        first_ms = policy.conflict_wait_ms
        self._backoff = BackoffPolicy(first_ms=first_ms, most_ms=max(first_ms, _WAIT_MOST_MS))
        self._noes = 0
        self._forgiven_ms = 0
        self._most = policy.over_max
        self._counts = counts
        self._releases: dict[Attempt, None] = {}
        self._nodes: dict[str, None] = {}
        self._refreshes = False
        self.deadline_ms: int | None = None
        """When something is asked anew; None while nothing is."""

    def note(self, event: LedgerRefused, now_ms: int) -> None:
        """Take what is to be asked anew; a commit is not (`as_answered`)."""
        effect = event.effect
        if event.is_late:
            return
        self._counts[f"ledger_refused_{type(effect).__name__}"] += 1
        match effect:
            case ReleaseHolds():
                self._releases |= dict.fromkeys(effect.attempts)
                for attempt in list(islice(self._releases, max(0, len(self._releases) - self._most))):
                    del self._releases[attempt]
                    self._counts["releases_left_out"] += 1
            case LoadLedgerRows():
                self._nodes |= dict.fromkeys(effect.nodes)
            case RefreshLedger():
                self._refreshes = True
            case CommitLedger() | ConfirmHolds() | ForgetRows():
                return
        if self.deadline_ms is None:
            # A no that comes later than this is the first one again: the ledger has said yes meanwhile.
            self._noes = self._noes + 1 if now_ms <= self._forgiven_ms else 1
        wait_ms = self._backoff.after(self._noes)
        self.deadline_ms = now_ms + wait_ms
        self._forgiven_ms = self.deadline_ms + 2 * wait_ms + _CALL_MOST_MS

    def take_due(self, now_ms: int) -> list[Effect]:
        """What is to be asked anew now."""
        if self.deadline_ms is None or now_ms < self.deadline_ms:
            return []
        ended, nodes = list(self._releases), list(self._nodes)
        effects: list[Effect] = [RefreshLedger()] if self._refreshes else []
        effects += [LoadLedgerRows(nodes=tuple(nodes[at : at + CALL_MAX])) for at in range(0, len(nodes), CALL_MAX)]
        effects += [ReleaseHolds(attempts=tuple(ended[at : at + CALL_MAX])) for at in range(0, len(ended), CALL_MAX)]
        self._releases, self._nodes, self._refreshes, self.deadline_ms = {}, {}, False, None
        return effects


def as_answered(effect: CommitLedger) -> LedgerAnswered:
    """A commit that was not done, as an answer: every place is given back, and the rows are read before all else."""
    return LedgerAnswered(answers=tuple(_refusal(reserve) for reserve in effect.reserves))


def _refusal(reserve: NodeCommit) -> NodeAnswer:
    refused = tuple(
        HoldRefused(replica=replica, attempt=attempt, reason=Reason.LEDGER_DISAGREES)
        for replica, attempt in (hold.attempt for hold in reserve.holds)
    )
    return NodeAnswer(node=reserve.node, revision=-1, changes=-1, refused=refused)
