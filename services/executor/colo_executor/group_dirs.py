"""Control groups by the descriptor of their directory: the groups in one, its files, and removal. No link is ever followed."""

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from typing import Final

from colo_executor.cgroup_hierarchy import CgroupError

__all__ = [
    "DIR_FLAGS",
    "check_name",
    "exists_at",
    "field_in",
    "groups_in",
    "open_in",
    "processes_in",
    "read_at",
    "remove_below",
    "thaw_below",
    "tree_of",
    "write_at",
]

DIR_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,230}")
_DEPTH_MOST: Final = 64
_HAS_NO_LIST: Final = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)
"""The group is gone, or is one of threads: its processes are in the list of the group above."""


def check_name(name: str, of: str = "group") -> None:
    """Raise CgroupError for a name that no group of ours has."""
    if not _NAME.fullmatch(name):
        raise CgroupError(f"the {of} name {name!r} must be letters, digits and _ . @ -")


def open_in(dir_fd: int, name: str, shown: str) -> int:
    """A descriptor of the group of that name in an open one, whose path is `shown`; the caller closes it.

    Raises OSError, and CgroupError for a name that no group of ours has and where another file system is mounted.
    """
    check_name(name)
    inner = os.open(name, DIR_FLAGS, dir_fd=dir_fd)
    if os.fstat(inner).st_dev != os.fstat(dir_fd).st_dev:
        os.close(inner)
        raise CgroupError(f"{shown}: {name} is another file system mounted there")
    return inner


def groups_in(dir_fd: int) -> list[str]:
    """The names of the groups directly in an open group; a process may have given them any name."""
    with os.scandir(dir_fd) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))


def tree_of(dir_fd: int, depth: int = 0) -> Iterator[int]:
    """Open descriptors of the group and of all groups in it, each for one step. A group that goes away meanwhile is left out."""
    yield dir_fd
    if depth >= _DEPTH_MOST:
        return
    try:
        names = groups_in(dir_fd)
    except FileNotFoundError:
        return
    for name in names:
        try:
            inner = os.open(name, DIR_FLAGS, dir_fd=dir_fd)
        except FileNotFoundError:
            continue
        try:
            yield from tree_of(inner, depth + 1)
        finally:
            os.close(inner)


def processes_in(dir_fd: int) -> list[int]:
    """The processes of an open group and of all groups in it. Raises OSError where the kernel does not show them."""
    found: list[int] = []
    for inner in tree_of(dir_fd):
        try:
            found += map(int, read_at("cgroup.procs", inner).split())
        except OSError as error:
            if error.errno not in _HAS_NO_LIST:
                raise
    return found


def remove_below(dir_fd: int, depth: int = 0) -> None:
    """Remove all groups in an open group, the innermost first. Raises OSError for one that has a process."""
    if depth >= _DEPTH_MOST:
        return
    for name in groups_in(dir_fd):
        with contextlib.suppress(FileNotFoundError):
            inner = os.open(name, DIR_FLAGS, dir_fd=dir_fd)
            try:
                remove_below(inner, depth + 1)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=dir_fd)


def thaw_below(dir_fd: int) -> None:
    """Let each group in an open group of v1's freezer run that is frozen by itself; what the kernel refuses stays frozen."""
    for inner in tree_of(dir_fd):
        with contextlib.suppress(OSError):
            if inner != dir_fd and read_at("freezer.self_freezing", inner).strip() == "1":
                write_at("freezer.state", inner, "THAWED")


def exists_at(name: str, dir_fd: int) -> bool:
    """Whether the open group has a file or group of that name."""
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def field_in(text: str, name: str) -> str:
    """The number behind that name in a file of lines "name number", "0" where it is not there."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return value
    return "0"


def read_at(name: str, dir_fd: int) -> str:
    """The text of a file of the open group. Raises OSError."""
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        chunks = []
        while chunk := os.read(fd, 65_536):
            chunks.append(chunk)
        return b"".join(chunks).decode("ascii", "replace")
    finally:
        os.close(fd)


def write_at(name: str, dir_fd: int, text: str) -> None:
    """Write a file of the open group. Raises OSError."""
    fd = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        # A write of no bytes never reaches the kernel, so an empty set is written as an empty line.
        os.write(fd, text.encode() or b"\n")
    finally:
        os.close(fd)
