"""After a drain: the ledger's rows, its index and the facts say the same."""

from __future__ import annotations

from colo_common.events.fact import Fact
from colo_common.events.placement import PlacementsDecided
from colo_common.model.lifecycle import JOB
from tests.audit.findings import Finding
from tests.audit.held import holds_in
from tests.audit.recording import Emptied, Received, Record, StoredAtEnd

__all__ = ["LedgerAtEnd"]


class LedgerAtEnd:
    """Compares the ledger's rows with its index, with the placements that were published and with the jobs that have ended."""

    def __init__(self) -> None:
        self._placed: dict[str, str] = {}
        self._stored: StoredAtEnd | None = None
        self._emptied = False
        self._index = Finding(invariant="after the drain the ledger's rows and its index agree")
        self._facts = Finding(
            invariant="after the drain nothing is held that was not published, or whose job has ended"
        )
        self.findings = (self._index, self._facts)

    def take(self, record: Record, fact: Fact | None) -> None:
        """The next record."""
        if isinstance(record, StoredAtEnd):
            self._stored = record
        elif isinstance(record, Emptied):
            self._emptied = True
        elif isinstance(record, Received) and isinstance(fact, PlacementsDecided):
            for placement in fact.placements:
                self._placed[f"{placement.replica}#{placement.attempt}"] = placement.node

    def end(self) -> None:
        """Compare."""
        stored = self._stored
        if stored is None:
            return
        found: dict[str, str] = {}
        for node, fields in sorted(stored.rows.items()):
            self._index.checked += 1
            self._facts.checked += 1
            for hold in holds_in(fields):
                found[f"{hold.placement.replica}#{hold.placement.attempt}"] = node
        for name in sorted(found.keys() | stored.held.keys()):
            if found.get(name) != stored.held.get(name):
                seen = f"its row says {found.get(name)}, the index {stored.held.get(name)}"
                self._index.broken(name, seen, ("Redis after the drain",))
        for name, node in sorted(found.items()):
            state = stored.jobs.get(name.partition("/")[0], "nothing")
            if state in JOB.terminal or state == "nothing":
                self._facts.broken(name, f"held on {node}, and its job is {state}", ("Redis after the drain",))
            elif self._placed.get(name) != node and not self._emptied:
                seen = f"held on {node}, published on {self._placed.get(name)}"
                self._facts.broken(name, seen, ("Redis after the drain",))
