"""The lines that the process logs while a test looks at them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from colo_common import logs

__all__ = ["captured_logs"]


class _Lines(io.TextIOBase):
    def __init__(self) -> None:
        self.decoded: list[dict[str, Any]] = []

    def write(self, text: str) -> int:
        self.decoded += [msgspec.json.decode(line) for line in text.splitlines()]
        return len(text)


@contextmanager
def captured_logs() -> Iterator[list[dict[str, Any]]]:
    """The lines, decoded, from level debug on; each is in the list as soon as it is logged."""
    lines = _Lines()
    logs.configure("debug", stream=lines)
    try:
        yield lines.decoded
    finally:
        logs.configure()
