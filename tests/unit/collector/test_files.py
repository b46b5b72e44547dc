"""The reader of real files: under its root only, bounded, and never stopped by one file."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from colo_collector.files import FileReader
from colo_common.model.invalid import InvalidInput


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[FileReader]:
    with FileReader(str(tmp_path), limit_bytes=100, descriptors_max=3) as one:
        yield one


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def held_names(root: Path) -> set[str]:
    """The files below a directory that this process has open."""
    names = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            target = link.readlink()
            if target.is_relative_to(root):
                names.add(target.name)
    return names


def test_a_batch_answers_for_every_path_and_has_its_reading_times(reader: FileReader, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "empty").write_text("")
    gathered = reader.read_all(("/a", "/missing", "/empty", "/a/below"))
    assert gathered.texts == {"/a": "one\n", "/missing": None, "/empty": "", "/a/below": None}
    assert gathered.refused == {}
    assert gathered.cut == ()
    assert set(gathered.inodes) == {"/a", "/empty"}
    assert 0 <= gathered.spread_ns == gathered.finished_ns - gathered.started_ns


def test_a_file_that_changes_in_place_is_read_again_through_its_open_descriptor(
    reader: FileReader, tmp_path: Path
) -> None:
    for number in range(3):
        (tmp_path / "a").write_text(f"{number}\n")
        assert reader.read_all(("/a",)).texts["/a"] == f"{number}\n"
    assert reader.held == 1


def test_a_file_that_was_removed_is_missing_and_its_successor_is_another(reader: FileReader, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old\n")
    first = reader.read_all(("/a",))
    # Whoever has it open keeps its inode from being another file's.
    with (tmp_path / "a").open():
        (tmp_path / "a").unlink()
        assert reader.read_all(("/a",)).texts == {"/a": None}
        assert reader.held == 0
        (tmp_path / "a").write_text("new\n")
        second = reader.read_all(("/a",))
    assert second.texts == {"/a": "new\n"}
    assert second.inodes["/a"] != first.inodes["/a"]


def test_a_large_file_is_cut_after_its_last_whole_line(reader: FileReader, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" * 60 + "\n" + "y" * 60 + "\n")
    (tmp_path / "exact").write_text("z" * 99 + "\n")
    (tmp_path / "line").write_text("z" * 200)
    gathered = reader.read_all(("/a", "/exact", "/line"))
    assert gathered.texts == {"/a": "x" * 60 + "\n", "/exact": "z" * 99 + "\n", "/line": ""}
    assert gathered.cut == ("/a", "/line")


def test_only_so_many_files_stay_open_and_all_are_closed_at_the_end(reader: FileReader, tmp_path: Path) -> None:
    before = open_descriptors()
    for name in "abcd":
        (tmp_path / name).write_text(name)
    for _ in range(2):
        texts = reader.read_all(("/a", "/b", "/c", "/a", "/d")).texts
        assert texts == {"/a": "a", "/b": "b", "/c": "c", "/d": "d"}
        assert reader.held == 3
        assert open_descriptors() == before + 3
    reader.forget(("/a", "/never-read"))
    assert reader.held == 2
    reader.close()
    assert open_descriptors() == before
    assert reader.read("/a") == "a"
    assert open_descriptors() == before


def test_one_file_too_many_costs_one_opening_and_not_all(
    reader: FileReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = tuple(f"/{name}" for name in "abcd")
    for path in paths:
        (tmp_path / path[1:]).write_text("x")
    reader.read_all(paths)
    opened: list[str] = []
    real_open = os.open

    def recording_open(path: str, flags: int) -> int:
        opened.append(path)
        return real_open(path, flags)

    monkeypatch.setattr(os, "open", recording_open)
    for _ in range(3):
        reader.read_all(paths)
    assert opened == [f"{tmp_path}/d"] * 3


def test_files_that_nobody_asks_for_any_more_give_their_place_away(reader: FileReader, tmp_path: Path) -> None:
    for name in "abcdef":
        (tmp_path / name).write_text(name)
    reader.read_all(("/a", "/b", "/c"))
    for _ in range(3):
        reader.read_all(("/d", "/e", "/f"))
    assert reader.held == 3
    assert held_names(tmp_path) == {"d", "e", "f"}


def test_what_is_read_once_is_not_kept_open(reader: FileReader, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    assert reader.read("/a") == "a"
    assert reader.read_all(("/a",), keep=False).texts == {"/a": "a"}
    assert reader.held == 0


def test_a_directory_and_bytes_that_are_no_text_do_not_stop_the_batch(reader: FileReader, tmp_path: Path) -> None:
    before = open_descriptors()
    (tmp_path / "d").mkdir()
    (tmp_path / "bytes").write_bytes(b"\xff\xfe1\n")
    gathered = reader.read_all(("/d", "/bytes"))
    assert gathered.texts == {"/d": None, "/bytes": "\ufffd\ufffd1\n"}
    assert gathered.refused == {"/d": errno.EISDIR}
    reader.close()
    assert open_descriptors() == before


@pytest.mark.parametrize("path", ["relative", "/a/../../etc/passwd", "/..", "", "/a\0b"])
def test_a_path_that_could_leave_the_root_is_refused(reader: FileReader, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        reader.read_all((path,))
    assert caught.value.field == "path"


def test_directories_are_listed_sorted_and_links_are_not_followed(reader: FileReader, tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / "cg" / name).mkdir(parents=True)
    (tmp_path / "cg" / "file").write_text("")
    (tmp_path / "cg" / "link").symlink_to(tmp_path)
    assert reader.list_directories("/cg") == ("a", "b")
    assert reader.list_directories("/missing") == ()
    with pytest.raises(InvalidInput, match="at most 1 directories"):
        reader.list_directories("/cg", limit=1)


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidInput, match="limit_bytes"):
        FileReader("/", limit_bytes=0)
    with pytest.raises(InvalidInput, match="descriptors_max"):
        FileReader("/", descriptors_max=-1)


def test_a_file_without_a_known_size_is_read_to_its_end() -> None:
    with FileReader("/") as real:
        text = real.read("/proc/self/maps")
    # The kernel answers in pieces of at most one page here.
    assert text is not None
    assert len(text) > 4096
    assert text.endswith("\n")
