"""The core that owns the colocation policy: changes its document with compare-and-set, publishes it, and keeps the ones before.

Several gateways may run. The row in the store decides: a change that another gateway made first is read, and the request is
decided again on top of it.
"""

from typing import Final, assert_never

import msgspec
from msgspec import Struct

from colo_common.events.effects import (
    Conflict,
    Effect,
    Publish,
    Record,
    Reply,
    RequestReceived,
    StoreLost,
    StreamLost,
    Wake,
    Write,
)
from colo_common.events.policy import ApplyPolicy, GetPolicy, PolicyChanged, PolicyReply, PolicyRevision, RollbackPolicy
from colo_common.events.requests import Refusal
from colo_common.model.colocation_policy import ColocationPolicy
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.restriction import BY_MOST, REASON_MOST
from colo_gateway.pending_requests import PendingRequests
from colo_gateway.revisions import next_revision

__all__ = ["ROW_ID", "ROW_KIND", "ReadPolicy", "PolicyCore", "PolicyLoaded", "PolicyRow"]

ROW_KIND: Final = "policy"
ROW_ID: Final = "colocation"
HISTORY_MOST: Final = 20
_NONE: Final = PolicyRevision(revision=0, at_ms=0, policy=ColocationPolicy())


class PolicyRow(Struct, frozen=True, kw_only=True):
    """The stored documents, newest first; the first one is in force."""

    history: tuple[PolicyRevision, ...] = ()

    @property
    def current(self) -> PolicyRevision:
        """The document in force: an empty one of revision 0 before any was applied."""
        return self.history[0] if self.history else _NONE


class ReadPolicy(Struct, frozen=True, kw_only=True):
    """Effect: read the row. Answered by PolicyLoaded."""


class PolicyLoaded(Struct, frozen=True, kw_only=True):
    """Event: the row and its version, 0 when there is none."""

    version: int
    row: PolicyRow


Event = PolicyLoaded | PolicyChanged | RequestReceived | Conflict | StoreLost | StreamLost | Wake


