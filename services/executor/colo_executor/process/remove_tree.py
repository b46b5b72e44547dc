"""Removal of a directory that a job wrote into: with directories in directories as deep as it liked, and links to anywhere."""

import contextlib
import os
from pathlib import Path
from typing import Final

__all__ = ["remove_tree"]

_PASSES_MOST: Final = 1 << 20
"""The deepest tree; somebody who fills the directory while it is emptied is left to the next time."""
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(directory: Path) -> bool:
    """Remove the directory with everything in it, whatever its depth; False when something stayed. No link is followed.

    What lies in an inner directory is moved up before that is removed, so that neither the stack nor open files grow with depth.
    """
    try:
        top = os.open(directory, _FLAGS)
    except OSError:
        return False
    try:
        _empty(top)
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        os.rmdir(directory)
        return True
    return False


def _empty(top: int) -> None:
    """Remove what is in an open directory, one level after the other; what cannot be removed stays."""
    number, stayed = 0, set[str]()
    for _ in range(_PASSES_MOST):
        waiting = [entry for entry in _entries(top) if entry[0] not in stayed]
        if not waiting:
            return
        for name, is_directory in waiting:
            try:
                if not is_directory:
                    os.unlink(name, dir_fd=top)
                    continue
                number = _move_up(name, top, number)
                os.rmdir(name, dir_fd=top)
            except OSError:
                stayed.add(name)


def _move_up(name: str, top: int, number: int) -> int:
    """Remove the files of an inner directory and move its directories to the top, under names that are free there."""
    inner = os.open(name, _FLAGS, dir_fd=top)
    try:
        for child, is_directory in _entries(inner):
            with contextlib.suppress(OSError):
                if not is_directory:
                    os.unlink(child, dir_fd=inner)
                    continue
                while _is_there(f"{number}", top):
                    number += 1
                os.rename(child, f"{number}", src_dir_fd=inner, dst_dir_fd=top)
    finally:
        os.close(inner)
    return number


def _entries(dir_fd: int) -> list[tuple[str, bool]]:
    with os.scandir(dir_fd) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]


def _is_there(name: str, dir_fd: int) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
