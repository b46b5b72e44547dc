"""`python -m tests.chaos --seed S --faults N`: colo as processes on this machine, jobs all the while, and faults in random order.

Exit code 0: every promise held, no job was lost, nothing ran twice, after each fault all was ready in time, and enough faults
happened: a slow machine may do half of them in its minutes, not fewer.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

from colo_common.model.invalid import InvalidInput
from tests.audit.attempts import DOUBLED
from tests.audit.judge import lines_of
from tests.audit.lifecycle import LOST
from tests.chaos.cluster import ChaosCluster
from tests.chaos.faults import KINDS, OF_CLUSTERS
from tests.chaos.older import OLDER, OLDER_SHARED, older_tree
from tests.chaos.run import ChaosFailed, Outcome, Plan, run
from tests.chaos.shape import SCALE, shape_of
from tests.chaos.stores import Clusters, Single
from tests.chaos.takeovers import PROMISED_S, TAKEN_WITHIN_S


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="kinds of faults:\n" + "\n".join(f"  {kind:12} {text}" for kind, text in KINDS.items()),
    )
    parser.add_argument("--seed", type=int, default=None, help="repeats a run: the same faults in the same order")
    parser.add_argument("--faults", type=int, default=20, help="how many (default 20)")
    parser.add_argument("--nodes", type=int, default=50, help="simulated nodes (default 50)")
    parser.add_argument(
        "--kinds", default="", help="only these, by commas; with one server each not " + ", ".join(OF_CLUSTERS)
    )
    parser.add_argument(
        "--demand",
        default="",
        help="without these, by commas, the run is no good; those of --kinds are demanded as well",
    )
    parser.add_argument(
        "--stores",
        choices=("cluster", "single"),
        default="cluster",
        help="three NATS servers and Redis with a replica and a sentinel, or one of each (default cluster)",
    )
    parser.add_argument(
        "--instances", default="", help="how many of which service, such as jobs=1,evictor=3 (default 2 of each)"
    )
    parser.add_argument(
        "--partitions",
        type=int,
        default=1,
        help="parts of the work of jobs, overcommit and evictor, which all instances share then (default 1)",
    )
    parser.add_argument("--hold-most-s", type=float, default=90 * SCALE, help="the longest pause or cut in seconds")
    parser.add_argument("--ready-within-s", type=float, default=60.0, help="more is a violation (default 60)")
    parser.add_argument("--period-s", type=float, default=0.7, help="a job is submitted this often (default 0.7)")
    parser.add_argument("--minutes", type=float, default=600.0, help="no new fault after so many minutes")
    parser.add_argument(
        "--faults-least",
        type=int,
        default=None,
        help="fewer in these minutes are a failure (default: half of --faults)",
    )
    parser.add_argument(
        "--old",
        default="",
        help=f"the revision of the older version (default {OLDER.revision}: {OLDER.differs}; with more than one partition "
        f"{OLDER_SHARED.revision}: {OLDER_SHARED.differs})",
    )
    parser.add_argument("--keep", type=Path, default=None, help="a directory for logs and recordings, which stays")
    return parser.parse_args()


def main() -> int:
    """Run and print."""
    options = _options()
    left = OF_CLUSTERS if options.stores == "single" else ()
    kinds = tuple(options.kinds.split(",")) if options.kinds else tuple(kind for kind in KINDS if kind not in left)
    demanded = tuple(dict.fromkeys((*(kinds if options.kinds else ()), *filter(None, options.demand.split(",")))))
    unknown = [kind for kind in (*kinds, *demanded) if kind not in KINDS]
    if unknown:
        print(f"kinds: there is no {unknown[0]!r}; there are {', '.join(KINDS)}", file=sys.stderr)
        return 2
    left_over = [kind for kind in demanded if kind not in kinds]
    if left_over:
        print(f"demand: {left_over[0]} is not among the kinds of this run: {', '.join(kinds)}", file=sys.stderr)
        return 2
    counts = dict.fromkeys(("overcommit", "jobs", "scheduler", "evictor", "gateway"), 2)
    for entry in filter(None, options.instances.split(",")):
        service, _, count = entry.partition("=")
        if service not in counts or not count.isdigit() or not 1 <= int(count) <= 9:
            print(f"instances: {entry!r} is not one of {', '.join(counts)} with =1 to =9", file=sys.stderr)
            return 2
        counts[service] = int(count)
    seed = options.seed if options.seed is not None else secrets.randbelow(10**6)
    directory = options.keep or Path(tempfile.mkdtemp(prefix="colo-chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    old = None
    if "old" in kinds:
        revision = options.old or (OLDER_SHARED if options.partitions > 1 else OLDER).revision
        try:
            old = older_tree(directory / "old", revision, is_shared=options.partitions > 1)
        except InvalidInput as error:
            print(error, file=sys.stderr)
            if "old" in demanded:
                return 1
    plan = Plan(
        seed=seed,
        faults=options.faults,
        faults_least=(options.faults + 1) // 2 if options.faults_least is None else options.faults_least,
        demanded=demanded,
        nodes=options.nodes,
        kinds=kinds,
        hold_most_s=options.hold_most_s,
        ready_within_s=options.ready_within_s,
        period_s=options.period_s,
        minutes=options.minutes,
    )
    parts = f", {options.partitions} partitions" if options.partitions > 1 else ""
    print(
        f"seed {seed}, {plan.faults} faults, {plan.nodes} nodes{parts}; times are {SCALE:g} of production's", flush=True
    )
    stores = Single(directory) if options.stores == "single" else Clusters(directory)
    cluster = ChaosCluster(directory, shape_of(plan.nodes, counts, seed, options.partitions), stores, old)
    begun_s = time.monotonic()
    try:
        outcome = asyncio.run(run(plan, cluster, lambda line: print(line, flush=True)))
    except ChaosFailed as error:
        print(f"{error}\nlogs: {directory}", file=sys.stderr)
        return 1
    print("\n".join(lines_of_outcome(outcome)))
    print(f"{time.monotonic() - begun_s:.0f} s, seed {seed}")
    if not outcome.is_good:
        print(f"FAILED; logs and recordings: {directory}")
        return 1
    if options.keep is None:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def lines_of_outcome(outcome: Outcome) -> list[str]:
    """What is printed of a run at its end."""
    plan = outcome.plan
    lines = ["", *lines_of(outcome.findings), ""]
    lines += [f"LEFT OUT: {kind}: {why}" for kind, why in outcome.left_out.items()]
    by_kind: dict[str, list[float]] = {}
    for one in outcome.happened:
        by_kind.setdefault(one.fault.kind, []).append(one.ready_s)
    for kind, took in by_kind.items():
        lines.append(f"{kind:12} {len(took):4} times, ready again after at most {max(took):5.2f} s")
    taken: dict[str, list[float]] = {}
    for takeover in outcome.takeovers:
        taken.setdefault(takeover.service, []).append(takeover.took_s)
    for service, took in taken.items():
        lines.append(f"{service:12} {len(took):4} times taken over, longest takeover {max(took):5.2f} s")
    for title, found in (
        ("accepted and not ended after the drain", outcome.unfinished),
        ("refused as wrong input", outcome.refused),
        ("ended by themselves", outcome.ended_by_themselves),
    ):
        lines += [f"{title}: {len(found)}", *[f"    {text}" for text in found[:10]]] if found else []
    late = sum(bool(one.late) for one in outcome.happened)
    longest_s = max((one.ready_s for one in outcome.happened), default=0.0)
    longest_taken_s = max((one.took_s for one in outcome.takeovers), default=0.0)
    late_taken = sum(one.is_late for one in outcome.takeovers)
    if len(outcome.happened) < plan.faults:
        lines.append(f"ONLY {len(outcome.happened)} OF {plan.faults} FAULTS: the {plan.minutes:g} minutes were over")
    lines += [f"NOT PROVED: {text}" for text in outcome.unproved]
    lines.append(
        f"{len(outcome.happened)} faults; {outcome.accepted} jobs accepted, {outcome.cancelled} cancelled, "
        f"{outcome.drains} drains; violations {outcome.findings.violations}, "
        f"lost {outcome.findings.broken(LOST)}, doubled {outcome.findings.broken(DOUBLED)}, "
        f"longest time to ready again {longest_s:.1f} s ({late} above {plan.ready_within_s:g} s), "
        f"longest takeover {longest_taken_s:.1f} s of {PROMISED_S:g} s promised ({late_taken} above {TAKEN_WITHIN_S:g} s)"
    )
    return lines


if __name__ == "__main__":
    sys.exit(main())
