"""The book of reservations beside the ledger: what is held for each, what is still to be written, said or read."""

from collections import Counter
from collections.abc import Callable, Sequence

from colo_common.events.effects import Effect, Publish, Record, Write
from colo_common.events.reservation import ReservationChanged
from colo_common.model.placement import attempt_key
from colo_scheduler.cluster.cluster import Cluster
from colo_scheduler.commit.commit import Commits
from colo_scheduler.ledger.port import Attempt
from colo_scheduler.ledger.shards import Shards
from colo_scheduler.requests.queue import RequestQueue
from colo_scheduler.reservations.book import ReservationBook
from colo_scheduler.reservations.expiry import last_ms
from colo_scheduler.reservations.lifecycle import ReservationPhase
from colo_scheduler.reservations.reservation import BookChange, HoldChanged, PhaseChanged, Reservation, attempt_of
from colo_scheduler.reservations.rows import KIND, encode_row
from colo_scheduler.reservations.snapshot import ReservationSnapshot

__all__ = ["ReservationState"]


class ReservationState:
    """What the parts of the core's work with reservations share. `end` lets go of an attempt for good.

    `unwritten`, `redelivery`, `unread`: reservations whose rows are to be written, of which something is to be said, whose rows
    are to
    be read; `unloaded`: nodes whose ledger rows are to be read. `is_unqueued`: one may wait for a place that is in no queue;
    `has_news`: owners may find a place that was not there before.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: RequestQueue,
        commits: Commits,
        counts: Counter[str],
        shards: Shards,
        end: Callable[[Attempt], None],
    ) -> None:
        self.book = ReservationBook()
        self.places = ReservationSnapshot(self.book)
        self.cluster = cluster
        self.queue = queue
        self.commits = commits
        self.counts = counts
        self.shards = shards
        self.end = end
        self.versions: dict[str, int] = {}
        self.unwritten: dict[str, None] = {}
        self.redelivery: dict[str, None] = {}
        self.unread: dict[str, None] = {}
        self.unloaded: dict[str, None] = {}
        self.is_unqueued = False
        self.has_news = False

    @property
    def has_pending_output(self) -> bool:
        """Whether something is to be written, said or read at the next Wake."""
        return bool(self.unwritten or self.redelivery or self.unread or self.unloaded or self.has_news)

    def apply(self, changes: Sequence[BookChange]) -> None:
        """Do what the book says has to change."""
        for change in changes:
            self.take_change(change)

    def take_change(self, change: BookChange) -> None:
        """One of them."""
        match change:
            case PhaseChanged(name=name, phase=phase):
                self.unwritten[name] = None
                self.counts[f"reservations_{phase.value.lower()}"] += 1
                found = self.book.find(name)
                if phase is ReservationPhase.PENDING:
                    self.is_unqueued = True
                elif phase is ReservationPhase.AVAILABLE:
                    self.has_news = True
                elif found is not None:
                    self.give_up(found)
            case HoldChanged(name=name, attempt=attempt):
                found = self.book.find(name)
                is_held = (
                    found is not None and found.phase is ReservationPhase.AVAILABLE and attempt_of(found) == attempt
                )
                if not is_held:
                    self.end(attempt)
                elif self.resize(name):
                    self.redelivery[name] = None

    def give_up(self, found: Reservation) -> None:
        """It waits no more; a place that is on its way is given back when it comes."""
        attempt = attempt_of(found)
        self.queue.remove(attempt)
        self.commits.gave_up(attempt)

    def resize(self, name: str) -> bool:
        """Hold for a reservation what its owners leave; whether that is another amount than before."""
        found, placement = self.book.find(name), self.places.placement(name)
        if found is None or placement is None:
            return False
        return self.commits.change(attempt_of(found), placement)

    # ---- words

    def row(self, name: str, now_ms: int) -> list[Effect]:
        """The Record of a reservation as it is, and the fact."""
        found = self.book.find(name)
        if found is None:
            return self.record(name)
        return [*self.record(name), self.fact(found, found.phase.value, now_ms)]

    def record(self, name: str) -> list[Effect]:
        """The Record of a reservation as it is, or that it is gone; none when there is no row of it."""
        found, version = self.book.find(name), self.versions.get(name, 0)
        if found is None:
            self.versions.pop(name, None)
            write = Write(kind=KIND, id=name, value=None, expect=version)
            return [Record(writes=(write,))] if version else []
        self.versions[name] = version + 1
        return [Record(writes=(Write(kind=KIND, id=name, value=encode_row(found), expect=version),))]

    def fact(self, found: Reservation, phase: str, now_ms: int) -> Publish:
        """What is said of it."""
        name, (replica, attempt) = found.spec.name, attempt_of(found)
        left = self.places.remainder(name) if phase == ReservationPhase.AVAILABLE.value else None
        fact = ReservationChanged(
            at_ms=now_ms,
            reservation=name,
            phase=phase,
            reason=found.reason,
            replica=replica,
            attempt=attempt,
            qos=found.spec.qos,
            band=found.spec.band,
            node=found.place.node if found.place else "",
            zones=left.zones if left else (),
            owners=len(self.book.owners(name)),
            expires_at_ms=last_ms(found.created_ms, found.spec.ttl_ms, found.spec.expires_ms) or 0,
        )
        key = attempt_key(replica, attempt)
        return Publish(fact=fact, id=f"scheduler:reservation:{key}:{phase}:{now_ms}:{fact.owners}")
