"""The file of an executor's trials: whole or not there, read by the next start, on a disk that is full or broken too."""

import asyncio
import errno
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from colo_common.events.effects import Write
from colo_common.ports import Row, StoreConflict
from colo_executor.trials_file import TrialsFile

KIND = "running-executor"


def note(file: TrialsFile, value: bytes | None, expect: int, id_: str = "boot-1") -> None:
    asyncio.run(file.write((Write(kind=KIND, id=id_, value=value, expect=expect),)))


def rows(path: Path) -> tuple[Row, ...]:
    """What the next start reads."""
    return asyncio.run(TrialsFile(path).load(KIND))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trials"


def refuse(monkeypatch: pytest.MonkeyPatch, *, also_in_place: bool) -> None:
    """The disk has no room for another file; `also_in_place`: nor for the one that is there."""
    real = os.open

    def refused(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT or also_in_place:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refused)


def test_the_next_start_reads_what_was_noted_and_a_version_that_differs_is_a_conflict(path: Path) -> None:
    file = TrialsFile(path)
    assert rows(path) == ()
    note(file, b"a", 0)
    note(file, b"b", 1)
    note(file, b"\xff\x00", 0, "boot-2")
    assert rows(path) == (Row(id="boot-1", value=b"b", version=2), Row(id="boot-2", value=b"\xff\x00", version=1))
    with pytest.raises(StoreConflict):
        note(file, b"c", 0)
    note(file, None, 2)
    assert [row.id for row in rows(path)] == ["boot-2"]
    assert [each.name for each in path.parent.iterdir()] == ["trials"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"\xff" * 99, b'[{"kind":"a","id":"b","value":"*","version":1}]'])
def test_a_damaged_file_counts_as_an_empty_one_and_is_written_again(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with capture_logs() as logs:
        file = TrialsFile(path)
    assert [line["event"] for line in logs] == ["trials-unreadable"]
    note(file, b"a", 0)
    assert [row.value for row in rows(path)] == [b"a"]


def test_a_full_disk_takes_the_rows_in_place_of_the_old_ones(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = TrialsFile(path)
    note(file, b"a" * 9_000, 0)
    size_bytes = path.stat().st_size
    refuse(monkeypatch, also_in_place=False)
    note(file, b"b" * 20_000, 1)
    assert (file.refusal, path.stat().st_size) == ("", size_bytes)
    assert [row.value for row in rows(path)] == [b"b" * 20_000]


def test_a_disk_that_takes_nothing_leaves_them_in_memory_is_logged_once_and_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = TrialsFile(path)
    note(file, b"a", 0)
    with monkeypatch.context() as full, capture_logs() as logs:
        refuse(full, also_in_place=True)
        note(file, b"b", 1)
        note(file, b"c", 2)
    assert [line["event"] for line in logs] == ["trials-in-memory-only"]
    assert "No space left" in file.refusal
    assert [row.value for row in asyncio.run(file.load(KIND))] == [b"c"]
    assert [row.value for row in rows(path)] == [b"a"]
    note(file, b"d", 3)
    assert (file.refusal, [row.value for row in rows(path)]) == ("", [b"d"])


def test_more_than_the_file_may_hold_stays_in_memory(path: Path) -> None:
    file = TrialsFile(path)
    note(file, b"a" * 60_000, 0)
    assert file.refusal == "80066 bytes are more than the 65536 that are kept"
    assert not path.exists()
