"""A run is good when enough happened in it and every promise held, and its last lines say what did not happen."""

from __future__ import annotations

import pytest

from tests.audit.findings import Findings
from tests.chaos.__main__ import lines_of_outcome
from tests.chaos.faults import Fault
from tests.chaos.run import Happened, Outcome, Plan
from tests.chaos.takeovers import Takeover


def an_outcome(
    count: int,
    *,
    kind: str = "kill",
    left_out: str = "",
    demanded: tuple[str, ...] = (),
    late: str = "",
    takeover: Takeover | None = None,
) -> Outcome:
    """Twenty faults were asked for, and this many happened in three minutes."""
    fault = Fault(kind=kind, target="jobs", hold_s=1.0)
    one = Happened(number=1, fault=fault, ready_s=1.0, late=late, takeovers=() if takeover is None else (takeover,))
    plan = Plan(
        seed=1,
        faults=20,
        faults_least=10,
        demanded=demanded,
        nodes=50,
        kinds=("kill", "old"),
        hold_most_s=3.0,
        ready_within_s=60.0,
        period_s=0.7,
        minutes=3.0,
    )
    return Outcome(
        plan=plan,
        happened=(one,) * count,
        left_out={left_out: "there is no older version here"} if left_out else {},
        findings=Findings(findings=(), messages=1),
        accepted=1,
        unfinished=(),
        refused=(),
        ended_by_themselves=(),
        cancelled=0,
        drains=0,
    )


@pytest.mark.parametrize(
    ("outcome", "is_good", "reported"),
    [
        (an_outcome(20), True, ()),
        (an_outcome(12), True, ("ONLY 12 OF 20 FAULTS: the 3 minutes were over",)),
        (
            an_outcome(9),
            False,
            (
                "ONLY 9 OF 20 FAULTS: the 3 minutes were over",
                "NOT PROVED: 9 of 20 faults in 3 minutes, of which at least 10 are needed",
            ),
        ),
        (an_outcome(20, left_out="old"), True, ("LEFT OUT: old: there is no older version here",)),
        (
            an_outcome(20, left_out="old", demanded=("old",)),
            False,
            (
                "LEFT OUT: old: there is no older version here",
                "NOT PROVED: old: there is no older version here",
            ),
        ),
        (an_outcome(20, demanded=("old",)), False, ("NOT PROVED: old: it did not come",)),
        (an_outcome(20, late="jobs: not ready"), False, ()),
        (an_outcome(20, kind="holder"), False, ("NOT PROVED: holder: who held what was not known of every service",)),
        (an_outcome(20, kind="holder", takeover=Takeover(service="jobs", took_s=7.0)), True, ()),
        (an_outcome(20, takeover=Takeover(service="jobs", took_s=21.0)), False, ()),
        (an_outcome(20, takeover=Takeover(service="jobs", took_s=20.1, is_done=False)), False, ()),
    ],
    ids=[
        "all",
        "more than half",
        "fewer than half",
        "a kind that cannot be",
        "a kind that was asked for",
        "a kind that did not come",
        "late",
        "a holder that nobody knew",
        "taken over",
        "taken over late",
        "not taken over",
    ],
)
def test_a_run_of_too_few_faults_is_no_good_and_says_so(
    outcome: Outcome, is_good: bool, reported: tuple[str, ...]
) -> None:
    assert outcome.is_good is is_good
    assert [line for line in lines_of_outcome(outcome) if line.split(" ", 1)[0] in ("ONLY", "NOT", "LEFT")] == list(
        reported
    )


def test_the_last_lines_have_the_longest_takeover_of_each_service_beside_what_is_promised() -> None:
    lines = lines_of_outcome(an_outcome(2, takeover=Takeover(service="jobs", took_s=6.25)))
    assert "jobs            2 times taken over, longest takeover  6.25 s" in lines
    assert lines[-1].endswith("longest takeover 6.2 s of 10 s promised (0 above 20 s)")
