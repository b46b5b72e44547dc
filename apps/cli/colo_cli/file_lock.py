"""Commands that read files, change and write them wait for each other."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from colo_cli.failure import Failure

__all__ = ["alone_in"]


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder's files, which leaves no file behind. Raises Failure for a folder that is not there."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise Failure(f"directory: must be one that is there and may be read ({error})", 2) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
