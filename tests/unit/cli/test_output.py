"""Tables on a narrow terminal and in a pipe, colours, formats of lists, and repetition."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest

from colo_cli import output, watching

COLUMNS = ("NAME", "STATE", "USED>", "HELD>", "+LABELS", "WHY")
ROWS = [
    [
        "node-with-a-long-name-01",
        "fresh",
        "12.5",
        "130.784",
        "disk=ssd",
        "batch work holds more CPU than could be promised now",
    ],
    ["b", "lost", "7", "0", "", ""],
]


def terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((width, 24)))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_a_pipe_gets_every_character(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(COLUMNS, ROWS, "none")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "STATE", "USED", "HELD", "WHY"]
    assert lines[1].endswith("batch work holds more CPU than could be promised now")
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_cuts_texts_and_never_a_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    terminal(monkeypatch, width)
    monkeypatch.setenv("NO_COLOR", "1")
    output.print_table(COLUMNS, ROWS, "none")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= max(width, len(ROWS[0][0]) + 30)
    shown = lines[1].split()
    assert shown[:2] == ["node-with-a-long-name-01", "fresh"]
    assert shown[2:4] in (["12.5", "130.784"], ["12.5"])
    assert ("…" in lines[1]) or "more: -o wide" in lines[-1]


def test_words_have_colours_on_a_terminal_and_not_with_no_color(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(monkeypatch, 200)
    output.print_table(COLUMNS, ROWS, "none")
    assert "\x1b[31mlost " in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    output.print_table(COLUMNS, ROWS, "none")
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("form", "expected"),
    [("name", "node-with-a-long-name-01\nb\n"), ("json", None), ("wide", "LABELS"), ("table", "WHY")],
)
def test_a_list_comes_in_every_format(capsys: pytest.CaptureFixture[str], form: Any, expected: str | None) -> None:
    is_table = output.print_list({"rows": 2}, form, COLUMNS, lambda: ROWS, "none")
    out = capsys.readouterr().out
    assert is_table == (form in ("wide", "table"))
    if expected is None:
        assert json.loads(out) == {"rows": 2}
    else:
        assert expected in out
    assert ("LABELS" in out) == (form == "wide")


def test_an_empty_list_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_list({}, "table", COLUMNS, list, "no nodes yet")
    assert capsys.readouterr().out == "no nodes yet\n"
    output.print_list({}, "name", COLUMNS, list, "no nodes yet")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("part", "whole", "text"), [(1, 3, "33%"), (0, 5, "0%"), (5, 0, "-")])
def test_a_share_is_rounded_down(part: int, whole: int, text: str) -> None:
    assert output.share_text(part, whole) == text


def test_what_is_watched_is_shown_until_its_reader_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[int] = []

    def rest(_span_s: float) -> None:
        if len(shown) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", rest)
    with pytest.raises(KeyboardInterrupt):
        watching.watched(True, lambda: shown.append(len(shown)) or 0)
    assert shown == [0, 1, 2]
    assert watching.watched(False, lambda: 7) == 7


def test_a_terminal_is_painted_at_once_and_no_longer_than_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(monkeypatch, 80)

    def rest(_span_s: float) -> None:
        raise KeyboardInterrupt

    def show() -> int:
        sys.stdout.write("".join(f"line {number}\n" for number in range(100)))
        return 0

    monkeypatch.setattr("time.sleep", rest)
    with pytest.raises(KeyboardInterrupt):
        watching.watched(True, show)
    painted = capsys.readouterr().out.removeprefix("\x1b[H\x1b[2J\x1b[3J").splitlines()
    assert (len(painted), painted[0], painted[-1]) == (23, "line 0", "and 78 lines more: a taller terminal shows them")
