"""The command: `python -m tests.kernel.lab [OPTIONS] [--] [COMMAND...]`."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from colo_common.model.cpuset import CpuSet
from tests.kernel.lab.boots import FAILED, FROZEN, TIMED_OUT, status_of
from tests.kernel.lab.frozen import SILENCE_S
from tests.kernel.lab.image import build_image, need_tools
from tests.kernel.lab.kernel import Kernel, find_kernel
from tests.kernel.lab.machine import GUEST_SERVERS, Server, boot
from tests.kernel.lab.packages import need_emulator, say
from tests.kernel.lab.refused import LabRefused
from tests.kernel.lab.systemd import need_systemd
from tests.kernel.lab.variants import DEFAULT, VARIANTS, Variant, variant_named

__all__ = ["main"]

NATS_PORT: Final = 4222
REDIS_PORT: Final = 6379
_FIRST_TASTE: Final = ("lscpu",)
_SUITE: Final = ("pytest", "tests/kernel")


class Outcome(Struct, frozen=True, kw_only=True):
    """One row of the table of variants."""

    variant: Variant
    status: int
    seconds: float


def main(argv: Sequence[str] | None = None) -> int:
    """Boot each machine that is asked for; the status of the command, the first that is not 0 when there are several.

    123: the emulated machine froze, or did not come up twice; 124: the time limit; 125: no machine was booted, or it ended
    without a status.
    """
    options = _parser().parse_args(argv)
    if options.list:
        for variant in VARIANTS:
            sys.stdout.write(f"{variant.name:<12} {variant.says}\n")
        return 0
    signal.signal(signal.SIGTERM, _leave)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    command = command or list(_SUITE if options.all else _FIRST_TASTE)
    try:
        variants = _variants(options)
        emulator, kernel = need_emulator(), find_kernel(refresh=options.refresh)
        if options.check:
            need_tools()
            if any(variant.init == "systemd" for variant in variants):
                need_systemd()
            return 0
        outcomes = [_run(emulator, kernel, variant, command, options) for variant in variants]
    except LabRefused as refusal:
        say(f"refused: {refusal}")
        return FAILED
    except KeyboardInterrupt:
        return 130
    if len(outcomes) > 1:
        _print_table(outcomes)
    return next((outcome.status for outcome in outcomes if outcome.status != 0), 0)


def _variants(options: argparse.Namespace) -> tuple[Variant, ...]:
    chosen = VARIANTS if options.all else tuple(variant_named(name) for name in options.variant or [DEFAULT])
    if options.offline:
        chosen = tuple(replace(variant, offline=tuple(options.offline)) for variant in chosen)
    if options.memory is None:
        return chosen
    for variant in chosen:
        if options.memory <= 0 or options.memory % len(variant.zones):
            raise LabRefused(
                f"the memory of {variant.name} is a multiple of {len(variant.zones)} MiB, not {options.memory}"
            )
    return tuple(replace(variant, memory_mib=options.memory) for variant in chosen)


def _run(
    emulator: Path, kernel: Kernel, variant: Variant, command: Sequence[str], options: argparse.Namespace
) -> Outcome:
    environ = {
        "LAB_VARIANT": variant.name,
        "COLO_NATS_URL": f"nats://{GUEST_SERVERS}:{NATS_PORT}",
        "COLO_REDIS_URL": f"redis://{GUEST_SERVERS}:{REDIS_PORT}/0",
    }
    servers = (_server(NATS_PORT, options.nats), _server(REDIS_PORT, options.redis))
    with tempfile.TemporaryDirectory(prefix="kernel-lab-") as directory:
        scratch = Path(directory)
        image = scratch / "image"
        size_bytes = build_image(image, kernel, variant, command, environ, refresh=options.refresh)
        what = f"image {size_bytes >> 20} MiB, {kernel.image.name}, {_version(emulator)}"
        say(f"booting {variant.name}: {variant.says} ({what})")
        started_s = time.monotonic()

        def once(limit_s: float) -> int:
            return boot(
                emulator,
                kernel.image,
                image,
                variant,
                servers=servers,
                limit_s=limit_s,
                scratch=scratch,
                out=sys.stdout.buffer,
                frozen_after_s=options.frozen_after,
                shares_cores=options.share_cores,
            )

        status = status_of(once, limit_s=options.timeout)
        seconds = time.monotonic() - started_s
        say(f"{variant.name} ended with {status} after {seconds:.0f} s")
        return Outcome(variant=variant, status=status, seconds=seconds)


def _version(emulator: Path) -> str:
    """What a report of a frozen machine must name beside the kernel."""
    reported = subprocess.run([str(emulator), "--version"], capture_output=True, text=True, check=False).stdout
    return reported.partition("\n")[0] or emulator.name


def _server(guest_port: int, address: str) -> Server:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise LabRefused(f"an address is HOST:PORT, not {address!r}")
    return Server(guest_port=guest_port, host=host, port=int(port))


def _print_table(outcomes: Sequence[Outcome]) -> None:
    sys.stdout.write(f"\n{'variant':<12} {'status':>6} {'seconds':>7}  what\n")
    for outcome in outcomes:
        row = f"{outcome.variant.name:<12} {outcome.status:>6} {outcome.seconds:>7.0f}  {outcome.variant.says}\n"
        sys.stdout.write(row)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kernel-lab",
        description="Run a command in a virtual machine with the topology of a real server; its exit status is returned.",
        epilog=f"Statuses of the lab's own: {FROZEN} the machine froze, or did not come up twice; {TIMED_OUT} the time"
        f" limit; {FAILED} refused, or a machine that ended without the command's status.",
    )
    parser.add_argument(
        "--variant", action="append", metavar="NAME", help=f"the machine, repeatable (default: {DEFAULT})"
    )
    parser.add_argument(
        "--all", action="store_true", help="every machine in turn, and a table (default command: the suite)"
    )
    parser.add_argument("--check", action="store_true", help="fetch what the lab needs, and boot nothing")
    parser.add_argument("--list", action="store_true", help="say which machines there are")
    parser.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        metavar="S",
        help="end the machine after so long, all boots together (default: 300)",
    )
    parser.add_argument(
        "--frozen-after",
        type=_seconds,
        default=SILENCE_S,
        metavar="S",
        help=f"it froze when its kernel reported a stall and nothing was heard for so long after (default: {SILENCE_S:g})",
    )
    parser.add_argument(
        "--nats", default=f"127.0.0.1:{NATS_PORT}", metavar="HOST:PORT", help="the NATS server of this machine"
    )
    parser.add_argument(
        "--redis", default=f"127.0.0.1:{REDIS_PORT}", metavar="HOST:PORT", help="the Redis server of this machine"
    )
    parser.add_argument("--memory", type=int, metavar="MIB", help="memory of the machine (default: 2048)")
    parser.add_argument(
        "--offline",
        type=CpuSet.parse,
        metavar="CPUS",
        help="CPUs that are taken away before the command runs: 2-7,10-15",
    )
    parser.add_argument(
        "--share-cores",
        action="store_true",
        help="the threads of each core share one CPU of this machine; by default each runs as if it had a core",
    )
    parser.add_argument("--refresh", action="store_true", help="fetch the packages again")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what to run inside (default: lscpu)")
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"more than 0 seconds, not {text}")
    return seconds


def _leave(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