class PolicyCore:
    """Keeps the documents as their row says, and the requests that wait for the row."""

    def __init__(self) -> None:
        self.row = PolicyRow()
        self._version = 0
        self._is_loaded = False
        self._pending = PendingRequests()
        self._published: PolicyChanged | None = None
        # The newest revision that the store has for certain: that of `row` may be one that it is still asked to take.
        self._stored = _NONE

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event and return its effects."""
        match event:
            case RequestReceived():
                return self._asked(event, now_ms)
            case PolicyLoaded():
                return self._loaded(event, now_ms)
            case PolicyChanged():
                return self._received(event, now_ms)
            case Conflict():
                self._pending.refused(event.expected)
                return [ReadPolicy()]
            case StoreLost():
                return [self._write(self._version, puts_back=True)] if self._version else []
            case StreamLost():
                # The newest that is stored for certain, as for whoever hears an older document.
                return [self._publish(self._stored, now_ms)] if self._stored.revision else []
            case Wake():
                return []
            case _:
                assert_never(event)

    def deadline_ms(self) -> int | None:
        """Nothing here happens by itself."""
        return None

    def check(self) -> None:
        """Raise InvariantBroken when the revisions do not fall."""
        revisions = [each.revision for each in self.row.history]
        if revisions != sorted(set(revisions), reverse=True):
            raise InvariantBroken("the revisions of the policy do not fall", revisions=revisions)

    def _asked(self, request: RequestReceived, now_ms: int) -> list[Effect]:
        if not self._is_loaded:
            rule = "the policy is not read yet"
            return [Reply(request=request.request, body=Refusal(code=503, field="policy", rule=rule))]
        try:
            match request.body:
                case GetPolicy():
                    new = None
                case ApplyPolicy():
                    new = self._applied(request.body, now_ms)
                case RollbackPolicy():
                    new = self._rolled_back(request.body, now_ms)
                case _:
                    got = type(request.body).__name__
                    refusal = Refusal(code=404, field="request", rule="is not answered here", got=got)
                    return [Reply(request=request.request, body=refusal)]
        except InvalidInput as error:
            code = 409 if error.field == "expected" else 400
            refusal = Refusal(code=code, field=error.field, rule=error.rule, got=error.value)
            return [Reply(request=request.request, body=refusal)]
        effects: list[Effect] = []
        if new is not None:
            self._pending.writing(self._version, request)
            expected = self._version
            self._version, self.row = expected + 1, PolicyRow(history=(new, *self.row.history)[:HISTORY_MOST])
            effects = [self._write(expected), self._publish(new, now_ms)]
        reply = PolicyReply(now_ms=now_ms, current=self.row.current, history=self.row.history, changed=new is not None)
        return [*effects, Reply(request=request.request, body=reply)]

    def _applied(self, asked: ApplyPolicy, now_ms: int) -> PolicyRevision | None:
        """The new revision; None when the document is in force already."""
        asked.policy.validate()
        _check_text(asked.by, asked.reason)
        current = self.row.current
        if asked.expected is not None and asked.expected != current.revision:
            rule = f"is not in force any more: revision {current.revision} is, by {current.by or 'nobody named'}; look at it first"
            raise InvalidInput("expected", rule, asked.expected)
        if asked.policy == current.policy:
            return None
        return PolicyRevision(
            revision=next_revision(current.revision, now_ms),
            at_ms=now_ms,
            policy=asked.policy,
            form=asked.form,
            by=asked.by,
            reason=asked.reason,
        )

    def _rolled_back(self, asked: RollbackPolicy, now_ms: int) -> PolicyRevision | None:
        _check_text(asked.by, asked.reason)
        current = self.row.current
        if current.revision == 0:
            raise InvalidInput("revision", "no policy was applied yet", asked.revision)
        history = (*self.row.history, _NONE) if len(self.row.history) < HISTORY_MOST else self.row.history
        wanted = history[1].revision if asked.revision is None else asked.revision
        kept = {each.revision: each for each in history}
        if wanted not in kept:
            rule = f"is not kept; kept are {', '.join(map(str, sorted(kept)))}"
            raise InvalidInput("revision", rule, wanted)
        old = kept[wanted]
        if old.policy == current.policy:
            return None
        return PolicyRevision(
            revision=next_revision(current.revision, now_ms),
            at_ms=now_ms,
            policy=old.policy,
            form=old.form,
            by=asked.by,
            reason=asked.reason,
            rolled_back_to=wanted,
        )

    # ---- the row and the bus

    def _write(self, expected: int, *, puts_back: bool = False) -> Record:
        value = msgspec.json.encode(self.row)
        return Record(writes=(Write(kind=ROW_KIND, id=ROW_ID, value=value, expect=expected, puts_back=puts_back),))

    def _publish(self, current: PolicyRevision, now_ms: int, again: str = "") -> Publish:
        fact = PolicyChanged(
            at_ms=now_ms,
            revision=current.revision,
            policy=current.policy,
            form=current.form,
            by=current.by,
            reason=current.reason,
            rolled_back_to=current.rolled_back_to,
        )
        return Publish(fact=fact, id=f"policy:{current.revision}{again}")

    def _loaded(self, event: PolicyLoaded, now_ms: int) -> list[Effect]:
        is_first, self._is_loaded = not self._is_loaded, True
        self._version, self.row = event.version, event.row
        self._stored = event.row.current
        effects = self._write_again()
        if is_first and event.version:
            # A bus that lost its streams learns the document again.
            effects.append(self._publish(self.row.current, now_ms))
        for request in self._pending.take_refused():
            effects += self._asked(request, now_ms)
        return effects

    def _write_again(self) -> list[Effect]:
        """Put the published document back into a store that lost it: what is published was stored before."""
        lost = self._published
        if lost is None or lost.revision <= self.row.current.revision:
            return []
        revision = _revision_of(lost)
        expected = self._version
        self._version, self.row = expected + 1, PolicyRow(history=(revision, *self.row.history)[:HISTORY_MOST])
        return [self._write(expected)]

    def _received(self, event: PolicyChanged, now_ms: int) -> list[Effect]:
        """Read a document that is newer than the known one; publish the stored one again when it is newer than the received one."""
        if self._published is None or event.revision > self._published.revision:
            self._published = event
        current = self.row.current
        if not self._is_loaded:
            return []
        if event.revision == current.revision:
            if event.policy == current.policy:
                self._stored = current
            return []
        return self._publish_again(event, now_ms) if event.revision < current.revision else [ReadPolicy()]

    def _publish_again(self, older: PolicyChanged, now_ms: int) -> list[Effect]:
        """Publish the newest document that is stored for certain behind an older one: the bus keeps the message that came last.

        Two gateways may publish in the other order than they wrote. A document that waits for the store is not published here:
        where the store refuses it, its revision becomes another document's, and readers never go back.
        """
        newest = self._stored
        if self._published is not None and self._published.revision > newest.revision:
            newest = _revision_of(self._published)
        if newest.revision <= older.revision:
            return []
        return [self._publish(newest, now_ms, again=f":after:{older.boot_id}:{older.seq}")]


def _revision_of(fact: PolicyChanged) -> PolicyRevision:
    """The revision that was published."""
    return PolicyRevision(
        revision=fact.revision,
        at_ms=fact.at_ms,
        policy=fact.policy,
        form=fact.form,
        by=fact.by,
        reason=fact.reason,
        rolled_back_to=fact.rolled_back_to,
    )


def _check_text(by: str, reason: str) -> None:
    for field, text, most in (("by", by, BY_MOST), ("reason", reason, REASON_MOST)):
        if len(text) > most:
            raise InvalidInput(field, f"must have at most {most} characters", text[:40])
