"""Every parity file kept here passes as a whole, and the runner says what is wrong with files that do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.parity.__main__ import main
from tests.parity.table import kind_of
from tests.parity.tables import all_tables, find_table

_HERE = Path(__file__).parent
_VECTORS = sorted((_HERE / "vectors").glob("*.json"))
_EDGES = sorted((_HERE / "edges").glob("*.json"))


def test_there_are_parity_files() -> None:
    assert _VECTORS
    assert _EDGES


@pytest.mark.parametrize("path", [*_VECTORS, *_EDGES], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_case_of_a_kept_file_passes(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main([str(path)])
    printed = capsys.readouterr().out
    assert code == 0, printed


@pytest.mark.parametrize("path", _VECTORS, ids=lambda path: path.stem)
def test_a_kept_file_under_another_name_finds_its_table(path: Path) -> None:
    document = json.loads(path.read_text())
    table = find_table("somebody_elses_name", document)
    assert table is not None
    assert table.stem == path.stem
    assert find_table(f"{path.stem}_2", document) is table


def test_stems_of_tables_are_unique() -> None:
    stems = [table.stem for table in all_tables()]
    assert len(stems) == len(set(stems))


def test_a_changed_expectation_fails_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = next(path for path in _VECTORS if path.stem == "octopus_state_machines")
    document = json.loads(source.read_text())
    document["machines"][0]["transitions"][0]["to"] = "Running"
    changed = tmp_path / "octopus_state_machines.json"
    changed.write_text(json.dumps(document))
    assert main([str(changed)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{changed} ")
    assert lines[1].strip().startswith("job Pending admit: with {'quota_ok': True}: to: want 'Running', got 'Inqueue'")


def test_an_unknown_table_is_named_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tarot.json"
    path.write_text('{"cases": [{"name": "the fool", "input": {"kind": "draw"}, "expected": 0}]}')
    assert main([str(path)]) == 1
    assert capsys.readouterr().out == f"{path}: unknown table\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "is not JSON"),
        (b"[]", "must hold one JSON object, holds a list"),
        (b"{}", "has neither cases nor machines"),
        (b'{"cases": 1}', "cases must be a list, is a int"),
        (b"\xff\xfe", "is not UTF-8 text"),
    ],
)
def test_a_malformed_file_gets_one_sentence_and_exit_code_2(
    content: bytes, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "psi_parse.json"
    path.write_bytes(content)
    assert main([str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert sentence in printed.err


@pytest.mark.parametrize("source", _VECTORS, ids=lambda path: path.stem)
def test_a_row_that_nobody_can_read_fails_in_one_line_and_the_next_ones_still_run(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(source.read_text())
    part = "machines" if "machines" in document else "cases"
    good = document[part][0]
    bad = [
        None,
        5,
        {"name": "two\nlines", "machine": "two\nlines"},
        {**good, "name": "no input", "input": None, "machine": None},
    ]
    if kind_of(good) is not None:
        bad.append({**good, "kind": "of nobody", "name": "unknown", "input": {**good["input"], "kind": "of nobody"}})
    changed = tmp_path / source.name
    changed.write_text(json.dumps({**document, part: [*bad, good]}))
    assert main([str(changed)]) == 1
    first, *lines = capsys.readouterr().out.splitlines()
    passed, total = first.removeprefix(f"{changed} ").split("/")
    assert int(total) - int(passed) == len(bad)
    assert int(passed) > 0
    assert lines[2].startswith("  two\\nlines: ")


def test_a_missing_file_gets_exit_code_2_and_the_next_one_still_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["/nowhere/psi_parse.json", str(_VECTORS[0])]) == 2
    printed = capsys.readouterr()
    assert "/nowhere/psi_parse.json: cannot be read" in printed.err
    assert printed.out.startswith(str(_VECTORS[0]))
