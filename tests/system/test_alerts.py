"""Every alert is made to fire by its cause: real services, a real Prometheus with the rules that are shipped.

What is shortened: `for` is a second, so that what fires is the expression of the rule with its own windows. A window that is longer
than the test has the figures of the test, as it has those of the first hours of an installation.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import nats
import pytest
import redis.asyncio
import yaml
from msgspec.structs import replace

from colo_cli.server_process import tied_command
from colo_common.events.job import ReplicaStop, StopReplicas
from colo_common.events.placement import ApplyPlacements
from colo_common.events.registry import subject_of
from colo_common.events.wire import encode
from colo_common.model.placement import replica_token
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_common.model.workload import RunSpec
from colo_executor.cgroup import CgroupTree
from colo_executor.process.machine import online_cpus
from tests.support.builders import a_placement, a_sample
from tests.support.covered_group import covered_group
from tests.support.ports import free_ports
from tests.support.running import RunningColo, running_colo
from tests.support.small_disk import small_disk_at
from tests.support.waiting import eventually, eventually_blocking

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.asyncio(loop_scope="session"),
]

RULES: Final = Path(__file__).parents[2] / "k8s" / "colo" / "files" / "rules" / "colo.yaml"
#: Nodes of the first simulator, of the second, which is lost, of the third, which is more than a third of all and not believed, and
#: of the last, which freezes its batch work.
FIRST, LOST, WITHHELD, FREEZING = 2, 1, 7, 1
#: Batch and online work together may use one percent there, and where online work alone uses more, batch work is frozen.
FREEZES: Final = {
    "COLO_SIM_REFLEX_RULE": "usage",
    "COLO_SIM_REFLEX_SUPPRESS_THRESHOLD_PCT": "1",
    "COLO_SIM_REFLEX_FREEZE_BY": "any",
    "COLO_SIM_REFLEX_FREEZE_DWELL_MS": "500",
}
LIMIT_S: Final = 120.0
BY_ITSELF: Final = {"ColoOnlineHarmFast", "ColoOnlineHarmSlow", "ColoPromiseBrokenFast", "ColoPromiseBrokenSlow"}


class Prometheus:
    """A running Prometheus: whom it asks is a file, and may change."""

    def __init__(self, directory: Path, port: int) -> None:
        self._targets = directory / "targets.json"
        self._url = f"http://127.0.0.1:{port}"

    def ask(self, **addresses: str) -> None:
        """Measure these services, each at HOST:PORT."""
        groups = [{"targets": [address], "labels": {"service": name}} for name, address in addresses.items()]
        fresh = self._targets.with_suffix(".new")
        fresh.write_text(json.dumps(groups))
        fresh.rename(self._targets)

    def get(self, path: str) -> Any:
        """What the API says under `data`."""
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}", timeout=20) as answer:
            return json.loads(answer.read())["data"]

    def firing(self) -> dict[str, str]:
        """The alerts that fire, with the sentence that a person reads."""
        return {
            each["labels"]["alertname"]: each["annotations"]["summary"]
            for each in self.get("alerts")["alerts"]
            if each["state"] == "firing"
        }

    async def fires(self, *names: str, cause: Callable[[], Awaitable[None]] | None = None) -> None:
        """Wait until these alerts fire, and print what they say. `cause` is called again and again until then."""

        async def all_fire() -> dict[str, str]:
            if cause is not None:
                await cause()
            found = await asyncio.to_thread(self.firing)
            return found if set(names) <= found.keys() else {}

        found = await eventually(all_fire, f"{' and '.join(names)} fire", limit_s=LIMIT_S)
        for name in names:
            print(f"{name}: {found[name]}")  # noqa: T201


@contextmanager
def running_prometheus(directory: Path) -> Iterator[Prometheus]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("NOT PROVED: there is no prometheus (Debian: prometheus)")
    rules = yaml.safe_load(RULES.read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        if "for" in rule:
            rule["for"] = "1s"
    (directory / "rules.yaml").write_text(yaml.safe_dump(rules))
    (directory / "targets.json").write_text("[]")
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {"job_name": "colo", "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}]}
        ],
    }
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    words = ["--config.file=prometheus.yaml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}"]
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(tied_command([program, *words]), cwd=directory, stdout=log, stderr=log)
    try:
        found = Prometheus(directory, port)

        def answers() -> bool:
            assert process.poll() is None, (directory / "prometheus.log").read_text()[-2000:]
            try:
                return bool(found.get("rules")["groups"])
            except OSError:
                return False

        eventually_blocking(answers, "Prometheus answers", limit_s=LIMIT_S)
        yield found
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def fleet(directory: Path) -> AsyncIterator[RunningColo]:
    """Eleven nodes in four processes."""
    async with running_colo(directory, nodes=FIRST) as colo:
        first = 1 + FIRST
        others = (("sim-lost", LOST, {}), ("sim-withheld", WITHHELD, {}), ("sim-frozen", FREEZING, FREEZES))
        for name, nodes, more in others:
            settings = {"COLO_SIM_NODES": str(nodes), "COLO_SIM_FIRST_NODE": str(first)}
            await colo.processes.start(name, "colo_sim", settings | more)
            first += nodes
        await colo.processes.wait_ready([name for name, _, _ in others])

        async def all_promise() -> bool:
            found = (await colo.get("/v1/nodes"))["nodes"]
            return sum(each["batch_cpu_mcpu"] > 0 for each in found) == FIRST + LOST + WITHHELD + FREEZING

        await eventually(all_promise, "every node promises batch CPU", limit_s=LIMIT_S)
        yield colo


def addresses(colo: RunningColo) -> dict[str, str]:
    names = ("jobs", "scheduler", "overcommit", "evictor", "gateway")
    return {name: colo.process(name).address or "" for name in names if name in colo.processes.running}


async def test_every_alert_fires_when_its_cause_is_there(tmp_path: Path) -> None:
    with running_prometheus(tmp_path) as prometheus:
        async with fleet(tmp_path) as colo:
            client = await nats.connect(colo.nats_url)
            try:
                await nothing_fires(prometheus, colo)
                await work_that_holds_much(colo)
                await batch_work_is_frozen(prometheus, colo)
                await client.publish("colo.v1.evt.enforcement.node-01.started", b"no replica")
                await prometheus.fires("ColoDeadLetters")
                await online_work_is_harmed(prometheus, client)
                await two_versions(prometheus, colo, tmp_path)
                await a_row_that_nobody_can_read(prometheus, colo)
                await a_store_is_emptied(prometheus, colo)
                await colo.processes.stop(["evictor"])
                await prometheus.fires("ColoServiceAbsent")
                await less_can_be_given_than_is_held(prometheus, colo)
                await colo.kill("sim-lost")
                await prometheus.fires("ColoNodesLost")
                await colo.kill("sim-withheld")
                await prometheus.fires("ColoLossesWithheld")
                await jobs_stand_still(prometheus, colo, client)
            finally:
                await client.close()
        fired = {
            rule["alert"]
            for group in yaml.safe_load(RULES.read_text())["groups"]
            for rule in group["rules"]
            if "alert" in rule
        }
        assert fired == CAUSED | CAUSED_BY_A_KERNEL


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk_at(tmp_path / "disk") as path:
        yield path


@pytest.mark.kernel
@pytest.mark.skipif(len(online_cpus("/sys")) < 2, reason="two CPUs are needed")
async def test_what_goes_wrong_on_a_machine_is_alerted(tmp_path: Path, disk: Path) -> None:
    """The executor of this machine, whose processes are all others, starts work of class LSE; then its disk is filled, and at last
    the work is to end and its control group cannot be removed.
    """
    first = online_cpus("/sys").first(1)
    settings = {
        "COLO_EXECUTOR_NODE": "this",
        # By a clock that is sixty times as fast.
        "COLO_EXECUTOR_RECONCILE_MS": "30000",
        "COLO_EXECUTOR_ON_EXIT": "restore",
        "COLO_EXECUTOR_PROCESS_SUBTREE": f"colo-alerts-{os.getpid()}",
        "COLO_EXECUTOR_PROCESS_STATE_DIR": str(disk / "state"),
    }
    run = RunSpec(command=("sleep", "600"))
    work = replace(
        a_placement("web/main/0", node="this"), qos=QosClass.LSE, band=PriorityBand.PROD, cpus=first.format(), run=run
    )
    with running_prometheus(tmp_path) as prometheus:
        async with running_colo(tmp_path, nodes=1) as colo:
            # It would order the stop of work that it does not know.
            await colo.processes.stop(["jobs"])
            executor = await colo.processes.start("executor", "colo_executor", settings)
            await colo.processes.wait_ready(["executor"])
            prometheus.ask(executor=executor.address or "")
            client = await nats.connect(colo.nats_url)
            try:
                order = ApplyPlacements(
                    at_ms=time.time_ns() // 1_000_000, node="this", generation=1, placements=(work,)
                )
                await client.publish(subject_of(order), encode(order))
                await prometheus.fires("ColoOwnCpusOpen")
                with contextlib.suppress(OSError):
                    (disk / "filler").write_bytes(bytes(1 << 20))
                count = itertools.count(1)

                async def stop_nothing() -> None:
                    """An end is noted in the journal each time, of what was not there."""
                    stop = stop_of(f"none/main/{next(count)}")
                    await client.publish(subject_of(stop), encode(stop))

                await prometheus.fires("ColoExecutorJournalBehind", cause=stop_nothing)
                (disk / "filler").unlink()
                online = CgroupTree("/sys/fs/cgroup", f"{settings['COLO_EXECUTOR_PROCESS_SUBTREE']}-online")
                with covered_group(online, f"lse.{replica_token(work.replica, 1)}"):
                    stop = stop_of(work.replica)
                    await client.publish(subject_of(stop), encode(stop))
                    await prometheus.fires("ColoReplicasStuck")
            finally:
                await client.close()
                await colo.processes.stop(["executor"])
    left = f"{settings['COLO_EXECUTOR_PROCESS_SUBTREE']}*"
    assert not [*Path("/sys/fs/cgroup").glob(left), *Path("/sys/fs/cgroup").glob(f"*/{left}")]


def stop_of(replica: str) -> StopReplicas:
    """An order to end the replica on this machine, at once."""
    stop = ReplicaStop(replica=replica, attempt=1, reason=Reason.CANCELLED, grace_ms=0)
    return StopReplicas(at_ms=time.time_ns() // 1_000_000, node="this", generation=1, stops=(stop,))


#: What the first test causes; a new alert needs a cause there.
CAUSED: Final = {
    "ColoBatchFrozenOften", "ColoDeadLetters", "ColoFactsLost", "ColoLedgerDisagrees", "ColoLossesWithheld", "ColoMixedVersions",
    "ColoNodesLost", "ColoOnlineHarmFast", "ColoOnlineHarmSlow", "ColoPromiseBrokenFast", "ColoPromiseBrokenSlow",
    "ColoServiceAbsent", "ColoServiceLag", "ColoServiceNotReady",
}  # fmt: skip


#: What needs a kernel to be caused.
CAUSED_BY_A_KERNEL: Final = {"ColoExecutorJournalBehind", "ColoOwnCpusOpen", "ColoReplicasStuck"}


async def nothing_fires(prometheus: Prometheus, colo: RunningColo) -> None:
    """Every rule is evaluated over what every service says, and no alert fires."""
    prometheus.ask(**addresses(colo))

    async def all_measured() -> bool:
        targets = (await asyncio.to_thread(prometheus.get, "targets"))["activeTargets"]
        return len(targets) == 5 and all(each["health"] == "up" for each in targets)

    async def all_quiet() -> bool:
        groups = (await asyncio.to_thread(prometheus.get, "rules"))["groups"]
        healthy = all(rule["health"] == "ok" for group in groups for rule in group["rules"])
        # A simulation that lags on a busy machine may harm online work for a moment.
        return healthy and not (await asyncio.to_thread(prometheus.firing)).keys() - BY_ITSELF

    await eventually(all_measured, "every service is measured", limit_s=LIMIT_S)
    await eventually(all_quiet, "no alert fires", limit_s=LIMIT_S)


async def batch_work_is_frozen(prometheus: Prometheus, colo: RunningColo) -> None:
    """Online work of the last node uses more than its batch work may ever leave it."""
    prometheus.ask(**addresses(colo), frozen=colo.process("sim-frozen").address or "")
    await prometheus.fires("ColoBatchFrozenOften")
    prometheus.ask(**addresses(colo))


async def work_that_holds_much(colo: RunningColo) -> None:
    """Batch work on every node, which runs for longer than the test."""
    total_mcpu = sum(each["batch_cpu_mcpu"] for each in (await colo.get("/v1/nodes"))["nodes"])
    job = {
        "name": "holds",
        "cpu": "2",
        "memory": "64Mi",
        "replicas": total_mcpu * 7 // 10 // 2_000,
        "work": "9000000 cpu-s",
    }
    await colo.submit(job)

    async def all_held() -> bool:
        return bool((await colo.get("/v1/status"))["fleet"]["held_cpu_mcpu"] >= total_mcpu // 2)

    await eventually(all_held, "half of what is promised is held", limit_s=LIMIT_S)


async def online_work_is_harmed(prometheus: Prometheus, client: nats.aio.client.Client) -> None:
    """A collector says for as long as it takes that threads of online work wait all the time."""

    count = itertools.count(1)

    async def say() -> None:
        seq = next(count)
        sample = a_sample("elsewhere", seq=seq, at_ms=seq * 1000)
        harmed = replace(sample, interval_ms=10_000, online_stall_us=10_000_000)
        await client.publish("colo.v1.tlm.node.elsewhere.usage", encode(harmed))

    await prometheus.fires("ColoOnlineHarmFast", "ColoOnlineHarmSlow", cause=say)


async def two_versions(prometheus: Prometheus, colo: RunningColo, directory: Path) -> None:
    """An evictor of another version stands by."""
    other = directory / "other" / "colo-9.9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: colo\nVersion: 9.9.9\n")
    path = os.pathsep.join(filter(None, (str(other.parent), os.environ.get("PYTHONPATH", ""))))
    newer = await colo.processes.start("newer", "colo_evictor", {"PYTHONPATH": path})
    await colo.processes.wait_ready(["newer"])
    prometheus.ask(**addresses(colo), newer=newer.address or "")
    await prometheus.fires("ColoMixedVersions")
    # It would take over what the test takes away.
    await colo.processes.stop(["newer"])
    prometheus.ask(**addresses(colo))


async def a_row_that_nobody_can_read(prometheus: Prometheus, colo: RunningColo) -> None:
    """Somebody wrote into the ledger by hand."""
    store = redis.asyncio.Redis.from_url(colo.redis_url)
    try:
        await store.hset("colo:v1:ledger:node:node-01", "h:by/hand/0#1", "no hold")
        await store.hincrby("colo:v1:ledger:changes", "node-01", 1)
    finally:
        await store.aclose()
    await prometheus.fires("ColoLedgerDisagrees")


async def a_store_is_emptied(prometheus: Prometheus, colo: RunningColo) -> None:
    """Somebody emptied Redis; who lives puts its rows back."""
    store = redis.asyncio.Redis.from_url(colo.redis_url)
    try:
        await store.flushall()
    finally:
        await store.aclose()
    await prometheus.fires("ColoFactsLost")


async def less_can_be_given_than_is_held(prometheus: Prometheus, colo: RunningColo) -> None:
    """Online work may have nearly the whole machine from now on; and the evictor is away, which would take back what is held."""
    await colo.processes.stop(["overcommit"])
    await colo.processes.start("overcommit", "colo_overcommit", {"COLO_OVERCOMMIT_CPU_RECLAIM_PCT": "25"})
    await colo.processes.wait_ready(["overcommit"])
    prometheus.ask(**addresses(colo))
    await prometheus.fires("ColoPromiseBrokenFast", "ColoPromiseBrokenSlow")


async def jobs_stand_still(prometheus: Prometheus, colo: RunningColo, client: nats.aio.client.Client) -> None:
    """The jobs service stands still while much is reported to it."""
    pid = colo.process("jobs").process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        # More than its consumer has given out and not acknowledged, besides.
        for _ in range(20_000):
            await client.publish("colo.v1.evt.enforcement.node-01.started", b"no replica")
        await client.flush(timeout=LIMIT_S)
        await prometheus.fires("ColoServiceLag", "ColoServiceNotReady")
    finally:
        os.kill(pid, signal.SIGCONT)
