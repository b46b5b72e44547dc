"""An operator's questions about the present state, typed as a person types them, against what bus and Redis say themselves."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import signal
import struct
import sys
import termios
import time
from collections.abc import Mapping
from typing import Any, Final

import nats
import pytest
import pytest_asyncio

from colo_common.events.node import NodeUsageSampled
from colo_common.events.wire import decode
from colo_common.model.cpuset import CpuSet
from tests.support.running import RunningColo
from tests.support.waiting import eventually
from tests.system.test_cli import Printed, colo_command

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="session")]

ROWS: Final = 24
COLUMNS: Final = 80
LIMIT_S: Final = 120.0
BATCH: Final = {"cpu": "500m", "memory": "64Mi", "work": "100 cpu-h", "replicas": 3}


async def ask(colo: RunningColo, *words: str, stdin: bytes = b"") -> Printed:
    return await colo_command(*words, api=colo.api, stdin=stdin)


async def ask_json(colo: RunningColo, *words: str) -> Any:
    printed = await ask(colo, *words, "-o", "json")
    assert printed.out, printed.err
    return json.loads(printed.out)


async def on_terminal(colo: RunningColo, *words: str, **environment: str) -> tuple[int, str]:
    """Exit code and screen of a command on a terminal of 80x24."""
    given = {**os.environ, "COLO_API": colo.api, "TERM": "xterm", **environment}
    return await asyncio.to_thread(_on_terminal, words, given)


def _on_terminal(words: tuple[str, ...], environment: Mapping[str, str]) -> tuple[int, str]:
    pid, screen = pty.fork()
    if pid == 0:
        # By the child: it must not ask for the size before there is one.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.execve(sys.executable, [sys.executable, "-m", "colo_cli", *words], dict(environment))
    text = b""
    try:
        while part := os.read(screen, 65_536):
            text += part
    except OSError:
        # The other end is closed.
        pass
    finally:
        os.close(screen)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), text.decode().replace("\r\n", "\n")


async def newest_samples(colo: RunningColo, nodes: int) -> dict[str, NodeUsageSampled]:
    """One sample of each node, as any subscriber of the bus gets it."""
    client = await nats.connect(colo.nats_url)
    found: dict[str, NodeUsageSampled] = {}
    try:
        subscription = await client.subscribe("colo.v1.tlm.node.*.usage")
        async with asyncio.timeout(LIMIT_S):
            while len(found) < nodes:
                message = await subscription.next_msg(timeout=LIMIT_S)
                fact = decode(message.subject, message.data)
                assert isinstance(fact, NodeUsageSampled)
                found[fact.node] = fact
    finally:
        await client.close()
    return found


async def held_mcpu(colo: RunningColo) -> dict[str, int]:
    """What the ledger in Redis holds on each node."""
    async with colo.ledger() as ledger:
        rows = await ledger.rows(sorted(await ledger.changes()))
    return {
        row.node: sum(share.cpu_mcpu for hold in row.holds for share in hold.placement.zones)
        for row in rows
        if row.holds
    }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def busy(colo: RunningColo) -> RunningColo:
    """Two running jobs of two tenants, and one that waits for more than there is; submitted once for all questions."""
    found = {}
    for name, fields in (
        ("films", BATCH | {"tenant": "films"}),
        ("science", BATCH | {"tenant": "science", "cpu": "1"}),
        ("huge", BATCH | {"tenant": "science", "cpu": "200", "replicas": 1, "queue": "tiny"}),
    ):
        found[name] = await colo.submit(fields | {"name": name}, key=name)
    for name in ("films", "science"):
        await colo.reaches(found[name], "Running")

    async def all_run() -> bool:
        tenants = (await colo.get("/v1/tenants"))["tenants"]
        return {one["tenant"]: one["running"] for one in tenants} == {"films": 3, "science": 3}

    await eventually(all_run, "all replicas run")
    return colo


# ---------------------------------------------------------------- is anything broken


async def test_status_says_on_one_screen_that_all_is_well(busy: RunningColo) -> None:
    async def well() -> Printed | None:
        printed = await ask(busy, "status")
        return printed if printed.code == 0 else None

    printed = await eventually(well, "all is well")
    lines = printed.out.splitlines()
    assert lines[0].endswith(": all is well   times are simulated, x60")
    for service in ("gateway", "jobs", "scheduler", "overcommit", "evictor"):
        assert any(line.split()[:2] == [service, "yes"] for line in lines), service
    assert any(line.split(None, 1) == ["nodes", "2: 2 fresh"] for line in lines)
    assert any(line.startswith("queues") and "1 waiting" in line and "6 running" in line for line in lines)
    assert "\x1b" not in printed.out
    code, screen = await on_terminal(busy, "status")
    shown = screen.splitlines()
    assert code == 0
    assert "\x1b[32m" in shown[0]
    assert len(shown) < ROWS
    _, plain = await on_terminal(busy, "status", NO_COLOR="1")
    assert "\x1b" not in plain
    assert max(map(len, plain.splitlines())) <= COLUMNS


async def test_a_stopped_service_is_named_by_status_services_and_readiness(busy: RunningColo) -> None:
    process = busy.process("jobs").process
    process.send_signal(signal.SIGSTOP)
    try:
        begun_s = time.monotonic()
        status = await ask(busy, "status")
        took_s = time.monotonic() - begun_s
        assert status.code == 1
        assert "! jobs is not ready: nobody answers" in status.out
        assert "    -> colo get services" in status.out
        assert "not known: queues: jobs does not answer" in status.out
        # What can be printed without it is printed.
        assert "2: 2 fresh" in status.out
        assert took_s < 20

        async def only_jobs() -> bool:
            services = await ask_json(busy, "get", "services")
            ready = {entry["service"]: entry["is_ready"] for entry in services["services"]}
            return ready == {"gateway": True, "jobs": False, "scheduler": True, "overcommit": True, "evictor": True}

        await eventually(only_jobs, "jobs alone is not ready", limit_s=LIMIT_S)
        node = await ask(busy, "get", "node", "node-01")
        assert "not known: replicas: jobs does not answer" in node.out

        async def noticed() -> str:
            answer = await busy.call("GET", "/readyz?verbose")
            return str(answer.body) if answer.status == 503 else ""

        assert "[-]jobs failed: nobody answers" in await eventually(noticed, "readiness says so")
    finally:
        process.send_signal(signal.SIGCONT)

    async def well_again() -> bool:
        return (await busy.call("GET", "/readyz")).status == 200 and (await ask(busy, "status")).code == 0

    await eventually(well_again, "all is well again")


async def test_services_are_listed_with_what_tells_them_apart(busy: RunningColo) -> None:
    found = await ask_json(busy, "get", "services")
    pids = {entry["service"]: [one["pid"] for one in entry["instances"]] for entry in found["services"]}
    assert pids == {name: [busy.process(name).process.pid] for name in pids}
    assert list(pids) == ["gateway", "jobs", "scheduler", "overcommit", "evictor"]
    client = await nats.connect(busy.nats_url)
    try:
        consumers = await client.jetstream().consumers_info("COLO_RUN")
    finally:
        await client.close()
    names = {one.config.durable_name for one in consumers if (one.config.durable_name or "").startswith("colo-jobs-")}
    jobs_entry = next(entry for entry in found["services"] if entry["service"] == "jobs")
    assert names <= {each["consumer"] for each in jobs_entry["consumers"]}
    assert names


# ---------------------------------------------------------------- nodes


async def test_nodes_agree_with_the_bus_and_the_ledger(busy: RunningColo) -> None:
    samples = await newest_samples(busy, 2)
    held = await held_mcpu(busy)
    nodes = {node["node"]: node for node in (await ask_json(busy, "get", "nodes"))["nodes"]}
    assert set(nodes) == set(samples) == {"node-01", "node-02"}
    for name, node in nodes.items():
        assert node["held_cpu_mcpu"] == held.get(name, 0)
        assert node["freshness"] == "fresh"
        assert node["cpu_capacity_mcpu"] == 64_000
        # The load of the trace is a flat one: two samples differ by noise only.
        assert abs(node["cpu_used_mcpu"] - samples[name].cpu_used_mcpu) < 4_000
    assert sum(held.values()) == 3 * 500 + 3 * 1_000


async def test_nodes_are_sorted_selected_limited_and_named(busy: RunningColo) -> None:
    nodes = (await ask_json(busy, "get", "nodes"))["nodes"]
    most = [node["node"] for node in sorted(nodes, key=lambda one: (-one["held_cpu_mcpu"], one["node"]))]
    assert (await ask(busy, "get", "nodes", "--sort", "held", "-o", "name")).out.split() == most
    fewest = [node["node"] for node in sorted(nodes, key=lambda one: (one["held_cpu_mcpu"], one["node"]))]
    assert (await ask(busy, "get", "nodes", "--sort", "-held", "-o", "name")).out.split() == fewest
    one = await ask(busy, "get", "nodes", "--limit", "1")
    assert "and 1 node more" in one.out.splitlines()
    assert (await ask(busy, "get", "nodes", "--selector", "disk=ssd")).out == "no node has these labels\n"
    assert (await ask(busy, "get", "nodes", "-l", "!disk", "-o", "name")).out.split() == ["node-01", "node-02"]
    for words, sentence in (
        (("--sort", "mem"), "sort: is not an order of nodes; did you mean `memory`?"),
        (("--selector", "disk=="), 'selector: must be like "disk=ssd'),
        (("--selector", "disk ssd"), 'selector: must be like "disk=ssd'),
    ):
        refused = await ask(busy, "get", "nodes", *words)
        if refused.code == 0:
            # An empty value is one: no node has it.
            assert refused.out == "no node has these labels\n"
            continue
        assert (refused.code, refused.out) == (2, "")
        assert sentence in refused.err


async def test_a_narrow_terminal_breaks_no_number(busy: RunningColo) -> None:
    code, screen = await on_terminal(busy, "get", "nodes", NO_COLOR="1")
    assert code == 0
    header, *rows = screen.splitlines()
    assert max(map(len, (header, *rows))) <= COLUMNS
    piped = (await ask(busy, "get", "nodes")).out.splitlines()
    assert header.split()[:3] == piped[0].split()[:3] == ["NODE", "STATE", "AGE"]
    for name in ("CPU", "USED", "PROMISED", "HELD", "FREE"):
        at = header.index(name) + len(name)
        for row in rows[:2]:
            # A number ends below the end of its header, and is whole.
            assert row[at - 1].isdigit() or row[at - 1] == "%"
            assert row[at : at + 2].strip() == ""


async def test_one_node_shows_zones_replicas_ceiling_and_changes(busy: RunningColo) -> None:
    held = await held_mcpu(busy)
    name = max(held, key=lambda each: held[each])
    answer = await ask_json(busy, "get", "node", name)
    assert sum(zone["held_cpu_mcpu"] for zone in answer["node"]["zones"]) == held[name]
    assert sum(each["cpu_mcpu"] for each in answer["replicas"]["replicas"]) == held[name]
    assert {each["tenant"] for each in answer["replicas"]["replicas"]} <= {"films", "science"}
    printed = await ask(busy, "get", "node", name)
    assert printed.code == 0
    assert printed.out.startswith(f"{name}: fresh (sample ")
    for word in ("simulated", "HEADROOM", "REPLICA", "last changes"):
        assert word in printed.out
    unknown = await ask(busy, "get", "node", "node-1")
    assert (unknown.code, unknown.out) == (1, "")
    assert "did you mean `node-01`?" in unknown.err
    assert (await ask(busy, "get", "node", "Node_1")).code == 2


async def test_the_cpus_of_every_group_are_those_of_the_machine(busy: RunningColo) -> None:
    held = await held_mcpu(busy)
    name = max(held, key=lambda each: held[each])
    found = await ask_json(busy, "get", "node", name, "--cpus")
    assert found["simulated"]
    groups = {group["name"]: group for group in found["groups"]}
    placed = {
        (each["replica"], each["attempt"])
        for each in (await ask_json(busy, "get", "node", name))["replicas"]["replicas"]
    }
    assert {(group["replica"], group["attempt"]) for group in groups.values() if group["replica"]} == placed
    services = groups["online-services"]
    assert (services["is_colo"], services["qos"], services["cpus"]) == (False, "LS", "0-63")
    async with busy.ledger() as ledger:
        rows = await ledger.rows([name])
    zones = {
        hold.placement.replica: [share.zone for share in hold.placement.zones] for row in rows for hold in row.holds
    }
    for replica, numbers in zones.items():
        group = next(one for one in groups.values() if one["replica"] == replica)
        assert CpuSet.parse(group["mems"]) == CpuSet.from_iterable(numbers)
        assert CpuSet.parse(group["cpus"]) == CpuSet.from_iterable(
            cpu for zone in numbers for cpu in range(zone * 16, zone * 16 + 16)
        )
    table = await ask(busy, "get", "node", name, "--cpus")
    assert table.out.splitlines()[0].split() == [
        "GROUP",
        "CLASS",
        "CPUS",
        "MEMS",
        "WEIGHT",
        "QUOTA",
        "WHOSE",
        "PROCESSES",
    ]
    assert table.out.splitlines()[-1] == "(a simulated machine: the values that a kernel would hold)"


# ---------------------------------------------------------------- who uses what, and what would fit


async def test_tenants_and_queues_hold_what_the_ledger_holds(busy: RunningColo) -> None:
    found = await ask_json(busy, "get", "tenants")
    use = {one["tenant"]: (one["running"], one["held_cpu_mcpu"], one["waiting_cpu_mcpu"]) for one in found["tenants"]}
    assert use == {"films": (3, 1_500, 0), "science": (3, 3_000, 200_000)}
    assert sum(held for _, held, _ in use.values()) == sum((await held_mcpu(busy)).values())
    table = (await ask(busy, "get", "tenants")).out.splitlines()
    share = 3_000 * 100 // found["fleet"]["batch_cpu_mcpu"]
    assert table[1].split()[:6] == ["science", "2", "1", "3", "3", f"({share}%)"]
    queues = {one["queue"]: one for one in (await ask_json(busy, "get", "queues"))["queues"]}
    assert (queues["default"]["held_cpu_mcpu"], queues["tiny"]["waiting_cpu_mcpu"]) == (4_500, 200_000)
    assert (await ask(busy, "get", "queues", "-o", "name")).out.split() == ["default", "tiny"]
    jobs_of = await ask(busy, "get", "jobs", "--tenant", "films", "-o", "name")
    assert len(jobs_of.out.split()) == 1
    for words, sentence in (
        (("--tenant", "film"), "did you mean `films`?"),
        (("--queue", "tinny"), "did you mean `tiny`?"),
    ):
        refused = await ask(busy, "get", "jobs", *words)
        assert (refused.code, refused.out) == (1, "")
        assert sentence in refused.err


async def test_what_would_fit_is_what_the_nodes_have_free(busy: RunningColo) -> None:
    async def free() -> dict[str, int]:
        nodes = (await ask_json(busy, "get", "nodes"))["nodes"]
        return {node["node"]: (node["batch_cpu_mcpu"] - node["held_cpu_mcpu"]) // 1_000 for node in nodes}

    before = await free()
    found = await ask_json(busy, "fits", "--cpu", "1", "--memory", "64Mi")
    after = await free()
    (task,) = found["tasks"]
    # What is promised moves with every sample. A zone's rest of less than a CPU may be shared between zones or not: at most one
    # replica a zone is lost. A sample between the two readings moves a zone by less than a CPU.
    least = sum(min(before[node], after[node]) for node in before)
    most = sum(max(before[node], after[node]) for node in before)
    assert least - 8 - 8 <= task["fits"] <= most + 8
    assert sum(count for _, count in task["nodes"]) == task["fits"]
    printed = await ask(busy, "fits", "--cpu", "1", "--memory", "64Mi", "--most", "2")
    assert printed.code == 0
    assert printed.out.startswith("2 replicas or more of 1 CPU, 64Mi, class BE would fit now, on ")
    none = await ask(busy, "fits", "--cpu", "900")
    assert none.code == 1
    assert "no node could hold one even when empty" in none.out
    from_file = await ask(busy, "fits", "-f", "-", stdin=b"name: x\ncpu: 2\nmemory: 1Gi\nwork: 1 cpu-s\nreplicas: 4\n")
    assert (from_file.code, "(4 wanted)" in from_file.out) == (0, True)
    for words in ((), ("--cpu", "1", "-f", "x"), ("--cpu", "one"), ("--cpu", "1", "--qos", "XX")):
        assert (await ask(busy, "fits", *words)).code == 2, words


# ---------------------------------------------------------------- again and again


async def test_a_watched_list_is_repeated_and_ends_with_its_reader(busy: RunningColo) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "colo_cli",
        "get",
        "queues",
        "--watch",
        "-o",
        "name",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "COLO_API": busy.api},
        # Tests that a shell started in the background ignore the signal, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(LIMIT_S):
            lines = [await process.stdout.readline() for _ in range(4)]
        assert lines == [b"default\n", b"tiny\n"] * 2
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(LIMIT_S):
            _, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
