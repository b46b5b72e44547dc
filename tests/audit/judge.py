"""Judges a recording: every rule sees every record, in the order of the servers' clocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from colo_common.events.fact import Fact
from colo_common.events.wire import decode
from colo_common.model.invalid import InvalidInput
from tests.audit.attempts import DOUBLED, Attempts
from tests.audit.evictions import Evictions
from tests.audit.findings import Finding, Findings, Rule
from tests.audit.ledger_at_end import LedgerAtEnd
from tests.audit.lifecycle import LOST, Lifecycle
from tests.audit.promises import Promises
from tests.audit.recording import LedgerRow, Received, Record, StoredAtEnd

__all__ = ["judge", "lines_of"]

_SHOWN_MOST: Final = 10


def judge(records: Iterable[Record]) -> Findings:
    """Every invariant with what was found. A message that cannot be read as the registry says is a violation."""
    rules: tuple[Rule, ...] = (Promises(), Attempts(), Lifecycle(), Evictions(), LedgerAtEnd())
    readable = Finding(invariant="every message is what the registry says of its subject")
    # Rows and what was stored come after the messages of their moment.
    ordered = sorted(
        records, key=lambda one: (isinstance(one, StoredAtEnd), one.at_us, isinstance(one, LedgerRow), _seq_of(one))
    )
    for record in ordered:
        fact: Fact | None = None
        if isinstance(record, Received):
            readable.checked += 1
            try:
                fact = decode(record.subject, record.text.encode())
            except InvalidInput as error:
                readable.broken(record.subject, str(error)[:300], (record.where,))
        for rule in rules:
            rule.take(record, fact)
    for rule in rules:
        rule.end()
    return Findings(
        findings=(readable, *(finding for rule in rules for finding in rule.findings)), messages=readable.checked
    )


def lines_of(found: Findings) -> list[str]:
    """The findings as text: a line an invariant, below it what broke it, then the totals."""
    lines = [f"{'checked':>9} {'unknown':>8} {'broken':>7}  invariant"]
    for finding in found.findings:
        broken = len(finding.violations)
        lines.append(f"{finding.checked:9,} {finding.unknown:8,} {broken:7,}  {finding.invariant}")
        if finding.excused:
            lines.append(f"{'':28}{finding.excused:,} times excused")
        for violation in finding.violations[:_SHOWN_MOST]:
            lines.append(f"{'':28}{violation.about}: {violation.seen}")
            lines += [f"{'':30}{where}" for where in violation.evidence if where]
        if broken > _SHOWN_MOST:
            lines.append(f"{'':28}and {broken - _SHOWN_MOST} more")
    never = [finding.invariant for finding in found.findings if not finding.checked]
    lines += [f"never checked: {invariant}" for invariant in never]
    lines.append(
        f"{found.messages:,} messages; violations {found.violations}, lost {found.broken(LOST)}, "
        f"doubled {found.broken(DOUBLED)}"
    )
    return lines


def _seq_of(record: Record) -> int:
    return record.seq if isinstance(record, Received) else 0
