"""What an audit found: for each invariant how often it was checked, and each violation with its evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from colo_common.events.fact import Fact
from tests.audit.recording import Record

__all__ = ["Finding", "Findings", "Rule", "Violation"]


class Violation(Struct, frozen=True, kw_only=True):
    """One broken invariant: who it is about, what was seen, and where the messages or rows are that show it."""

    about: str
    seen: str
    evidence: tuple[str, ...] = ()


class Finding(Struct, kw_only=True):
    """One invariant: how often it was checked, how often it could not be (what it needs was not heard), what broke it.

    `excused`: the times when something happened that the invariant allows, and that a reader should know of.
    """

    invariant: str
    checked: int = 0
    unknown: int = 0
    excused: int = 0
    violations: list[Violation] = []

    def broken(self, about: str, seen: str, evidence: Iterable[str] = ()) -> None:
        """Note a violation."""
        self.violations.append(Violation(about=about, seen=seen, evidence=tuple(evidence)))


class Rule(Protocol):
    """Looks at every record in the order of the servers' clocks, then at the end."""

    @property
    def findings(self) -> Sequence[Finding]: ...

    def take(self, record: Record, fact: Fact | None) -> None:
        """The next record; `fact` is what a message says."""
        ...

    def end(self) -> None:
        """No record follows."""
        ...


class Findings(Struct, frozen=True, kw_only=True):
    """Every invariant of an audit, and the number of messages that were read."""

    findings: tuple[Finding, ...]
    messages: int

    @property
    def violations(self) -> int:
        """How many violations there are."""
        return sum(len(finding.violations) for finding in self.findings)

    def broken(self, invariant: str) -> int:
        """How many violations of that invariant there are."""
        return sum(len(finding.violations) for finding in self.findings if finding.invariant == invariant)
