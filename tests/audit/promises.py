"""What may be promised: published numbers recompute, holds fit the number that their decision names, own CPUs are disjoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from colo_common.events.fact import Fact
from colo_common.events.node import AllocatableChanged
from tests.audit.findings import Finding
from tests.audit.held import Held, holds_in, own_cpus, promised_to_batch
from tests.audit.recording import LedgerRow, Received, Record

__all__ = ["Promises"]

_RESOURCES: Final = ("cpu", "memory")


class Promises:
    """Compares every row of the ledger that was read with the newest allocatable that one of its holds names.

    A row's newest hold was committed when all others that are left in the row were there; releases only free. So their sum must
    fit what that hold's decision was based on. A number that was published twice for one sample counts by its larger values.
    """

    def __init__(self) -> None:
        self._promised: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
        self._rows: list[LedgerRow] = []
        self._seen: set[tuple[str, str, int]] = set()
        self._numbers = Finding(invariant="a published number recomputes from its own terms")
        self._sums = Finding(invariant="what is held fits the allocatable that the newest placement names")
        self._cpus = Finding(invariant="CPUs of LSE and LSR work are in one set only")
        self.findings = (self._numbers, self._sums, self._cpus)

    def take(self, record: Record, fact: Fact | None) -> None:
        """The next record."""
        if isinstance(fact, AllocatableChanged) and isinstance(record, Received):
            self._published(record, fact)
        elif isinstance(record, LedgerRow):
            self._rows.append(record)

    def end(self) -> None:
        """Rows are compared at the end: a number may be stored a moment after the hold that was decided on it."""
        for row in self._rows:
            holds = holds_in(row.fields)
            key = row.node, row.fields.get("rev", ""), len(holds)
            if holds and key not in self._seen:
                self._seen.add(key)
                self._fits(row, holds)
                self._disjoint(row, holds)

    def _published(self, record: Received, fact: AllocatableChanged) -> None:
        known = self._promised.setdefault((fact.node, fact.sample_seq), {})
        for zone in fact.zones:
            cpu_mcpu, memory_bytes = known.get(zone.zone, (0, 0))
            known[zone.zone] = max(cpu_mcpu, zone.batch_cpu_mcpu), max(memory_bytes, zone.batch_memory_bytes)
        self._numbers.checked += 1
        published = {
            zone.zone: (
                (zone.batch_cpu_mcpu, zone.headroom_cpu_mcpu),
                (zone.batch_memory_bytes, zone.headroom_memory_bytes),
            )
            for zone in fact.zones
        }
        terms: dict[int, dict[str, int]] = {}
        for term in fact.explanation.terms:
            if term.zone is not None:
                terms.setdefault(term.zone, {})[term.name] = term.value
        computed = {zone: tuple(_number(values, resource) for resource in _RESOURCES) for zone, values in terms.items()}
        node = fact.batch_cpu_mcpu, fact.batch_memory_bytes
        sums = sum(zone.batch_cpu_mcpu for zone in fact.zones), sum(zone.batch_memory_bytes for zone in fact.zones)
        if published != computed or node != sums:
            self._numbers.broken(fact.node, f"published {published} and {node}, computed {computed}", (record.where,))

    def _fits(self, row: LedgerRow, holds: list[Held]) -> None:
        batch = [hold for hold in holds if promised_to_batch(hold)]
        if not batch:
            return
        newest = batch[-1].placement
        promised = self._promised.get((row.node, newest.sample_seq))
        if promised is None:
            self._sums.unknown += 1
            return
        self._sums.checked += 1
        held: dict[int, tuple[int, int]] = {}
        for hold in batch:
            for share in hold.placement.zones:
                cpu_mcpu, memory_bytes = held.get(share.zone, (0, 0))
                held[share.zone] = cpu_mcpu + share.cpu_mcpu, memory_bytes + share.memory_bytes
        for share in newest.zones:
            allowed = promised.get(share.zone, (0, 0))
            if held[share.zone][0] > allowed[0] or held[share.zone][1] > allowed[1]:
                seen = (
                    f"zone {share.zone}: held {held[share.zone]}, allocatable {allowed} of sample {newest.sample_seq}"
                )
                self._sums.broken(f"{row.node} by {newest.replica}#{newest.attempt}", seen, (_place_of(row),))

    def _disjoint(self, row: LedgerRow, holds: list[Held]) -> None:
        taken: dict[int, str] = {}
        for hold in holds:
            own = own_cpus(hold)
            self._cpus.checked += bool(own)
            for cpu in sorted(own):
                other = taken.setdefault(cpu, hold.placement.replica)
                if other != hold.placement.replica:
                    self._cpus.broken(row.node, f"CPU {cpu} of {other} and {hold.placement.replica}", (_place_of(row),))


def _place_of(row: LedgerRow) -> str:
    return f"ledger {row.node} rev {row.fields.get('rev', '')} at {row.at_us} us"


def _number(terms: Mapping[str, int], resource: str) -> tuple[int, int]:
    """Allocatable and headroom of a zone as the published formula says: allocatable = max(0, held, raw), headroom = raw - held.

    The terms that only some nodes have count 0 where they are not; `most` then bounds nothing.
    """

    def term(name: str) -> int:
        return terms.get(f"{resource}_{name}", 0)

    withheld = -(-term("capacity") * (100 - term("reclaim_pct")) // 100)
    online = max(term("online_used") + term("online_added"), term("online_expected"), term("online_reserve"))
    raw = term("capacity") - withheld - max(term("system_used"), term("reserved")) - online
    raw -= max(0, term("lse_requested") - term("lse_used")) + term("third_party")
    raw = min(raw, terms.get(f"{resource}_most", raw))
    if (ratio_pct := terms.get(f"{resource}_normalization_pct", 100)) != 100:
        raw = min(raw * ratio_pct // 100, max(term("capacity") - term("reserved"), raw))
    raw = min(raw, terms.get(f"{resource}_external", raw))
    raw = min(raw, terms.get(f"{resource}_promised", raw))
    raw = raw * terms.get(f"{resource}_age_pct", 100) // 100 if raw > 0 else raw
    return max(0, term("held"), raw), raw - term("held")
