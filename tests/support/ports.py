"""Ports for programs that are told theirs before they start."""

from __future__ import annotations

import itertools
import os
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

__all__ = ["free_ports"]

_FIRST: Final = 16_384
_BLOCK: Final = 64
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_COUNT: Final = itertools.count()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody listens on, all different.

    They lie below those that the kernel gives by itself, to a connection or to a server that wants any. So nobody gets one of them
    before the program that it is for, and a client that tries the port meanwhile never finds itself at the other end. Each process
    begins elsewhere, and the next call of this one gives others.
    """
    low = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    span = max(0, low - _FIRST)
    found: list[int] = []
    with ExitStack() as held:
        for _ in range(span):
            if len(found) == count:
                break
            port = _FIRST + (os.getpid() * _BLOCK + next(_COUNT)) % span
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    assert len(found) == count, f"{count} ports below {low} are not free"
    return found
