"""Keeps the book in step with the rows that others wrote and with what the ledger holds.

The ledger is the truth about places, a row about the rest. What a row says of a place is taken when the ledger's row of that node
was read too; a place in the ledger without a row is let go when there really is no row. So whichever scheduler writes first, all
come to the same: who loses a row to another reads it and adds to it what the ledger says.
"""

from collections.abc import Callable, Sequence

from msgspec import structs

from colo_common.events.effects import Conflict, Effect
from colo_common.events.reservation import ReservationChanged
from colo_common.model.placement import Placement
from colo_scheduler.commit.commit import load_rows
from colo_scheduler.ledger.port import Attempt, LedgerRows
from colo_scheduler.ledger.reservation_names import name_of
from colo_scheduler.reservations.lifecycle import ReservationPhase
from colo_scheduler.reservations.reservation import Reservation, attempt_of
from colo_scheduler.reservations.rows import DELETED, LoadReservations, ReservationsLoaded
from colo_scheduler.reservations.state import ReservationState

__all__ = ["ReservationReconciler"]

_ROWS_A_CALL = 200


class ReservationReconciler:
    """Rows of reservations and of the ledger as they are read. `left` is told of attempts that hold nothing any more."""

    def __init__(self, state: ReservationState, left: Callable[[Sequence[Attempt], int], None]) -> None:
        self._state = state
        self._left = left
        self._unheld: dict[str, Reservation] = {}
        self._strays: dict[Attempt, None] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nothing is waited for."""
        return not (self._unheld or self._strays)

    def to_read(self) -> list[Effect]:
        """Read what is to be read."""
        names, nodes = list(self._state.unread), list(self._state.unloaded)
        self._state.unread.clear()
        self._state.unloaded.clear()
        effects: list[Effect] = load_rows(nodes)
        for at in range(0, len(names), _ROWS_A_CALL):
            effects.append(LoadReservations(names=tuple(names[at : at + _ROWS_A_CALL])))
        return effects

    def took_rows(self, event: LedgerRows, now_ms: int) -> None:
        """Rows were read again: come into step with what is held now."""
        nodes = {row.node for row in event.rows}
        self._left(
            [attempt for attempt in self._state.book.used_by() if attempt not in self._state.commits.held], now_ms
        )
        for found in self._state.book.on_nodes(nodes):
            if attempt_of(found) not in self._state.commits.held:
                self._state.apply(self._state.book.renew(found.spec.name, now_ms))
        for name, found in list(self._unheld.items()):
            if found.place is not None and found.place.node in nodes:
                del self._unheld[name]
                is_held = attempt_of(found) in self._state.commits.held
                self._load_row(found if is_held else self._without_place(found, now_ms), now_ms)
        inside = {each.attempt: each.inside for row in event.rows for each in row.reservations if each.inside}
        self._state.apply(self._state.book.load((), self._news(event), now_ms, inside))
        for found in self._state.book.on_nodes(nodes):
            self._state.resize(found.spec.name)

    def _news(self, event: LedgerRows) -> list[Placement]:
        """What is held that the book does not know of: places that were found, owners that came."""
        book, news = self._state.book, []
        for row in event.rows:
            for attempt, placement in [(each.attempt, each.placement) for each in row.reservations]:
                held = self._state.commits.held.get(attempt)
                if held is None or held.is_assumed or book.is_used_by(attempt):
                    continue
                if name := name_of(placement.replica):
                    held.is_confirmed = True
                    self._look_for(name, attempt)
                    found = book.find(name)
                    if found is not None and attempt_of(found) == attempt and found.phase is ReservationPhase.PENDING:
                        news += [placement, *self._held_ones(held.inside)]
                elif placement.reservation:
                    news.append(placement)
        return news

    def _held_ones(self, attempts: Sequence[Attempt]) -> list[Placement]:
        """The places of those that the ledger has."""
        found = [self._state.commits.held.get(attempt) for attempt in attempts]
        return [each.placement for each in found if each is not None and not each.is_assumed]

    def _without_place(self, found: Reservation, now_ms: int) -> Reservation:
        """Somebody emptied the ledger: the place is sought anew, unless the only use there may be is there."""
        node = self._state.cluster.find(found.place.node) if found.place is not None else None
        holds = [
            self._state.commits.held[attempt]
            for attempt in (node.holds if node else ())
            if attempt in self._state.commits.held
        ]
        if found.spec.allocate_once and any(each.placement.reservation == found.spec.name for each in holds):
            return found
        self._state.unwritten[found.spec.name] = None
        return structs.replace(
            found, phase=ReservationPhase.PENDING, place=None, attempt=max(found.attempt + 1, now_ms)
        )

    def read(self, event: ReservationsLoaded, now_ms: int) -> None:
        """Take rows as they are now, with what the ledger holds for them."""
        for row in event.rows:
            found, known = row.reservation, self._state.book.find(row.reservation.spec.name)
            # A row that was removed and written anew counts its versions from the beginning; attempts only rise.
            is_later = known is None or found.attempt > known.attempt
            if is_later or self._state.versions.get(found.spec.name, 0) < row.version:
                self._state.versions[found.spec.name] = row.version
                self._state.unwritten.pop(found.spec.name, None)
                self._take_row(found, now_ms)
        self._state.versions |= dict(event.unreadable)
        for name in event.missing:
            self._state.versions.pop(name, None)
            self._state.unwritten.pop(name, None)
            if (found_here := self._state.book.find(name)) is not None:
                self._state.give_up(found_here)
                self._state.apply(self._state.book.delete(name))
        if not self._state.commits.is_loaded:
            self._find_strays()
            return
        for attempt in [each for each in self._strays if name_of(each[0]) in event.missing]:
            del self._strays[attempt]
            self._state.end(attempt)

    def _find_strays(self) -> None:
        """Holds that stand for no reservation that was read; perhaps it was written meanwhile."""
        for attempt, held in self._state.commits.held.items():
            name = name_of(attempt[0])
            if not name:
                continue
            held.is_confirmed = True
            self._look_for(name, attempt)

    def _look_for(self, name: str, attempt: Attempt) -> None:
        found = self._state.book.find(name)
        if found is None or attempt_of(found) != attempt:
            self._strays[attempt] = None
            self._state.unread[name] = None

    def _take_row(self, found: Reservation, now_ms: int) -> None:
        name, attempt = found.spec.name, attempt_of(found)
        before = self._state.book.find(name)
        if before is not None and (attempt_of(before) != attempt or found.phase is not ReservationPhase.PENDING):
            self._state.give_up(before)
        if (
            found.phase is ReservationPhase.AVAILABLE
            and found.place is not None
            and attempt not in self._state.commits.held
        ):
            # Until it is known what is held there now.
            self._unheld[name] = found
            self._state.unloaded[found.place.node] = None
            return
        self._load_row(found, now_ms)

    def _load_row(self, found: Reservation, now_ms: int) -> None:
        name, attempt = found.spec.name, attempt_of(found)
        book, commits = self._state.book, self._state.commits
        before, held = book.find(name), commits.held.get(attempt)
        placements: list[Placement] = []
        inside: dict[Attempt, tuple[Attempt, ...]] = {}
        if found.phase is ReservationPhase.PENDING and held is not None and not held.is_assumed:
            placements += [held.placement, *self._held_ones(held.inside)]
            inside[attempt] = held.inside
        placements += self._held_ones(found.over)
        node = self._state.cluster.find(found.place.node) if found.place is not None else None
        for other in node.holds if node is not None else ():
            of_node = commits.held.get(other)
            if of_node is not None and not of_node.is_assumed and of_node.placement.reservation == name:
                placements.append(of_node.placement)
        self._state.apply(self._state.book.load([found], placements, now_ms, inside))
        for old in (before, found if found.phase.is_ended else None):
            if (
                old is not None
                and (old is found or attempt_of(old) != attempt)
                and attempt_of(old) in self._state.commits.held
            ):
                self._state.end(attempt_of(old))
        if attempt in self._strays:
            del self._strays[attempt]
        self._state.resize(name)
        self._state.is_unqueued = True
        self._state.has_news = True

    def conflict(self, event: Conflict) -> None:
        """Another scheduler changed a row first: what it wrote is read, and what the ledger says is added to it."""
        self._state.counts["reservation_conflicts"] += 1
        # Whatever its version is, it is another row than ours.
        self._state.versions[event.id] = 0
        self._state.unread[event.id] = None

    def heard(self, event: ReservationChanged) -> None:
        """Somebody said how a reservation is; what is not so here is read."""
        found = self._state.book.find(event.reservation)
        is_known = found is not None and found.phase.value == event.phase and attempt_of(found)[1] == event.attempt
        if not is_known and (found is not None or event.phase != DELETED):
            self._state.unread[event.reservation] = None
        elif event.node and event.owners != len(self._state.book.owners(event.reservation)):
            # Owners came or left elsewhere, unless it is we who said so and know better by now.
            self._state.unloaded[event.node] = None
