"""One connection from the machine to a server of the host: `python relay.py HOST PORT`, bytes on standard input and output."""

from __future__ import annotations

import os
import selectors
import socket
import sys
from typing import Final

__all__ = ["main"]

_CHUNK_BYTES: Final = 65_536


def main(host: str, port: str) -> int:
    """Carry bytes both ways until one side ends."""
    with socket.create_connection((host, int(port)), timeout=5) as server, selectors.DefaultSelector() as ready:
        server.settimeout(None)
        ready.register(0, selectors.EVENT_READ)
        ready.register(server, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                data = server.recv(_CHUNK_BYTES) if key.fileobj is server else os.read(0, _CHUNK_BYTES)
                if not data:
                    return 0
                if key.fileobj is server:
                    _write_all(data)
                else:
                    server.sendall(data)


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:3]))
    except OSError:
        # Nothing is said: standard error leads to the machine too. It sees the connection end.
        sys.exit(1)
