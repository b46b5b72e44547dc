"""`python -m tests.sim.replay --seed N [--until MS] [--nodes K] [--online-jobs M] [--schedulers S --shards H] [--stopping]`

Lives a world and prints what happens in it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from msgspec import json

from colo_common.model.invalid import InvariantBroken
from colo_sim.faults import STOPPING, FaultPlan
from colo_sim.world import World, WorldSettings


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 when an invariant broke, whose sentence is the last line."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.replay", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--until", type=int, metavar="MS", help="stop here instead of at the end")
    parser.add_argument("--nodes", type=int, default=WorldSettings(seed=0).nodes)
    parser.add_argument("--jobs", type=int, default=WorldSettings(seed=0).jobs)
    parser.add_argument("--online-jobs", type=int, default=0)
    parser.add_argument("--schedulers", type=int, default=1)
    parser.add_argument("--shards", type=int, default=0)
    parser.add_argument("--stopping", action="store_true", help="schedulers also stand still, and go on")
    parser.add_argument("--grep", default="", metavar="WORD", help="only lines with this word")
    parser.add_argument("--quiet", action="store_true", help="only the outcome")
    wanted = parser.parse_args(argv)

    def tell(line: str) -> None:
        if wanted.grep in line:
            sys.stdout.write(line + "\n")

    settings = WorldSettings(
        seed=wanted.seed,
        nodes=wanted.nodes,
        jobs=wanted.jobs,
        online_jobs=wanted.online_jobs,
        schedulers=wanted.schedulers,
        shards=wanted.shards,
        faults=STOPPING if wanted.stopping else FaultPlan(),
    )
    world = World(settings, None if wanted.quiet else tell)
    started_s = time.perf_counter()
    code = 0
    try:
        if wanted.until is None:
            world.run()
        else:
            world.run_until(wanted.until)
    except InvariantBroken as error:
        sys.stdout.write(f"{world.elapsed_ms:>9} broken: {error}\n")
        code = 1
    took_s = time.perf_counter() - started_s
    sys.stdout.write(json.encode(world.outcome()).decode() + "\n")
    sys.stderr.write(
        f"{world.event_queue.done} events, {world.event_queue.done / max(took_s, 1e-9):.0f}/s, {took_s:.1f} s\n"
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
