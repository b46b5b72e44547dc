"""Answers ListHolds with all committed holds of the ledger, also where several schedulers write to it.

Places of other schedulers come to this scheduler's view with a refresh, so the first page is answered after a refresh.
"""

from typing import Final

from msgspec import Struct

from colo_common.events.effects import Effect, Reply
from colo_common.events.requests import HoldEntry, HoldsReply, ListHolds, Refusal
from colo_common.model.paging import cut_to_page
from colo_common.model.placement import Placement
from colo_scheduler.commit.commit import Commits
from colo_scheduler.ledger.port import RefreshLedger, name_of

__all__ = ["HoldsListing"]

_PAGE_MAX: Final = 1_000
_WAITING_MOST: Final = 64


class HoldsListing:
    """The requests that wait for a refresh, at most 64; more are refused. `is_shared`: other schedulers write to the ledger."""

    def __init__(self, commits: Commits, *, is_shared: bool) -> None:
        self._commits = commits
        self._is_shared = is_shared
        self._asked: dict[str, ListHolds] = {}
        self._waiting: dict[str, ListHolds] = {}
        self._missing: set[str] = set()

    def ask(self, request: str, body: ListHolds) -> list[Effect]:
        """Answer at once, or after a refresh. Later pages use the view of the first page, as far as it is unchanged."""
        refusal = self._refusal(body)
        if refusal is not None:
            return [Reply(request=request, body=refusal)]
        if not self._is_shared or body.offset:
            return [Reply(request=request, body=self._page(body))]
        if len(self._asked) + len(self._waiting) >= _WAITING_MOST:
            rule = f"{_WAITING_MOST} questions wait for the ledger, ask again in a moment"
            return [Reply(request=request, body=Refusal(code=503, field="ledger", rule=rule))]
        self._asked[request] = body
        return [RefreshLedger()]

    def changed(self, nodes: list[str]) -> list[Effect]:
        """Other schedulers changed these rows, which are being read: the answers wait for them."""
        if not self._asked:
            return []
        self._waiting |= self._asked
        self._asked.clear()
        self._missing.update(nodes)
        return self._answer()

    def took(self, nodes: list[str]) -> list[Effect]:
        """These rows were read: answer all waiting requests once no changed row is missing."""
        self._missing.difference_update(nodes)
        return self._answer()

    def refused(self) -> list[Effect]:
        """The ledger refused a read: refuse all waiting requests with code 503."""
        refusal = Refusal(code=503, field="ledger", rule="cannot be read now, ask again")
        replies: list[Effect] = [Reply(request=request, body=refusal) for request in (*self._waiting, *self._asked)]
        self._waiting.clear()
        self._asked.clear()
        self._missing.clear()
        return replies

    def _answer(self) -> list[Effect]:
        if self._missing or not self._waiting:
            return []
        replies: list[Effect] = [Reply(request=name, body=self._page(body)) for name, body in self._waiting.items()]
        self._waiting.clear()
        return replies

    def _refusal(self, body: ListHolds) -> Refusal | None:
        if body.offset < 0 or not 1 <= body.limit <= _PAGE_MAX:
            rule = f"offset is at least 0 and limit from 1 to {_PAGE_MAX}"
            return Refusal(code=400, field="limit", rule=rule, got=f"offset {body.offset}, limit {body.limit}")
        if not self._commits.is_loaded:
            return Refusal(code=503, field="ledger", rule="the ledger is not read yet")
        return None

    def _page(self, body: ListHolds) -> Struct:
        committed = [held.placement for held in self._commits.held.values() if not held.is_assumed]
        committed.sort(key=lambda p: (p.node, p.replica, p.attempt))
        holds = cut_to_page(committed[body.offset :], _entry_of, body.limit)
        return HoldsReply(holds=holds, total=len(committed))


def _entry_of(placement: Placement) -> HoldEntry:
    return HoldEntry.of(placement, is_reservation=bool(name_of(placement.replica)))
