"""The bounds by which a lab's verdict is OK, and what its model assumes."""

from typing import Final

from msgspec import Struct

from colo_common.model.slo import VIOLATION_SOFT_PCT
from colo_sim.report import Verdict

__all__ = ["ASSUMPTIONS", "Bound", "bounds_of", "harm_sentence"]

_ADDED_HARM_PCT: Final = 0.5
_LONGEST_S: Final = 10.0
_LIVED_PCT: Final = 95.0

ASSUMPTIONS: Final = (
    "modelled delay: busy sibling threads, other online work, a full zone's wake-ups",
    "caches and memory bandwidth disturb nobody; CPUs are independent",
    "simulated batch work never uses more than its request; real work may",
    "online load: zones differ by up to 10 %, bursts; memory is 0.7 of the trace's",
    "plain requests: services ask for mean / 0.54, at least the peak; batch the rest",
)
"""What the figures rest on; docs/verdict.md has the reasons and sources."""


class Bound(Struct, frozen=True, kw_only=True):
    """A figure and its limit; "most": the value may not be above it, "least": not below."""

    name: str
    value: float
    limit: float
    kind: str
    unit: str = ""

    @property
    def holds(self) -> bool:
        """Whether the value keeps the limit."""
        return self.value >= self.limit if self.kind == "least" else self.value <= self.limit

    @property
    def text(self) -> str:
        """The value and its limit in words, such as "added harm 1.2 % (at most 0.5 %)"."""
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.name} {self.value:g}{unit} (at {self.kind} {self.limit:g}{unit})"


def bounds_of(
    machines: Verdict,
    *,
    lived_pct: float,
    lost: int,
    dead_letters: int,
    placed_twice: int,
    errors: int,
    violation_pct: int | None = None,
) -> tuple[Bound, ...]:
    """All bounds of a verdict, in the order in which they are told. `violation_pct` None: no online work says its own latency."""
    latency = Bound(
        name="values of online latency that broke its SLO",
        value=violation_pct or 0,
        limit=VIOLATION_SOFT_PCT,
        kind="most",
        unit="%",
    )
    return (
        *(() if violation_pct is None else (latency,)),
        Bound(
            name="added harm",
            value=round(machines.added_harm_ratio * 100, 4),
            limit=_ADDED_HARM_PCT,
            kind="most",
            unit="%",
        ),
        Bound(name="longest added harm", value=machines.longest_added_harm_s, limit=_LONGEST_S, kind="most", unit="s"),
        Bound(name="lived of the time claimed", value=lived_pct, limit=_LIVED_PCT, kind="least", unit="%"),
        Bound(name="nodes lost", value=lost, limit=0, kind="most"),
        Bound(name="dead letters", value=dead_letters, limit=0, kind="most"),
        Bound(name="placed twice", value=placed_twice, limit=0, kind="most"),
        Bound(name="errors", value=errors, limit=0, kind="most"),
    )


def harm_sentence(delay_bound_pct: float) -> str:
    """What online harm is."""
    return (
        "Online harm is the share of machine time in which online work got less CPU than it wanted, or its modelled delay exceeded "
        f"{delay_bound_pct:g} % (that of a machine which online work alone fills to 80 %)."
    )
