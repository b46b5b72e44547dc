"""A skip is a failure in CI unless it is listed, and what no run proved is told with its reason and where it runs."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest

from tests.support.left_out import refuse_unlisted
from tests.support.outcomes import LeftOut, MayBeLeftOut, Outcomes, allowance, main, may_be_left_out, table

ENTRY = MayBeLeftOut(tests="tests/kernel/test_slices.py*", reason="systemd is not*", runs="the machine with systemd")
SLICES = LeftOut(test="tests/kernel/test_slices.py::test_a", reason="systemd is not the first process here")
OTHER = LeftOut(test="tests/unit/test_x.py::test_y", reason="no reason")


def test_the_list_names_a_reason_and_a_place_for_each_entry_and_none_twice() -> None:
    entries = may_be_left_out()
    assert all(entry.tests.startswith("tests/") and entry.reason and entry.runs for entry in entries)
    assert all(entry.reason.strip("*") for entry in entries), "any reason would be allowed"
    assert len({(entry.tests, entry.reason) for entry in entries}) == len(entries)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (SLICES, ENTRY),
        (LeftOut(test=SLICES.test, reason="tired"), None),
        (LeftOut(test="tests/kernel/test_stall.py::test_a", reason=SLICES.reason), None),
    ],
    ids=["listed", "another reason", "another test"],
)
def test_an_entry_allows_its_tests_for_its_reason(left: LeftOut, expected: MayBeLeftOut | None) -> None:
    assert allowance(left, [ENTRY]) == expected


def test_the_table_counts_what_was_proved_by_suite_and_tells_what_was_not() -> None:
    runs = [
        Outcomes(passed=["tests/unit/a/test_b.py::test_c", "tests/props/test_d.py::test_e"], left_out=[SLICES, OTHER]),
        Outcomes(failed=["tests/unit/a/test_b.py::test_f"]),
    ]
    lines, unlisted = table(runs, [ENTRY])
    assert [line.split() for line in lines[1:3]] == [["props", "1"], ["unit", "1"]]
    text = "\n".join(lines)
    assert "  tests/unit/a/test_b.py::test_f failed" in text
    assert "      systemd is not the first process here\n      runs in: the machine with systemd" in text
    assert "      no reason\n      NOT LISTED in not_proved_here.toml" in text
    assert unlisted == 1


def test_what_passed_in_one_run_is_proved_whichever_other_left_it_out() -> None:
    lines, unlisted = table([Outcomes(left_out=[OTHER]), Outcomes(passed=[OTHER.test])], [])
    assert unlisted == 0
    assert lines[-1] == "  nothing"


def test_the_outcomes_of_several_runs_make_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "fast.json").write_bytes(msgspec.json.encode(Outcomes(passed=[SLICES.test])))
    assert main(["note", str(tmp_path / "lab.json"), "tests/kernel", "the emulator broke the machine twice"]) == 0
    assert main(["table", str(tmp_path)]) == 0
    delivered = capsys.readouterr().out
    assert "NOT PROVED HERE: tests/kernel: the emulator broke the machine twice" in delivered
    assert main(["note", str(tmp_path / "lab.json"), "tests/kernel", "nobody felt like it"]) == 1
    assert main(["table", str(tmp_path)]) == 1


def test_outcomes_are_found_in_the_output_of_a_run_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reported = msgspec.json.encode(Outcomes(left_out=[SLICES])).decode()
    monkeypatch.setattr("sys.stdin", io.StringIO(f"...\noutcomes: {reported}\n3 passed\n"))
    assert main(["keep", str(tmp_path / "vm.json")]) == 0
    assert msgspec.json.decode((tmp_path / "vm.json").read_bytes(), type=Outcomes).left_out == [SLICES]
    monkeypatch.setattr("sys.stdin", io.StringIO("it froze\n"))
    assert main(["keep", str(tmp_path / "vm.json")]) == 1


def a_report(reason: str) -> pytest.TestReport:
    path = "tests/kernel/test_slices.py"
    return pytest.TestReport(
        f"{path}::test_a", (path, 1, "test_a"), {}, "skipped", (path, 1, f"Skipped: {reason}"), "setup"
    )


@pytest.mark.parametrize(
    ("reason", "outcome"), [("systemd is not the first process here", "skipped"), ("tired", "failed")]
)
def test_a_skip_that_is_not_listed_becomes_a_failure_with_its_reason(reason: str, outcome: str) -> None:
    report = a_report(reason)
    refuse_unlisted(report)
    assert report.outcome == outcome
    if outcome == "failed":
        assert report.longrepr == "left out, and not_proved_here.toml does not list it: tired"


def test_an_expected_failure_is_no_skip() -> None:
    report = a_report("tired")
    report.wasxfail = "known"
    refuse_unlisted(report)
    assert report.outcome == "skipped"
