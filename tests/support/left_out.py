"""The side of pytest: each run keeps its outcomes, says what it did not prove, and under CI=true fails for an unlisted skip."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.support.outcomes import LIST, PRINTED, LeftOut, Outcomes, allowance, may_be_left_out, table

__all__ = ["VARIABLE", "OutcomesKept", "refuse_unlisted"]

VARIABLE: Final = "COLO_OUTCOMES"
"""Where a run writes its outcomes: a file, or `-` for a line of its output; nowhere when it is not set."""


def refuse_unlisted(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make a skip that is not listed a failure, whose text is the reason. An expected failure is no skip."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    left = LeftOut(test=report.nodeid, reason=_reason(report))
    if allowance(left, may_be_left_out()) is None:
        report.outcome = "failed"
        report.longrepr = f"left out, and {LIST.name} does not list it: {left.reason}"


class OutcomesKept:
    """A plugin of the process that shows the results: with workers that is the one above them."""

    def __init__(self) -> None:
        self._kept = Outcomes()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._kept.failed.append(report.nodeid)
        elif report.skipped and not hasattr(report, "wasxfail"):
            self._kept.left_out.append(LeftOut(test=report.nodeid, reason=_reason(report)))
        elif report.when == "call":
            self._kept.passed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._kept.left_out.append(LeftOut(test=report.nodeid, reason=_reason(report)))

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._kept.left_out:
            terminalreporter.section("not proved here")
            lines, _ = table([Outcomes(left_out=self._kept.left_out)], may_be_left_out())
            for line in lines[2:]:
                terminalreporter.write_line(line)
        target = os.environ.get(VARIABLE, "")
        reported = msgspec.json.encode(self._kept)
        if target == "-":
            terminalreporter.write_line(PRINTED + reported.decode())
        elif target:
            Path(target).write_bytes(reported)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why it was skipped: what pytest keeps is (path, line, "Skipped: reason")."""
    reported = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reported.removeprefix("Skipped: ")
