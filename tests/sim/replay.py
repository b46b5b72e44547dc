"""`python -m tests.sim.replay --seed N [--until MS] [a setting of the world, such as --nodes K]`

Lives a world and prints what happens in it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from msgspec import json
from msgspec.structs import replace

from colo_common.model.invalid import InvariantBroken
from colo_common.runtime import logs
from colo_sim.faults import STOPPING
from colo_sim.world import World
from tests.sim.command import add_settings, settings_of
from tests.sim.lives import versions


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 when an invariant broke, whose sentence is the last line."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.replay", description=__doc__)
    add_settings(parser)
    parser.add_argument("--until", type=int, metavar="MS", help="stop here instead of at the end")
    parser.add_argument("--stopping", action="store_true", help="schedulers also stand still, and go on")
    parser.add_argument("--grep", default="", metavar="WORD", help="only lines with this word")
    parser.add_argument("--quiet", action="store_true", help="only the outcome")
    wanted = parser.parse_args(argv)

    def print_line(line: str) -> None:
        if wanted.grep in line:
            sys.stdout.write(line + "\n")

    logs.configure("error")
    settings = settings_of(wanted)
    if wanted.stopping:
        settings = replace(settings, faults=STOPPING)
    world = World(settings, None if wanted.quiet else print_line, versions(settings))
    started_s = time.perf_counter()
    code = 0
    with world:
        try:
            if wanted.until is None:
                world.run()
            else:
                world.run_until(wanted.until)
        except InvariantBroken as error:
            sys.stdout.write(f"{world.elapsed_ms:>9} broken: {error}\n")
            code = 1
        outcome = world.outcome()
    took_s = time.perf_counter() - started_s
    sys.stdout.write(json.encode(outcome).decode() + "\n")
    sys.stderr.write(f"{outcome.events} events, {outcome.events / max(took_s, 1e-9):.0f}/s, {took_s:.1f} s\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
