"""A node's day, told from inside the machine: `python -m tests.kernel.node_story`.

Collector and executor run as an operator runs them; the rest of colo is outside. The story goes on by what the kernel shows, and
says one line of JSON at each turn; those with `ask` want something done outside.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from colo_executor.cgroup import CgroupTree
from colo_executor.suppress import SuppressPolicy
from tests.kernel.inside import CGROUP_ROOT, hogs
from tests.support.waiting import eventually_blocking

__all__ = ["NODE", "REPLICAS", "main"]

NODE: Final = "vm-1"
REPLICAS: Final = 2
_BATCH: Final = "batch"
_FLOOR_US: Final = SuppressPolicy().floor_mcpu * 100
_REQUESTS: Final = 150
_WINDOWS: Final = 5
_POLL_S: Final = 0.01
_PERIOD_S: Final = 0.02
_WORK: Final = 300
_LIMIT_S: Final = 120.0
_SETTINGS: Final = {
    "COLO_NODE": NODE,
    # NATS runs on the host of this machine, and nobody else reaches it.
    "COLO_INSECURE_SERVERS": "true",
    "COLO_COLLECTOR_ONLINE_GROUPS": "probe=/probe:LS",
    "COLO_EXECUTOR_PROCESS_STATE_DIR": "/tmp/executor",
    "COLO_EXECUTOR_ON_EXIT": "restore",
    # What this story is about; the emulated CPUs share real ones, so waiting says little.
    "COLO_EXECUTOR_RULE": "usage",
    # A shorter silence than operators want, so that the story is short.
    "COLO_EXECUTOR_LEASE_MOST_MS": "6000",
    "COLO_EXECUTOR_LEASE_HOLD_MS": "2000",
}


def main() -> int:
    """Tell the story; 0 when it came to its end. Raises NeverHappened where it did not go on."""
    probe = CgroupTree(str(CGROUP_ROOT), "probe")
    probe.make("")
    probe.attach("", os.getpid())
    with _agents():
        _say(phase="alone", **_latencies())
        colo = CgroupTree(str(CGROUP_ROOT), "colo")
        _say(ask="batch")
        eventually_blocking(lambda: _busy(colo) == REPLICAS, "the replicas at work", limit_s=_LIMIT_S)
        _say(phase="with batch", batch_mcpu=_batch_mcpu(colo), ceiling_mcpu=_ceiling_mcpu(colo), **_latencies())
        # Not before: what starts a command has processes of its own for a moment.
        pids = _pids(colo)
        _say(phase="beside", **_harm(pids))
        _spike(probe, colo)
        _say(ask="outage")
        eventually_blocking(lambda: colo.quota_us(_BATCH) == _FLOOR_US, "the floor by lease", limit_s=_LIMIT_S)
        _say(phase="outage", batch_mcpu=_batch_mcpu(colo), ceiling_mcpu=_ceiling_mcpu(colo), **_latencies())
        _say(ask="return")
        eventually_blocking(lambda: _ceiling_mcpu(colo) > 3_000, "the ceiling given back", limit_s=_LIMIT_S)
        eventually_blocking(
            lambda: _batch_mcpu(colo) > 1_000, "batch work that uses what was given back", limit_s=_LIMIT_S
        )
        _say(phase="healed", batch_mcpu=_batch_mcpu(colo), ceiling_mcpu=_ceiling_mcpu(colo), **_latencies())
        _say(same_processes=_pids(colo) == pids)
        _say(ceilings=_ceilings_written())
        _say(ask="end")
        eventually_blocking(lambda: colo.children(_BATCH) == (), "the end of the job", limit_s=_LIMIT_S)
    _say(left=[str(path) for path in CGROUP_ROOT.glob("colo*")])
    return 0


def _spike(probe: CgroupTree, colo: CgroupTree) -> None:
    """Online work on every CPU but the first, until batch work has given way.

    `reaction_ms`: from the start of the first loop until the kernel shows half the ceiling or less. `loops_ms`: until every loop
    has been seen to run, which on an emulated machine takes seconds.
    """
    before_mcpu = _ceiling_mcpu(colo)
    begun_s = time.monotonic()
    halved_s: list[float] = []

    def watch() -> None:
        while not halved_s and not over.wait(_POLL_S):
            if _ceiling_mcpu(colo) <= before_mcpu // 2:
                halved_s.append(time.monotonic())

    over = threading.Event()
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with hogs(probe, "", tuple(range(1, os.cpu_count() or 1))):
            loops_ms = round((time.monotonic() - begun_s) * 1_000)
            eventually_blocking(lambda: halved_s, "suppression", limit_s=_LIMIT_S)
            _say(
                phase="spike",
                before_mcpu=before_mcpu,
                ceiling_mcpu=_ceiling_mcpu(colo),
                reaction_ms=round((halved_s[0] - begun_s) * 1_000),
                loops_ms=loops_ms,
                **_latencies(),
            )
    finally:
        over.set()
        watcher.join()
    eventually_blocking(lambda: _ceiling_mcpu(colo) > before_mcpu // 2, "the ceiling after the spike", limit_s=_LIMIT_S)


def _harm(pids: Sequence[int]) -> dict[str, int]:
    """What the probe feels while batch work runs and while it is stopped, by turns: what else the host does meets both alike."""
    took_us: dict[bool, list[int]] = {False: [], True: []}
    for number in range(2 * _WINDOWS):
        sibling = number % 2 == 1
        for pid in pids:
            os.kill(pid, signal.SIGCONT if sibling else signal.SIGSTOP)
        took_us[sibling] += _requests(_REQUESTS // 2)
    alone, both = _shown(took_us[False]), _shown(took_us[True])
    return {**{f"alone_{name}": value for name, value in alone.items()}, **both}


def _latencies() -> dict[str, int]:
    return _shown(_requests(_REQUESTS))


def _shown(took_us: list[int]) -> dict[str, int]:
    ordered = sorted(took_us)
    return {f"p{part}_us": ordered[len(ordered) * part // 100] for part in (50, 90, 99)}


def _requests(count: int) -> list[int]:
    """How long requests of one size took that came every 20 ms, the waiting for the CPU included."""
    tick = threading.Event()
    took_us = []
    due_s = time.monotonic()
    for _ in range(count):
        due_s = max(due_s + _PERIOD_S, time.monotonic())
        tick.wait(max(0.0, due_s - time.monotonic()))
        sum(number * number for number in range(_WORK))
        took_us.append(round((time.monotonic() - due_s) * 1_000_000))
    return took_us


def _ceilings_written() -> dict[str, float]:
    """How many ceilings the executor has written within so many seconds of beginning to read, by its own metrics."""
    rows = [json.loads(line) for line in Path("/tmp/executor.log").read_text().splitlines() if line.startswith("{")]
    (port,) = [row["port"] for row in rows if row.get("event") == "http-listening"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_LIMIT_S) as page:
        text = page.read().decode()
    return {
        bound: float(count)
        for bound, count in re.findall(r'^colo_executor_reflex_seconds_bucket{le="(.+)"} (.+)$', text, re.MULTILINE)
    }


def _busy(colo: CgroupTree) -> int:
    """How many replicas have used a tenth of a second: a group is there before its process is."""
    return sum(colo.cpu_used_us(f"{_BATCH}/{name}") > 100_000 for name in colo.children(_BATCH))


def _batch_mcpu(colo: CgroupTree) -> int:
    """CPU of the batch tier over one second."""
    used_us, begun_s = colo.cpu_used_us(_BATCH), time.monotonic()
    eventually_blocking(lambda: time.monotonic() - begun_s > 1.0, "a second", limit_s=120)
    return round((colo.cpu_used_us(_BATCH) - used_us) / (time.monotonic() - begun_s) / 1_000)


def _ceiling_mcpu(colo: CgroupTree) -> int:
    quota_us = colo.quota_us(_BATCH)
    return (os.cpu_count() or 1) * 1_000 if quota_us < 0 else quota_us // 100


def _pids(colo: CgroupTree) -> list[int]:
    return sorted(pid for name in colo.children(_BATCH) for pid in colo.pids(f"{_BATCH}/{name}"))


@contextlib.contextmanager
def _agents() -> Iterator[None]:
    """Collector and executor; a SIGTERM at the end, by which the executor puts the kernel back."""
    environ = {**os.environ, **_SETTINGS}
    logs = {name: Path(f"/tmp/{name}.log") for name in ("collector", "executor")}
    started = []
    try:
        for name, log in logs.items():
            with log.open("wb") as sink:
                started.append(subprocess.Popen([sys.executable, "-m", f"colo_{name}"], env=environ, stderr=sink))
        # They are not the probe's.
        for process in started:
            Path(CGROUP_ROOT, "cgroup.procs").write_text(str(process.pid))
        eventually_blocking((CGROUP_ROOT / "colo/batch").is_dir, "the executor's groups", limit_s=_LIMIT_S)
        yield
        _say(exits=_ended(started))
    except BaseException:
        for name, log in logs.items():
            sys.stderr.write(f"---- {name}\n{log.read_text()[-4_000:]}\n")
        raise
    finally:
        for process in started:
            process.kill()
            process.wait()


def _ended(processes: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    for process in processes:
        process.terminate()
    return [process.wait(_LIMIT_S) for process in processes]


def _say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
