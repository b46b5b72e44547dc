"""Retries calls that the ledger refused: each refusal is counted, and the call is made again later; nothing else waits for it."""

from collections import Counter
from itertools import islice
from typing import Final

from colo_common.events.effects import Effect
from colo_common.model.reasons import Reason
from colo_scheduler.ledger.port import (
    CALL_MAX,
    CommitLedger,
    ConfirmHolds,
    Ending,
    ForgetRows,
    HoldRefused,
    LedgerAnswered,
    LedgerRefused,
    LoadLedgerRows,
    NodeAnswer,
    NodeCommit,
    PutBackRows,
    RefreshLedger,
    ReleaseHolds,
)
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.requests.queue import BackoffPolicy

__all__ = ["LedgerRetry", "as_answered"]

_WAIT_MOST_MS: Final = 60_000
# Longer than the shell retries one call before it reports the refusal.
_CALL_MOST_MS: Final = 10_000


class LedgerRetry:
    """Releases, row reads and refreshes that are called again some time after a refusal; at most `over_max` releases.

    The wait is `conflict_wait_ms`, doubled with every refusal in a row, up to a minute.

    A confirmation is not retried: without it a restart asks once more whether the order was carried out. Forgetting rows is not
    retried either: rows that stay are found again.
    """

    def __init__(self, policy: SchedulerPolicy, counts: Counter[str]) -> None:
        first_ms = policy.conflict_wait_ms
        self._backoff = BackoffPolicy(first_ms=first_ms, most_ms=max(first_ms, _WAIT_MOST_MS))
        self._noes = 0
        self._forgiven_ms = 0
        self._most = policy.over_max
        self._counts = counts
        self._releases: dict[Ending, None] = {}
        self._nodes: dict[str, None] = {}
        self._refreshes = False
        self.deadline_ms: int | None = None
        """When the next call is made again; None without one."""

    def note(self, event: LedgerRefused, now_ms: int) -> None:
        """Note a refused call for a retry. A commit is not retried here (`as_answered`)."""
        effect = event.effect
        if event.is_late:
            return
        self._counts[f"ledger_refused_{type(effect).__name__}"] += 1
        match effect:
            case ReleaseHolds():
                self._releases |= dict.fromkeys(effect.endings)
                for ending in list(islice(self._releases, max(0, len(self._releases) - self._most))):
                    del self._releases[ending]
                    self._counts["releases_left_out"] += 1
            case LoadLedgerRows():
                self._nodes |= dict.fromkeys(effect.nodes)
            case PutBackRows():
                # A row that is still lost is put back when it is read.
                self._nodes |= dict.fromkeys(row.node for row in effect.rows)
            case RefreshLedger():
                self._refreshes = True
            case CommitLedger() | ConfirmHolds() | ForgetRows():
                return
        if self.deadline_ms is None:
            # A refusal later than _forgiven_ms counts as the first: the ledger has accepted calls meanwhile.
            self._noes = self._noes + 1 if now_ms <= self._forgiven_ms else 1
        wait_ms = self._backoff.after(self._noes)
        self.deadline_ms = now_ms + wait_ms
        self._forgiven_ms = self.deadline_ms + 2 * wait_ms + _CALL_MOST_MS

    def take_due(self, now_ms: int) -> list[Effect]:
        """The calls that are due again now."""
        if self.deadline_ms is None or now_ms < self.deadline_ms:
            return []
        nodes = list(self._nodes)
        effects: list[Effect] = [RefreshLedger()] if self._refreshes else []
        effects += [LoadLedgerRows(nodes=tuple(nodes[at : at + CALL_MAX])) for at in range(0, len(nodes), CALL_MAX)]
        effects += ReleaseHolds.of(self._releases)
        self._releases, self._nodes, self._refreshes, self.deadline_ms = {}, {}, False, None
        return effects


def as_answered(effect: CommitLedger) -> LedgerAnswered:
    """The answer for a commit that was not written: every place is refused, so that it is given back and its row is read."""
    return LedgerAnswered(answers=tuple(_refusal(reserve) for reserve in effect.reserves))


def _refusal(reserve: NodeCommit) -> NodeAnswer:
    refused = tuple(
        HoldRefused(replica=replica, attempt=attempt, reason=Reason.LEDGER_DISAGREES)
        for replica, attempt in (hold.attempt for hold in reserve.holds)
    )
    return NodeAnswer(node=reserve.node, revision=-1, changes=-1, refused=refused)
