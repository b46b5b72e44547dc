"""The output of replicas: bounded in size, so that a replica that talks too much fills no disk."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import structlog

__all__ = ["OUTPUTS", "keep_bounded", "rotate", "rotate_all"]

OUTPUTS: Final = ("stdout", "stderr")
_READ: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_EVERY_S: Final = 1.0
_CHUNK_BYTES: Final = 1 << 20


async def keep_bounded(directories: Callable[[], list[Path]], most_bytes: int) -> None:
    """Keep the outputs in these directories within their bound, once a second, until cancelled; what the disk refuses is logged."""
    log = structlog.get_logger("executor")
    refused: dict[str, str] = {}
    while True:
        await asyncio.sleep(_EVERY_S)
        # All in one thread: a hop for each costs more than the look.
        done, found = await asyncio.to_thread(rotate_all, directories(), most_bytes)
        for directory in done:
            log.info("output-rotated", directory=directory)
        for directory, refusal in found.items():
            if refused.get(directory) != refusal:
                log.warning("output-not-rotated", directory=directory, detail=refusal)
        refused = found


def rotate_all(directories: Iterable[Path], most_bytes: int) -> tuple[list[str], dict[str, str]]:
    """`rotate` in each directory, whatever becomes of the others: those where it did something, and what the disk refused."""
    done: list[str] = []
    refused: dict[str, str] = {}
    for directory in directories:
        try:
            if rotate(directory, most_bytes):
                done.append(str(directory))
        except OSError as error:
            refused[str(directory)] = str(error)
    return done, refused


def rotate(directory: Path, most_bytes: int) -> int:
    """Move the newest `most_bytes` of each output that has grown beyond them to "stdout.1", and empty it. Returns how many it did.

    The replica writes on into the emptied file, because it appends. What it writes between the copy and the emptying is lost, and
    where the disk takes no copy the output is emptied all the same. An output that cannot be read is left alone. Raises OSError
    where the disk refuses to empty one.
    """
    done = 0
    for name in OUTPUTS:
        path = f"{directory}/{name}"
        try:
            # Almost none is too long, and to ask costs a third of opening it.
            if os.stat(path, follow_symlinks=False).st_size <= most_bytes:
                continue
            fd = os.open(path, _READ)
        except OSError:
            continue
        try:
            size_bytes = os.fstat(fd).st_size
            if size_bytes > most_bytes:
                _copy(fd, directory / f"{name}.1", max(0, size_bytes - most_bytes))
                os.ftruncate(fd, 0)
                done += 1
        finally:
            os.close(fd)
    return done


def _copy(source: int, target: Path, offset: int) -> None:
    try:
        fd = os.open(target, _WRITE, 0o600)
    except OSError:
        return
    try:
        while chunk := os.pread(source, _CHUNK_BYTES, offset):
            offset += len(chunk)
            while chunk:
                chunk = chunk[os.write(fd, chunk) :]
    except OSError:
        with contextlib.suppress(OSError):
            target.unlink()
    finally:
        os.close(fd)
