"""An executor reads every line of the journals that earlier versions wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from colo_executor.journal_lines import JournalState, compacted, decode
from tests.contract.record_journal import missing, recordings


def test_every_entry_and_every_field_is_recorded() -> None:
    assert missing() == {}, "python -m tests.contract.record_journal"


@pytest.mark.parametrize("path", recordings(), ids=lambda path: path.name)
def test_a_recorded_journal_has_no_damaged_line(path: Path) -> None:
    data = path.read_bytes()
    entries, torn_bytes, damaged_lines = decode(data)
    assert (len(entries), torn_bytes, damaged_lines) == (data.count(b"\n"), 0, 0)
    assert compacted(JournalState(entries)), "and its entries fold to a state"
