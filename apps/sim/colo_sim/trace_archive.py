"""Reads an archive (tar) of load traces: one file of CPU and memory percent for each machine."""

from __future__ import annotations

import tarfile
from pathlib import PurePosixPath
from typing import BinaryIO, Final

from colo_common.model.invalid import InvalidInput
from colo_sim.trace_formats import add_pairs, detect_text_format
from colo_sim.trace_rows import TraceRead, TraceRows

__all__ = ["MAX_TRACE_BYTES", "is_archive", "read_archive"]

MAX_TRACE_BYTES: Final = 2**30
"""The most text a trace may hold after unpacking; a longer one is refused, whatever the size of its file."""

_MAGIC: Final = b"ustar"
_MAGIC_AT: Final = 257


def is_archive(raw: BinaryIO) -> bool:
    """Whether this is the beginning of an archive; it is read from its beginning again."""
    beginning = raw.read(_MAGIC_AT + len(_MAGIC))
    raw.seek(0)
    return beginning[_MAGIC_AT:] == _MAGIC


def read_archive(raw: BinaryIO, rows: TraceRows) -> TraceRead:
    """Return the trace with a series for each file, which has the file's name. Nothing is unpacked to the disk.

    Raises InvalidInput with the archive, the file, the line and the rule.
    """
    source, size_bytes = rows.source, 0
    with tarfile.open(fileobj=raw, mode="r:") as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            # Hidden files are what other systems put beside the data.
            if not member.isfile() or path.name.startswith("."):
                continue
            size_bytes += member.size
            if size_bytes >= MAX_TRACE_BYTES:
                raise InvalidInput(source, f"must hold less than {MAX_TRACE_BYTES} characters", size_bytes)
            data = archive.extractfile(member)
            if data is None:
                continue
            lines = data.read().decode("utf-8-sig").splitlines()
            rows.source = f"{source} {path.name}"
            first = next((line for line in lines if line.strip()), "")
            if detect_text_format(first, rows.source) != "pairs":
                raise InvalidInput(
                    f"{rows.source} line 1", "an archive must hold files of CPU and memory percent", first
                )
            add_pairs(lines, rows, path.stem)
    rows.source = source
    return rows.finish("pairs")
