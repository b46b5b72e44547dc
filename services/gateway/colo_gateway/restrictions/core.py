"""The core that owns the table of restrictions: changes it with compare-and-set, publishes it, and follows who has obeyed it.

Several gateways may run. The row in the store decides: a change that another gateway made first is read, and the request is
decided again on top of it.
"""

import difflib
from typing import Final, assert_never

import msgspec
from msgspec import Struct, structs

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
from colo_common.events.node import AllocatableChanged, FreshnessChanged, NodeTopologyReported
from colo_common.events.registry import Stream
from colo_common.events.requests import Refusal
from colo_common.events.restriction import (
    LiftRestrictions,
    ListRestrictions,
    RestrictionChange,
    RestrictionList,
    RestrictionsApplied,
    RestrictionsChanged,
    SetRestriction,
)
from colo_common.model.freshness import Freshness
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.paging import PAGE_BYTES, json_bytes
from colo_common.model.received_fences import ReceivedFences
from colo_common.model.restriction import (
    RESTRICTIONS_MOST,
    Restriction,
    RestrictionKey,
    RestrictionKind,
    RestrictionScope,
)
from colo_gateway.pending_requests import PendingRequests
from colo_gateway.restrictions.progress import QuiesceFollower
from colo_gateway.restrictions.rules import check_target, check_text, restriction_asked
from colo_gateway.revisions import next_revision

__all__ = ["ROW_ID", "ROW_KIND", "LoadRestrictions", "RestrictionCore", "RestrictionRow", "RestrictionsLoaded"]

ROW_KIND: Final = "restrictions"
ROW_ID: Final = "table"
_AUDIT_MOST: Final = 200


class RestrictionRow(Struct, frozen=True, kw_only=True):
    """The stored table, its revision, and its newest changes, newest first."""

    revision: int = 0
    restrictions: tuple[Restriction, ...] = ()
    audit: tuple[RestrictionChange, ...] = ()


class LoadRestrictions(Struct, frozen=True, kw_only=True):
    """Effect: read the row. Answered by RestrictionsLoaded."""


class RestrictionsLoaded(Struct, frozen=True, kw_only=True):
    """Event: the row and its version, 0 when there is none."""

    version: int
    row: RestrictionRow


Event = (
    RestrictionsLoaded
    | RestrictionsChanged
    | RestrictionsApplied
    | NodeTopologyReported
    | AllocatableChanged
    | FreshnessChanged
    | RequestReceived
    | Conflict
    | StoreLost
    | StreamLost
    | Wake
)


