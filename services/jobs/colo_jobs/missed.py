"""Jobs of which facts were missed: what a stream discarded, or what came while an instance could not read their rows.

An older version, to which a cluster was rolled back, cannot read the jobs of a newer one. Facts about them come and are
acknowledged all the same, so that version marks them in the store. Whoever can read them again compares them with what the ledger
holds, as after a gap in a stream, and takes the marks away. A loss is marked too until all of it is made good: whoever takes over
meanwhile begins the comparison again.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from colo_common.events.effects import Effect, Record, Write
from colo_common.model.partition import Share
from colo_jobs.effects import AskHolds, JobRowsLoaded
from colo_jobs.index import Key
from colo_jobs.job import HOLDING, Job
from colo_jobs.load import Loaded
from colo_jobs.records import MARK_KIND, loss_id

__all__ = ["MISSED_KIND", "MissedFacts"]

MISSED_KIND: Final = "job-missed"
_WRITTEN_AT_ONCE: Final = 200
# Longer than a node needs to answer an order, and a list of all holds is no question for every second.
_ANSWERED_WITHIN_MS: Final = 60_000
# What was on its way when facts were lost is delivered again after 30 s, and a few times more.
_DELIVERED_WITHIN_MS: Final = 120_000


class MissedFacts:
    """`doubted` are attempts that held a place when facts were missed: one that the ledger no longer holds has ended.

    Its node is ordered to stop it, and says how it ended. The order or the answer may be lost as the first fact was: what nobody
    answered is doubted again. So is everything once more when all that was on its way has arrived: of an attempt whose end was lost
    the place or the start may come after the comparison. `again_at_ms` is when the first of this is due.
    """

    def __init__(self, share: Share) -> None:
        self._loss_id = loss_id(share)
        self.doubted: dict[Key, int] = {}
        self._unanswered: dict[Key, int] = {}
        self._answered_by_ms: int | None = None
        # Of the first loss that waits for it, and of the newest one after that: losses that follow one another put nothing off.
        self._delivered_by_ms: int | None = None
        self._newest_by_ms: int | None = None
        # The marked jobs with the versions of their marks, and those of them that were compared.
        self._marks: dict[str, int] = {}
        self._compared: dict[str, int] = {}
        # The marks of losses in the store, with their versions.
        self._losses: dict[str, int] = {}

    @property
    def has_compared(self) -> bool:
        """Whether marks are to be taken away."""
        return bool(self._compared) or (bool(self._losses) and self._is_settled)

    @property
    def _is_settled(self) -> bool:
        """Whether nothing is doubted, and nothing will be."""
        return not self.doubted and not self._unanswered and self._delivered_by_ms is None

    @property
    def again_at_ms(self) -> int | None:
        """When something is to be doubted again; None: nothing is."""
        dues_ms = (self._answered_by_ms, self._delivered_by_ms)
        return min((due_ms for due_ms in dues_ms if due_ms is not None), default=None)

    def load(self, event: JobRowsLoaded, loaded: Loaded, now_ms: int) -> list[Effect]:
        """Take the marks of the store at the start, and begin the comparison again of the marked jobs that can be read.

        The mark of a loss is one of all jobs. The mark of a job that the store has no more is taken away.
        """
        self._losses = {row.id: row.version for row in event.losses}
        self._marks = {row.id: row.version for row in event.missed}
        marked = [job for job in loaded.jobs if job.id in self._marks]
        left = self._marks.keys() - {job.id for job in marked} - loaded.unreadable.keys()
        self._compared = {id_: self._marks.pop(id_) for id_ in sorted(left)}
        if not marked and not self._losses:
            return []
        return [*self.miss(loaded.jobs if self._losses else marked, now_ms), AskHolds()]

    def mark(self, unreadable: Iterable[str]) -> list[Record]:
        """The Records that mark jobs which cannot be read, where they are not marked yet."""
        new = [id_ for id_ in unreadable if id_ not in self._marks]
        self._marks |= dict.fromkeys(new, 1)
        return _records([Write(kind=MISSED_KIND, id=id_, value=b"1", expect=0) for id_ in new])

    def miss(self, jobs: Iterable[Job], now_ms: int) -> list[Record]:
        """Facts about these jobs were missed by now: doubt them, and all jobs once more later. The Record that marks the loss."""
        self.doubt(jobs)
        self._doubt_later(now_ms)
        if self._loss_id in self._losses:
            return []
        self._losses[self._loss_id] = 1
        return [Record(writes=(Write(kind=MARK_KIND, id=self._loss_id, value=b"1", expect=0),))]

    def put_back(self) -> list[Record]:
        """The Records that mark what is still missed in a store that lost its rows."""
        return [
            Record(writes=(Write(kind=MARK_KIND, id=id_, value=b"1", expect=version, puts_back=True),))
            for id_, version in self._losses.items()
        ]

    def doubt(self, jobs: Iterable[Job]) -> None:
        """Note which attempts of these jobs hold a place."""
        for job in jobs:
            for index, record in job.replicas():
                if record.state in HOLDING:
                    self.doubted[job.id, index] = record.attempt

    def _doubt_later(self, now_ms: int) -> None:
        """Doubt everything once more when what is on its way now has arrived."""
        if self._delivered_by_ms is None:
            self._delivered_by_ms = now_ms + _DELIVERED_WITHIN_MS
        else:
            self._newest_by_ms = now_ms + _DELIVERED_WITHIN_MS

    def compare(self, unreadable: Collection[str]) -> dict[Key, int]:
        """What was doubted, now that it is compared with the ledger: it is not doubted any more. Other marks than these go."""
        doubted, self.doubted = self.doubted, {}
        self._compared |= {id_: version for id_, version in self._marks.items() if id_ not in unreadable}
        self._marks = {id_: version for id_, version in self._marks.items() if id_ in unreadable}
        return doubted

    def note_ordered(self, key: Key, attempt: int, now_ms: int) -> None:
        """The node of this attempt is asked how it ended."""
        self._unanswered[key] = attempt
        self._answered_by_ms = now_ms + _ANSWERED_WITHIN_MS

    def doubt_again(self, jobs: Mapping[str, Job], now_ms: int) -> bool:
        """Doubt what no node has answered in time, and everything once all has arrived. Whether there is anything to doubt."""
        is_doubted = False
        if self._delivered_by_ms is not None and now_ms >= self._delivered_by_ms:
            self._delivered_by_ms, self._newest_by_ms = self._newest_by_ms, None
            self.doubt(jobs.values())
            is_doubted = bool(self.doubted)
        if self._answered_by_ms is not None and now_ms >= self._answered_by_ms:
            asked, self._unanswered, self._answered_by_ms = self._unanswered, {}, None
            again = {key: attempt for key, attempt in asked.items() if _holds(jobs.get(key[0]), key[1], attempt)}
            self.doubted |= again
            is_doubted = is_doubted or bool(again)
        return is_doubted

    def take_away(self) -> list[Record]:
        """The Records that take marks away: those of compared jobs, and those of losses once nothing is doubted any more."""
        compared, self._compared = self._compared, {}
        records = _records([Write(kind=MISSED_KIND, id=id_, value=None, expect=v) for id_, v in compared.items()])
        if self._losses and self._is_settled:
            losses, self._losses = self._losses, {}
            # Each for itself: another partition may have taken that of an earlier number of partitions away.
            records += [
                Record(writes=(Write(kind=MARK_KIND, id=id_, value=None, expect=v),)) for id_, v in losses.items()
            ]
        return records


def _holds(job: Job | None, index: int, attempt: int) -> bool:
    if job is None or index >= job.size:
        return False
    record = job.records[index]
    return record.state in HOLDING and record.attempt == attempt


def _records(writes: list[Write]) -> list[Record]:
    starts = range(0, len(writes), _WRITTEN_AT_ONCE)
    return [Record(writes=tuple(writes[start : start + _WRITTEN_AT_ONCE])) for start in starts]
