"""`python -m tests.audit record --nats URL --redis URL FILE` listens until it is interrupted; `python -m tests.audit judge FILE...`
prints every invariant with how often it was checked and what broke it. Exit code 0: nothing is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.audit.judge import judge, lines_of
from tests.audit.recorder import BusAccess, Recorder
from tests.audit.recording import read

_LOOK_S = 1.0


async def _record(server: BusAccess, redis_url: str, path: Path, parent: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    watching = asyncio.create_task(_stop_without(parent, stop))
    await Recorder(server, redis_url, path).run(stop)
    watching.cancel()


async def _stop_without(parent: int, stop: asyncio.Event) -> None:
    """Set `stop` when the process `parent` is not the parent any more: it was killed, and nobody else would end this one."""
    while parent in (0, os.getppid()):
        await asyncio.sleep(_LOOK_S)
    stop.set()


def main() -> int:
    """Run until it is interrupted, or judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.audit", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="write down what a running colo says and stores")
    record.add_argument("--nats", required=True, help="URL of NATS")
    record.add_argument("--nats-ca", default="", help="the authority of NATS, in PEM")
    record.add_argument("--nats-nkey", default="", help="the key of an administrator, who may read every stream")
    record.add_argument("--redis", required=True, help="URL of Redis")
    record.add_argument(
        "--parent", type=int, default=0, help="end when the process of this id is not the parent any more"
    )
    record.add_argument("file", type=Path)
    judged = commands.add_parser("judge", help="judge recordings of one run")
    judged.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    if options.command == "record":
        server = BusAccess(url=options.nats, ca_file=options.nats_ca, nkey_file=options.nats_nkey)
        asyncio.run(_record(server, options.redis, options.file, options.parent))
        return 0
    found = judge(record for path in options.files for record in read(path))
    print("\n".join(lines_of(found)))
    return 1 if found.violations else 0


if __name__ == "__main__":
    sys.exit(main())
