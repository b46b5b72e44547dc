"""The generated documents: complete, without loose ends, and as the registry is now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from colo_common.events.asyncapi import asyncapi_document, event_tables
from colo_common.events.registry import EVENTS, REQUESTS
from colo_common.model.invalid import InvalidInput
from colo_common.runtime import documents

ROOT = Path(__file__).parents[3]
MARKED = "# colo\n<!-- events:begin -->\nold\n<!-- events:end -->\nrest\n"


def references(value: Any) -> list[str]:
    """Every $ref in a document."""
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [each for inner in value.values() for each in references(inner)]
    if isinstance(value, list):
        return [each for inner in value for each in references(inner)]
    return []


def test_every_reference_leads_somewhere() -> None:
    document = asyncapi_document()
    found = references(document)
    assert found
    for reference in found:
        where: Any = document
        for step in reference.removeprefix("#/").split("/"):
            assert step in where, reference
            where = where[step]


def test_every_row_of_the_registry_is_a_channel_with_its_subject_message_and_operation() -> None:
    document = asyncapi_document()
    for row in (*EVENTS, *REQUESTS):
        name = row.body.__name__
        channel = document["channels"][name]
        assert channel["address"] == row.subject.template
        assert set(channel.get("parameters", {})) == set(row.subject.parameters)
        assert name in document["components"]["messages"]
        assert name in document["components"]["schemas"]
    assert len(document["operations"]) == len(EVENTS) + len(REQUESTS)
    replies = [channel for channel in document["channels"].values() if channel["address"] is None]
    assert len(replies) == len(REQUESTS)


def test_the_text_reads_back_as_the_document() -> None:
    assert yaml.safe_load(documents.asyncapi_text()) == asyncapi_document()


def test_the_tables_have_a_line_for_every_row() -> None:
    text = event_tables()
    assert text.count("\n| `") == len(EVENTS) + len(REQUESTS)
    assert "| `colo.v1.evt.placement.decided` | `PlacementsDecided` | scheduler | COLO_EVT |" in text


def test_what_is_in_the_repository_is_up_to_date() -> None:
    assert documents.main(["--check", "--root", str(ROOT)]) == 0, "python -m colo_common.runtime.documents writes them"


def test_old_documents_are_named_then_written_then_found_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(MARKED)
    assert documents.main(["--check", "--root", str(tmp_path)]) == 1
    assert "asyncapi.yaml: out of date" in capsys.readouterr().err
    assert readme.read_text() == MARKED
    assert documents.main(["--root", str(tmp_path)]) == 0
    assert documents.main(["--check", "--root", str(tmp_path)]) == 0
    text = readme.read_text()
    assert text.startswith("# colo\n<!-- events:begin -->\n| subject |")
    assert text.endswith("<!-- events:end -->\nrest\n")


def test_a_readme_without_markers_or_no_readme_is_refused(tmp_path: Path) -> None:
    assert documents.main(["--root", str(tmp_path)]) == 2
    (tmp_path / "README.md").write_text("# colo\n")
    assert documents.main(["--root", str(tmp_path)]) == 2
    with pytest.raises(InvalidInput, match="events:begin"):
        documents.readme_with_tables("# colo\n")
