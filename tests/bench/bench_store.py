"""What one script call to a real Redis costs this process: CPU time and calls a second, for 1, 5 and 20 rows.

    python -m tests.bench store [-- --seconds 2]

`alone` is one caller who waits for each answer; `at once` is 16 callers who each do, whose calls may travel together.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Final

from colo_common.adapters.store_redis import RedisStore
from colo_common.events.effects import Write
from tests.support.servers import redis_server

ROWS: Final = (1, 5, 20)
CALLERS: Final = 16
VALUE: Final = b"v" * 300
#: Each line is the best of so many measurements: what else runs on the machine makes the others dearer.
SLICES: Final = 5
#: Calls that are not counted: the connection is made and the script loaded.
WARM_CALLS: Final = 50


async def write_often(store: RedisStore, kind: str, rows: int, end_s: float) -> int:
    """Write the same rows again and again until `end_s` of the monotonic clock, or WARM_CALLS times for 0; how often."""
    version = 0
    while version < WARM_CALLS if not end_s else time.perf_counter() < end_s:
        await store.write([Write(kind=kind, id=f"{kind}/{n}", value=VALUE, expect=version) for n in range(rows)])
        version += 1
    return version


async def measure(store: RedisStore, name: str, rows: int, callers: int, seconds: float) -> tuple[float, float]:
    """CPU microseconds of this process for one call, and calls a second."""
    await write_often(store, f"warm-{name}", rows, 0)
    start_s, cpu_s = time.perf_counter(), time.process_time()
    counts = await asyncio.gather(
        *(write_often(store, f"kind-{name}-{caller}", rows, start_s + seconds) for caller in range(callers))
    )
    calls = sum(counts)
    return 1e6 * (time.process_time() - cpu_s) / calls, calls / (time.perf_counter() - start_s)


async def run(url: str, seconds: float) -> None:
    """Print a line for each size and number of callers."""
    store = RedisStore.of(url, name="bench")
    try:
        for callers in (1, CALLERS):
            for rows in ROWS:
                found = [
                    await measure(store, f"{callers}-{rows}-{slice_}", rows, callers, seconds / SLICES)
                    for slice_ in range(SLICES)
                ]
                cpu_us, rate = min(cpu_us for cpu_us, _ in found), max(rate for _, rate in found)
                how = "alone" if callers == 1 else f"{callers} at once"
                print(f"write of {rows:2} rows, {how:10} {cpu_us:8.0f} us CPU a call  {rate:8,.0f} calls/s")
    finally:
        await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="measure each line so long (default: 2)")
    seconds: float = parser.parse_args().seconds
    with redis_server() as server:
        asyncio.run(run(server.url, seconds))


if __name__ == "__main__":
    main()