class RestrictionCore:
    """Keeps the table as its row says, the requests that wait for the row, and the nodes that are known."""

    def __init__(self) -> None:
        self.row = RestrictionRow()
        self.nodes: dict[str, Freshness] = {}
        self._fences = ReceivedFences()
        self._version = 0
        self._is_loaded = False
        self._by_key: dict[RestrictionKey, Restriction] = {}
        self._pending = PendingRequests()
        self._follower = QuiesceFollower()
        self._published: RestrictionsChanged | None = None
        # The newest row that the store has for certain: `row` may be one that it is still asked to take.
        self._stored = RestrictionRow()

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event and return its effects."""
        match event:
            case RequestReceived():
                return self._asked(event, now_ms)
            case RestrictionsLoaded():
                return self._loaded(event, now_ms)
            case RestrictionsChanged():
                return self._received(event, now_ms)
            case RestrictionsApplied():
                self._follower.applied(event)
            case NodeTopologyReported():
                self.nodes.setdefault(event.node, Freshness.UNKNOWN)
            case AllocatableChanged() | FreshnessChanged():
                if self._fences.admits(event.node, event.fence, now_ms):
                    self.nodes[event.node] = event.freshness
            case Conflict():
                self._pending.refused(event.expected)
                return [LoadRestrictions()]
            case StoreLost():
                value = msgspec.json.encode(self.row)
                put_back = Write(kind=ROW_KIND, id=ROW_ID, value=value, expect=self._version, puts_back=True)
                return [Record(writes=(put_back,))] if self._version else []
            case StreamLost():
                return self._published_again(now_ms) if event.stream == Stream.POLICY.value else []
            case Wake():
                return self._expire(now_ms)
            case _:
                assert_never(event)
        return []

    def deadline_ms(self) -> int | None:
        """When the next restriction is over by itself."""
        return min([each.until_ms for each in self._by_key.values() if each.until_ms is not None], default=None)

    def check(self) -> None:
        """Raise InvariantBroken when two restrictions have one key."""
        if len(self._by_key) != len(self.row.restrictions):
            raise InvariantBroken("two restrictions have one key", restrictions=len(self.row.restrictions))

    # ---- requests

    def _asked(self, request: RequestReceived, now_ms: int) -> list[Effect]:
        if not self._is_loaded:
            rule = "the restrictions are not read yet"
            return [Reply(request=request.request, body=Refusal(code=503, field="restrictions", rule=rule))]
        try:
            match request.body:
                case ListRestrictions():
                    changes: list[RestrictionChange] = []
                case SetRestriction():
                    changes = self._set(request.body, now_ms)
                case LiftRestrictions():
                    changes = self._lift(request.body, now_ms)
                case _:
                    got = type(request.body).__name__
                    refusal = Refusal(code=404, field="request", rule="is not answered here", got=got)
                    return [Reply(request=request.request, body=refusal)]
        except InvalidInput as error:
            refusal = Refusal(code=400, field=error.field, rule=error.rule, got=error.value)
            return [Reply(request=request.request, body=refusal)]
        except _RefusedError as error:
            return [Reply(request=request.request, body=error.refusal)]
        effects: list[Effect] = []
        # Nodes may follow the table of an installation that is gone: to lift what the first table lacks is to publish it.
        is_first = not self._version and isinstance(request.body, LiftRestrictions)
        if changes or is_first:
            self._pending.writing(self._version, request)
            effects = self._change(changes, now_ms)
        return [*effects, Reply(request=request.request, body=self._list(now_ms, tuple(changes)))]

    def _set(self, asked: SetRestriction, now_ms: int) -> list[RestrictionChange]:
        new = restriction_asked(asked, now_ms)
        if new.scope is RestrictionScope.NODE and self.nodes and new.target not in self.nodes:
            raise _RefusedError(self._unknown_node(new.target))
        old = self._by_key.get(new.key)
        if old is None and len(self._by_key) >= RESTRICTIONS_MOST:
            rule = f"at most {RESTRICTIONS_MOST} may be in force; lift some"
            raise _RefusedError(Refusal(code=429, field="restrictions", rule=rule, got=str(len(self._by_key))))
        size_bytes = json_bytes(new) + sum(json_bytes(each) for key, each in self._by_key.items() if key != new.key)
        if size_bytes > PAGE_BYTES:
            rule = f"names and reasons may have at most {PAGE_BYTES >> 10} KiB together; lift some"
            raise _RefusedError(Refusal(code=429, field="restrictions", rule=rule, got=f"{size_bytes >> 10} KiB"))
        if old is not None:
            new = structs.replace(new, since_ms=old.since_ms)
            # Without an end the same request again is the same; with one, its time begins again.
            if new == old:
                return []
        return [
            RestrictionChange(
                at_ms=now_ms,
                action="set" if old is None else "changed",
                restriction=new,
                by=new.by,
                reason=new.reason,
            )
        ]

    def _lift(self, asked: LiftRestrictions, now_ms: int) -> list[RestrictionChange]:
        if not asked.kinds:
            raise InvalidInput("kind", "must name what to lift: cordon, drain, pause, quiesce", "")
        check_text(asked.by, asked.reason)
        for kind in asked.kinds:
            check_target(kind, asked.scope, asked.target)
        found = [
            old
            for kind in dict.fromkeys(asked.kinds)
            if (old := self._by_key.get((kind.value, asked.scope.value, asked.target))) is not None
        ]
        is_unknown = asked.scope is RestrictionScope.NODE and self.nodes and asked.target not in self.nodes
        if not found and is_unknown:
            raise _RefusedError(self._unknown_node(asked.target))
        return [
            RestrictionChange(at_ms=now_ms, action="lifted", restriction=old, by=asked.by, reason=asked.reason)
            for old in found
        ]

    def _unknown_node(self, node: str) -> Refusal:
        near = difflib.get_close_matches(node, sorted(self.nodes), n=1, cutoff=0.5)
        return Refusal(
            code=404, field="node", rule="is not known" + (f"; did you mean {near[0]}?" if near else ""), got=node
        )

    # ---- changes

    def _change(self, changes: list[RestrictionChange], now_ms: int) -> list[Effect]:
        """Apply these changes: the effects that record the new table and publish it."""
        revision = next_revision(self.row.revision, now_ms)
        changes = [structs.replace(change, revision=revision) for change in changes]
        by_key = dict(self._by_key)
        for change in changes:
            if change.action in ("set", "changed"):
                by_key[change.restriction.key] = change.restriction
            else:
                by_key.pop(change.restriction.key, None)
        row = RestrictionRow(
            revision=revision,
            restrictions=tuple([by_key[key] for key in sorted(by_key)]),
            audit=(*reversed(changes), *self.row.audit)[:_AUDIT_MOST],
        )
        write = Write(kind=ROW_KIND, id=ROW_ID, value=msgspec.json.encode(row), expect=self._version)
        self._adopt(self._version + 1, row)
        if any(change.restriction.kind is RestrictionKind.QUIESCE for change in changes):
            self._follower.begin(row.revision)
        return [Record(writes=(write,)), self._publish(tuple(changes), now_ms)]

    def _publish(self, audit: tuple[RestrictionChange, ...], now_ms: int) -> Publish:
        row = self.row
        fact = RestrictionsChanged(at_ms=now_ms, revision=row.revision, restrictions=row.restrictions, audit=audit)
        return Publish(fact=fact, id=f"restrictions:{row.revision}")

    def _publish_again(self, older: RestrictionsChanged, now_ms: int) -> list[Effect]:
        """Publish the newest table that is stored for certain behind an older one: the bus keeps the message that came last.

        Two gateways may publish in the other order than they wrote, and one that starts publishes what it left unpublished. A
        table that waits for the store is not published here: where the store refuses it, its revision becomes another table's.
        """
        newest = self._stored
        if self._published is not None and self._published.revision > newest.revision:
            newest = RestrictionRow(revision=self._published.revision, restrictions=self._published.restrictions)
        if newest.revision <= older.revision:
            return []
        fact = RestrictionsChanged(at_ms=now_ms, revision=newest.revision, restrictions=newest.restrictions)
        return [Publish(fact=fact, id=f"restrictions:{newest.revision}:after:{older.boot_id}:{older.seq}")]

    def _published_again(self, now_ms: int) -> list[Effect]:
        """The newest table that is stored for certain, for a bus that lost it."""
        if not self._stored.revision:
            return []
        fact = RestrictionsChanged(at_ms=now_ms, revision=self._stored.revision, restrictions=self._stored.restrictions)
        return [Publish(fact=fact, id=f"restrictions:{fact.revision}")]

    def _adopt(self, version: int, row: RestrictionRow) -> None:
        self._version, self.row = version, row
        self._by_key = {each.key: each for each in row.restrictions}

    def _expire(self, now_ms: int) -> list[Effect]:
        over = [each for each in self._by_key.values() if each.until_ms is not None and each.until_ms <= now_ms]
        changes = [RestrictionChange(at_ms=now_ms, action="expired", restriction=each) for each in over]
        return self._change(changes, now_ms) if changes else []

    # ---- the row and the bus

    def _loaded(self, event: RestrictionsLoaded, now_ms: int) -> list[Effect]:
        is_first, self._is_loaded = not self._is_loaded, True
        self._adopt(event.version, event.row)
        self._stored = event.row
        effects = self._write_again()
        if is_first and event.version:
            # A bus that lost its streams learns the table again.
            effects.append(self._publish((), now_ms))
        if is_first:
            # The confirmations of the nodes are replayed: after a restart it is known who follows the last quiesce.
            quiesces = [each for each in self.row.audit if each.restriction.kind is RestrictionKind.QUIESCE]
            if quiesces:
                self._follower.begin(quiesces[0].revision)
        for request in self._pending.take_refused():
            effects += self._asked(request, now_ms)
        return effects

    def _write_again(self) -> list[Effect]:
        """Put the published table back into a store that lost it: what is published was stored before."""
        lost = self._published
        if lost is None or lost.revision <= self.row.revision:
            return []
        row = RestrictionRow(
            revision=lost.revision,
            restrictions=lost.restrictions,
            audit=(*reversed(lost.audit), *self.row.audit)[:_AUDIT_MOST],
        )
        write = Write(kind=ROW_KIND, id=ROW_ID, value=msgspec.json.encode(row), expect=self._version)
        self._adopt(self._version + 1, row)
        return [Record(writes=(write,))]

    def _received(self, event: RestrictionsChanged, now_ms: int) -> list[Effect]:
        """Read a table that is newer than the known one; publish the stored one again when it is newer than the received one."""
        self._follower.published(event)
        if self._published is None or event.revision > self._published.revision:
            self._published = event
            if any(change.restriction.kind is RestrictionKind.QUIESCE for change in event.audit):
                self._follower.begin(event.revision)
                self._follower.published(event)
        if not self._is_loaded:
            return []
        if event.revision == self.row.revision:
            if event.restrictions == self.row.restrictions:
                self._stored = self.row
            return []
        return self._publish_again(event, now_ms) if event.revision < self.row.revision else [LoadRestrictions()]

    def _list(self, now_ms: int, changes: tuple[RestrictionChange, ...]) -> RestrictionList:
        present = sorted(node for node, state in self.nodes.items() if state is not Freshness.LOST)
        return RestrictionList(
            revision=self.row.revision,
            now_ms=now_ms,
            restrictions=self.row.restrictions,
            changes=changes,
            audit=self.row.audit,
            quiesce=self._follower.progress(present),
        )


class _RefusedError(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal
