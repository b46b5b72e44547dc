"""`python -m tests.soak --minutes M`: a month of colo in M minutes; keys, bytes and memory over time, and whether they stay flat.

What is kept for days is kept for the same share of the run, jobs come all the while, and nodes leave for good and others come.
Exit code 0: no line rises by more than its bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from tests.chaos.cluster import ChaosCluster
from tests.chaos.load import Load
from tests.chaos.run import ChaosFailed, wait_ready
from tests.chaos.shape import NODES, Instance, shape_of
from tests.chaos.stores import Single
from tests.soak.flat import Flatness, flatness, what_stays
from tests.soak.measure import BOUNDS, Measure
from tests.soak.month import DISK_BYTES, Month, Shortener

_LOOK_S: Final = 5.0
_SHOWN: Final = 6
_START_LIMIT_S: Final = 120.0
#: Few enough that those that leave within a minute are less than a third of the fleet, which would be an alarm and no departure.
_LEAVERS: Final = 4
_STAY_S: Final = 30.0
_COUNTS: Final = {"overcommit": 1, "jobs": 1, "scheduler": 2, "evictor": 1, "gateway": 2}
_MIB: Final = 1 << 20
#: What nats-server (a program in Go) may take before it collects its garbage: twice what it keeps.
_GO_MEMORY_LIMIT: Final = "64MiB"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long the month takes (default 30)")
    parser.add_argument("--nodes", type=int, default=30, help="nodes that stay (default 30)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--period-s", type=float, default=0.4, help="a job is submitted this often (default 0.4)")
    parser.add_argument("--keep", type=Path, default=None, help="a directory for logs, which stays")
    return parser.parse_args()


async def _churn(cluster: ChaosCluster, first: int) -> None:
    """Some nodes leave without a word and others, which nobody knew, come in their place; until cancelled."""
    leaver = f"{NODES}-leaving"
    while True:
        await asyncio.sleep(_STAY_S)
        await cluster.kill(leaver)
        first += _LEAVERS
        instance = cluster.instances[leaver]
        environment = {**instance.environment, "COLO_SIM_FIRST_NODE": str(first)}
        cluster.instances[leaver] = replace(instance, environment=environment)
        await cluster.start(leaver)


async def _soak(options: argparse.Namespace, directory: Path) -> dict[str, list[tuple[float, float]]]:
    month = Month(minutes=options.minutes)
    instances = [
        replace(one, environment={**one.environment, **month.settings()})
        for one in shape_of(options.nodes, _COUNTS, options.seed)
    ]
    own = {**instances[-1].environment, "COLO_SIM_NODES": str(_LEAVERS), "COLO_SIM_FIRST_NODE": "1001"}
    instances.append(Instance(name=f"{NODES}-leaving", service=NODES, module="colo_sim", environment=own))
    nodes = [f"node-{number:02}" for number in range(1, options.nodes + 1)]
    lines: dict[str, list[tuple[float, float]]] = {}
    stores = Single(directory, DISK_BYTES)
    async with ChaosCluster(directory, instances, stores, None) as cluster:
        urls = stores.nats_url, stores.redis_url
        shortener, measure = Shortener(month, *urls), Measure(*urls)
        async with Load(
            cluster.gateway_urls, nodes, options.seed, options.period_s, directory / "accepted.jsonl"
        ) as load:
            problems = await wait_ready(cluster, load, _START_LIMIT_S)
            if problems:
                raise ChaosFailed(f"not ready within {_START_LIMIT_S:g} s of the start: {problems}")
            ages = await shortener.shorten_streams()
            print(
                f"kept for so many seconds: {', '.join(f'{name} {age_s}' for name, age_s in ages.items())}", flush=True
            )
            tasks = [asyncio.create_task(load.run()), asyncio.create_task(_churn(cluster, 1_001))]
            begun_s = time.monotonic()
            try:
                while (at_s := time.monotonic() - begun_s) < options.minutes * 60:
                    found = await measure.look()
                    found |= {
                        f"rss {name}": float(rss_bytes)
                        for name, rss_bytes in cluster.rss_bytes().items()
                        if not name.endswith("-leaving")
                    }
                    for line, value in found.items():
                        lines.setdefault(line, []).append((at_s, value))
                    _note(directory, at_s, found | await measure.messages())
                    await shortener.shorten_keys()
                    await shortener.shorten_consumers()
                    for task in tasks:
                        if task.done():
                            task.result()
                    await asyncio.sleep(_LOOK_S)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await shortener.close()
                await measure.close()
            print(f"{len(load.accepted)} jobs accepted, {load.cancelled} cancelled, {load.drains} drains", flush=True)
            if cluster.ended:
                raise ChaosFailed(f"ended by themselves: {cluster.ended}")
    return lines


def _note(directory: Path, at_s: float, found: Mapping[str, float]) -> None:
    """Keep the values in a file beside the logs, a line of JSON each look: what rose, when, and what a stream was full of."""
    with (directory / "values.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"at_s": round(at_s, 1), **found}) + "\n")


def _row(line: str, series: list[tuple[float, float]], found: Flatness | None, warm_s: float, why: str) -> str:
    is_size = line.startswith(("bytes", "rss"))

    def text(value: float) -> str:
        return f"{value / _MIB:.2f}" if is_size else f"{value:.0f}"

    last = len(series) - 1
    at = sorted({last * step // (_SHOWN - 1) for step in range(_SHOWN)})
    shown = "".join(f"{text(series[number][1]):>9}" for number in at)
    if found is None:
        return f"{line:44}{shown}  not judged: {why or f'too few values after {warm_s:.0f} s'}"
    verdict = "flat" if found.is_flat else "RISES"
    return f"{line:44}{shown}  rise {text(found.rise):>8} of at most {text(found.allowed):>7}  {verdict}"


def main() -> int:
    """Run and print."""
    options = _options()
    directory = options.keep or Path(tempfile.mkdtemp(prefix="colo-soak-"))
    directory.mkdir(parents=True, exist_ok=True)
    month = Month(minutes=options.minutes)
    os.environ.setdefault("GOMEMLIMIT", _GO_MEMORY_LIMIT)
    print(f"a month in {options.minutes:g} minutes: one second is {month.factor:.0f} of it; seed {options.seed}")
    try:
        lines = asyncio.run(_soak(options, directory))
    except ChaosFailed as error:
        print(f"{error}\nlogs: {directory}", file=sys.stderr)
        return 1
    print(
        f"{_SHOWN} values over time, first to last (MiB for bytes and memory), and the line from second {month.warm_s:.0f} on:"
    )
    rising = 0
    for line in sorted(lines):
        bound = next(bound for words, bound in BOUNDS.items() if line.startswith(words))
        why = month.grows(line)
        span_s = month.queue_span_s(line)
        judged = what_stays(lines[line], span_s) if span_s else lines[line]
        found = None if why else flatness(judged, month.warm_s, bound)
        rising += found is not None and not found.is_flat
        print(_row(line, lines[line], found, month.warm_s, why))
    bounds = ", ".join(f"{words} {bound.share_pct:g} % of the mean" for words, bound in BOUNDS.items())
    print(f"the most that a fitted line may rise over the judged part: {bounds}")
    print(f"{len(lines)} lines, {rising} rise")
    if rising:
        print(f"FAILED; logs: {directory}")
        return 1
    if options.keep is None:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
