"""Jobs and replicas move along their tables, no accepted job is lost, and nothing of our own became a dead letter."""

from __future__ import annotations

from colo_common.events.fact import Fact
from colo_common.events.job import JobStateChanged, JobSubmitted, ReplicaChange, ReplicasChanged
from colo_common.events.placement import PlacementRejected
from colo_common.events.service import DeadLettered
from colo_common.model.lifecycle import JOB, REPLICA
from colo_common.model.transitions import StateMachine
from tests.audit.findings import Finding
from tests.audit.recording import Accepted, Emptied, Received, Record, StoredAtEnd

__all__ = ["LOST", "Lifecycle"]

LOST = "every accepted job ends, or waits with a reason"


Move = tuple[str, str, str]
"""The row of the table, the state that is left, and the one that is entered."""


class Lifecycle:
    """Follows the state of every job and replica by the facts about it, and compares Redis with it after the drain.

    Facts of one start of a service are in the order of their sequence, however late one of them was stored; of different starts,
    the one that was heard of later is the later.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[str, str]] = {}
        self._replicas: dict[str, tuple[ReplicaChange, str]] = {}
        self._boots: dict[tuple[str, str], int] = {}
        self._facts: dict[str, list[tuple[int, int, Received, JobStateChanged | ReplicasChanged]]] = {}
        self._accepted: dict[str, str] = {}
        self._waits: dict[str, str] = {}
        self._ids: set[tuple[str, str]] = set()
        self._rows = {machine.name: _rows_of(machine) for machine in (JOB, REPLICA)}
        self._stored: StoredAtEnd | None = None
        self._emptied = False
        self._moves = Finding(invariant="a job or replica leaves the state that it is in, along its table")
        self._lost = Finding(invariant=LOST)
        self._dead = Finding(invariant="no message of our own became a dead letter")
        self._agrees = Finding(invariant="after the drain Redis says of a job what its facts say")
        self.findings = (self._moves, self._lost, self._dead, self._agrees)

    def take(self, record: Record, fact: Fact | None) -> None:
        """The next record."""
        match record:
            case Accepted():
                self._accepted.setdefault(record.job, f"answered to a client at {record.at_us} us")
            case Emptied():
                # What was said in between may be gone: the next fact about each is believed.
                self._follow()
                self._emptied = True
                self._jobs.clear()
                self._replicas.clear()
            case StoredAtEnd():
                self._stored = record
            case Received() if fact is not None:
                self._dead.checked += 1
                self._hear(record, fact)
            case _:
                # Rows of the ledger are no matter of this file.
                pass

    def _hear(self, record: Received, fact: Fact) -> None:
        if record.id and (record.stream, record.id) in self._ids:
            return
        self._ids.add((record.stream, record.id))
        match fact:
            case JobSubmitted():
                self._accepted.setdefault(fact.job, record.where)
            case JobStateChanged() | ReplicasChanged():
                boot = self._boots.setdefault((fact.job, fact.boot_id), len(self._boots))
                self._facts.setdefault(fact.job, []).append((boot, fact.seq, record, fact))
            case PlacementRejected():
                self._waits[fact.job] = record.where
            case DeadLettered():
                self._dead.broken(fact.subject, f"{fact.service}: {fact.reason}", (record.where, fact.payload[:200]))
            case _:
                # No rule of this file is about the other facts.
                pass

    def end(self) -> None:
        """What can only be judged when everything was heard."""
        self._follow()
        stored = self._stored
        if stored is None:
            return
        for job, where in sorted(self._accepted.items()):
            self._lost.checked += 1
            published = self._jobs.get(job, ("", ""))[0]
            found = stored.jobs.get(job, published)
            if found not in JOB.terminal and published not in JOB.terminal and job not in self._waits:
                seen = f"Redis says {found or 'nothing'}, the last fact {published or 'nothing'}, and no reason to wait"
                self._lost.broken(job, seen, (where,))
        for job, state in sorted(stored.jobs.items()):
            published, where = self._jobs.get(job, ("", ""))
            if not published:
                self._agrees.unknown += 1
                continue
            self._agrees.checked += 1
            if published != state:
                self._agrees.broken(job, f"Redis says {state}, the last fact {published}", (where,))

    def _follow(self) -> None:
        """Judge the moves that were heard so far."""
        for _, found in sorted(self._facts.items()):
            for _, _, record, fact in sorted(found, key=lambda one: one[:2]):
                if isinstance(fact, JobStateChanged):
                    self._job(record, fact)
                else:
                    for change in fact.changes:
                        self._replica(record, change)
        self._facts.clear()

    def _job(self, record: Received, fact: JobStateChanged) -> None:
        state, where = self._jobs.get(fact.job, ("" if self._emptied else JOB.initial, ""))
        self._move(JOB, fact.job, state, (fact.transition, fact.previous, fact.state), (where, record.where))
        self._jobs[fact.job] = fact.state, record.where

    def _replica(self, record: Received, change: ReplicaChange) -> None:
        last, where = self._replicas.get(change.replica, (None, ""))
        state = last.state if last is not None else "" if self._emptied else REPLICA.initial
        move = change.transition, change.previous, change.state
        self._move(REPLICA, change.replica, state, move, (where, record.where))
        if last is not None and change.attempt not in (last.attempt, last.attempt + 1):
            seen = f"attempt {change.attempt} after attempt {last.attempt}"
            self._moves.broken(change.replica, seen, (where, record.where))
        self._replicas[change.replica] = change, record.where

    def _move(self, machine: StateMachine, about: str, state: str, move: Move, evidence: tuple[str, str]) -> None:
        self._moves.checked += 1
        transition, previous, target = move
        if state and previous != state:
            self._moves.broken(about, f"is {state}, leaves {previous} for {target}", evidence)
        elif (previous, target) not in self._rows[machine.name].get(transition, ()):
            self._moves.broken(about, f"{transition} does not lead from {previous} to {target}", evidence)


def _rows_of(machine: StateMachine) -> dict[str, set[tuple[str, str]]]:
    """The moves of each row of a table, by the row's id."""
    return {row.id: {(source, row.target) for source in row.sources} for row in machine.transitions}
