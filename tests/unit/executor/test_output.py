"""The bound of the outputs holds for every replica, whatever the disk says to one of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from colo_executor.process.output import rotate_all

MOST = 4_096


def test_an_output_that_the_disk_does_not_empty_keeps_no_other_above_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = [tmp_path / name for name in ("one", "two", "three")]
    for directory in directories:
        directory.mkdir()
        (directory / "stdout").write_bytes(b"a" * MOST + b"b" * MOST)
        (directory / "stderr").write_bytes(b"c" * MOST)
    real, broken = os.ftruncate, (directories[1] / "stdout").stat().st_ino

    def ftruncate(fd: int, length: int) -> None:
        if os.fstat(fd).st_ino == broken:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        real(fd, length)

    monkeypatch.setattr(os, "ftruncate", ftruncate)
    done, refused = rotate_all(directories, MOST)
    assert done == [str(directories[0]), str(directories[2])]
    assert refused == {str(directories[1]): "[Errno 30] Read-only file system"}
    for directory in (directories[0], directories[2]):
        assert (directory / "stdout").read_bytes() == b""
        assert (directory / "stdout.1").read_bytes() == b"b" * MOST
        assert (directory / "stderr").read_bytes() == b"c" * MOST


def test_a_directory_that_is_gone_is_no_refusal(tmp_path: Path) -> None:
    assert rotate_all([tmp_path / "gone"], MOST) == ([], {})
