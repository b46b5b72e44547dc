"""How fast and how dear the reflex is, on this machine's kernel (root): `python -m tests.bench.bench_reflex [--rounds 20]`.

Prints the time from the beginning of the first reading that is over the threshold until the kernel shows the new quota
(budget: p99 <= 100 ms), the time from the start of an online load until then, and what the loop costs with batch work here. A load
takes half a second on a machine without other work; the thousand of the default take some ten minutes.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence

from msgspec.structs import replace

from colo_common.adapters.clock import SystemClock
from colo_common.events.enforcement import ZoneCeiling
from colo_common.model.percentile import percentile
from colo_common.model.workload import RunSpec
from colo_common.runtime.metrics import Metrics
from colo_executor.local import RenewLease
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.shell import ExecutorShell
from colo_executor.suppress import SuppressPolicy
from tests.bench import termination
from tests.support.builders import a_placement

PERIOD_MS = 20
ROUNDS = 1_000
PROGRESS_EVERY = 100
# Batch work gets everything back within the first; other work of the machine may keep it from it for ever.
CALM_MOST_S = 0.7
NOTICED_MOST_S = 1.0
LEASE_MS = 86_400_000
SPINNER = "while True: pass"


async def main(rounds: int, period_ms: int) -> None:
    # Growth without patience, so that every round begins with a high ceiling.
    suppress = SuppressPolicy(
        threshold_pct=90,
        grow_hold_ms=200,
        grow_interval_ms=20,
        grow_step_pct=50,
        reversals_most=1_000_000,
        floor_mcpu=100,
    )
    with tempfile.TemporaryDirectory(prefix="colo-bench-") as directory:
        runtime = ProcessRuntime(ProcessPolicy(state_dir=directory, subtree=f"colo-bench-{os.getpid()}"))
        shell = ExecutorShell(
            runtime,
            SystemClock(),
            policy=ReflexPolicy(rule="usage", suppress=suppress),
            period_ms=period_ms,
            metrics=Metrics(),
        )
        await shell.load()
        loop = asyncio.create_task(shell.run_reflex())
        try:
            await measure(runtime, shell, loop, rounds, period_ms)
        finally:
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)
            await runtime.restore()
            await runtime.close()


async def measure(
    runtime: ProcessRuntime, shell: ExecutorShell, loop: asyncio.Task[None], rounds: int, period_ms: int
) -> None:
    written: list[tuple[float, float, int]] = []
    begun = [0.0]
    read_fast, set_ceiling = runtime.read_fast, runtime.set_ceiling

    def timed_read(now_ms: int):
        begun[0] = time.perf_counter()
        return read_fast(now_ms)

    def timed_write(ceiling_mcpu: int, zones: tuple[ZoneCeiling, ...] | None = None, *, has_whole_cores: bool = False):
        result = set_ceiling(ceiling_mcpu, zones, has_whole_cores=has_whole_cores)
        written.append((begun[0], time.perf_counter(), ceiling_mcpu))
        return result

    runtime.read_fast, runtime.set_ceiling = timed_read, timed_write  # type: ignore[method-assign]
    capacity = runtime.capacity_mcpu
    # Batch work that uses nothing: its presence makes the reflex look every period.
    placement = replace(a_placement(), run=RunSpec(command=("sleep", "infinity")))
    await shell.perform(RenewLease(lease_ms=LEASE_MS))
    await runtime.launch(placement, 1)
    to_written: list[float] = []
    from_load: list[float] = []
    await asyncio.sleep(CALM_MOST_S)
    at_first = shell.reflex.ceiling_mcpu if shell.reflex is not None and shell.reflex.ceiling_mcpu else capacity
    for number in range(rounds):
        if number % PROGRESS_EVERY == PROGRESS_EVERY - 1:
            print(f"  {number + 1} of {rounds} loads", flush=True)
            show("  so far: first reading over the threshold -> quota written", to_written)
        await calm(shell, at_first)
        if loop.done():
            # It ends with its error alone, and then no load is ever noticed.
            loop.result()
        written.clear()
        high = shell.reflex.ceiling_mcpu if shell.reflex is not None and shell.reflex.ceiling_mcpu else capacity
        load_s = time.perf_counter()
        spinner = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", SPINNER)
        try:
            while time.perf_counter() - load_s < NOTICED_MOST_S:
                await asyncio.sleep(0.005)
                # Half a CPU less for batch work is more than noise.
                hits = [(end - begin, end - load_s) for begin, end, mcpu in written if mcpu <= high - 500]
                if hits:
                    to_written.append(hits[0][0] * 1_000)
                    from_load.append(hits[0][1] * 1_000)
                    break
        finally:
            spinner.kill()
            await spinner.wait()
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    await asyncio.sleep(3)
    cost_pct = (time.process_time() - cpu_s) / (time.perf_counter() - wall_s) * 100
    print(
        f"reflex, {capacity // 1000} CPUs, a reading every {period_ms} ms, {len(to_written)} of {rounds} loads noticed"
    )
    if not to_written:
        raise SystemExit("the reflex noticed no load: nothing was measured")
    show("first reading over the threshold -> quota written", to_written)
    show("online load begins -> quota written", from_load)
    print(f"  {'cost of the loop':<50} {cost_pct:.2f} % of a core")


async def calm(shell: ExecutorShell, ceiling_mcpu: int) -> None:
    """Wait until batch work may use nearly so much again: a twentieth less is noise."""
    begun_s = time.monotonic()
    # What was counted of the last load is over by then.
    await asyncio.sleep(0.3)
    while time.monotonic() - begun_s < CALM_MOST_S:
        if shell.reflex is not None and (shell.reflex.ceiling_mcpu or 0) * 20 >= ceiling_mcpu * 19:
            return
        await asyncio.sleep(0.02)


def show(what: str, values_ms: Sequence[float]) -> None:
    """One line of the result."""
    if values_ms:
        p50_ms, p99_ms = percentile(values_ms, 50), percentile(values_ms, 99)
        print(f"  {what:<50} p50 {p50_ms:.2f} ms  p99 {p99_ms:.2f} ms  at most {max(values_ms):.2f} ms")


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"real online loads (default {ROUNDS})")
    parser.add_argument("--period-ms", type=int, default=PERIOD_MS, help="between two readings (default 20)")
    return parser.parse_args(arguments)


def length_s(arguments: Sequence[str]) -> float:
    """How long it takes at most, where other work keeps the reflex from noticing any load."""
    # A process that spins is started and ended within half a second also where it has to wait for a CPU.
    return options(arguments).rounds * (CALM_MOST_S + NOTICED_MOST_S + 0.5) + 20


if __name__ == "__main__":
    asked = options()
    termination.run(main(asked.rounds, asked.period_ms))
