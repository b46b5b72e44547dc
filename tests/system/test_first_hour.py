"""A newcomer's first hour: README's commands in their order, then the ten questions, compared with what a stranger reads."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from colo_cli.examples import EXAMPLES
from colo_cli.main import main
from tests.support.lab import Lab, lab
from tests.support.ports import free_ports
from tests.support.waiting import eventually_blocking
from tests.support.witness import Witness

pytestmark = [pytest.mark.server, pytest.mark.timeout(400)]

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()
#: What only a person's machine is for: it fetches, or it lasts for minutes, or it is the lab itself.
NOT_RUN: Final = ("python3 -m venv", "pip install", "colo lab", "just image")
RUNS_ON: Final = "python examples/subscribe.py"

#: For each command of the tour, the exit codes that are no fault, and what must be in its answer.
TOUR: Final = {
    # 1: something is wrong, which on a busy machine something may be; then it says what.
    "colo status": ((0, 1), r"nodes +12"),
    "colo get nodes": ((0,), r"node-12 "),
    "colo explain overcommit node-01": ((0,), r"= allocatable "),
    "colo fits": ((0,), r"replicas? of 2 CPU, 4Gi"),
    "colo plan -f examples/job.yaml": ((0,), r"fits: 4 of 4"),
    "colo submit -f examples/job.yaml": ((0,), r"hello-\w+"),
    "colo explain job hello": ((0,), r"submitted: 4 replicas"),
    "colo trace hello": ((0,), r"queue\.wait"),
    "colo get node node-01": ((0,), r"^ZONE"),
    "colo get node node-01 --cpus": ((0,), r"^GROUP"),
    "colo get queues": ((0,), r"^default"),
    "colo get tenants": ((0,), r"^default"),
    "colo history": ((0,), r"times are simulated"),
    "colo watch": ((0,), r"\d\d:\d\d:\d\d"),
    "colo get evictions": ((0,), r"."),
    "colo get harm": ((0,), r"online"),
    "curl -s http://127.0.0.1:8088/v1/status": ((0,), r'"is_well"'),
    "curl -s http://127.0.0.1:8088/v1/openapi.json": ((0,), r'"openapi"'),
    "colo cordon node-05": ((0,), r"node-05 cordoned"),
    "colo drain node-05 --dry-run": ((0,), r"nothing was changed"),
    "colo uncordon node-05": ((0,), r"cordon lifted"),
    "colo pause node-05": ((0,), r"node-05 paused"),
    "colo resume node-05": ((0,), r"node-05"),
    "colo help words headroom": ((0,), r"headroom"),
    "colo quiesce": ((0,), r"12 of 12 nodes confirmed"),
    "colo unquiesce": ((0,), r"quiesce lifted"),
    "colo plan -f examples/placed.yaml": ((0,), r"fits: 5 of 5"),
    "colo reserve -f examples/reservation.yaml": ((0,), r"for-hello"),
    "colo explain reservation for-hello": ((0,), r"for-hello: "),
    "colo unreserve for-hello": ((0,), r"for-hello was "),
}


def commands() -> list[str]:
    """The lines of README's console blocks but for those about tests, without their comments."""
    begin = README.index("\n## Test it")
    text = README[:begin] + README[README.index("\n## ", begin + 1) :]
    blocks = re.findall(r"^```console\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]


class FirstHour(NamedTuple):
    """A lab as README starts it, on free ports, and somebody at another terminal."""

    lab: Lab
    api: str
    nats_url: str
    witness: Witness

    def types(self, command: str) -> subprocess.CompletedProcess[str]:
        """Type a line of README's; its ports are those of this lab."""
        line = command.replace("127.0.0.1:8088", self.api.removeprefix("http://"))
        line = line.replace("nats://127.0.0.1:4222", self.nats_url)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-c", line],
            cwd=ROOT,
            env={"PATH": path, "HOME": str(self.lab.directory), "LANG": "C.UTF-8", "COLO_API": self.api},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def asks(self, command: str) -> Any:
        """The answer to a command of colo as an object."""
        done = self.types(f"colo {command} -o json")
        assert done.returncode in (0, 1), done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FirstHour]:
    """One lab for the whole hour."""
    port, nats_port = free_ports(2)
    nats_url = f"nats://127.0.0.1:{nats_port}"
    with lab(tmp_path_factory.mktemp("hour"), "--port", str(port), "--nats-port", str(nats_port)) as running:
        eventually_blocking(lambda: _is_open(port), "the gateway listens")
        (redis_socket,) = running.directory.glob("colo-lab-*/redis/redis.sock")
        with Witness(nats_url, redis_socket) as witness:
            first = FirstHour(running, f"http://127.0.0.1:{port}", nats_url, witness)
            eventually_blocking(lambda: len(witness.newest(".usage")) == 12, "every node is heard")
            eventually_blocking(lambda: len(witness.holds()) > 20, "batch work fills the valleys")
            yield first


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# ---------------------------------------------------------------- the tour


def test_every_command_of_the_readme_works_in_its_order_on_the_lab_that_it_starts(hour: FirstHour) -> None:
    typed = [line for line in commands() if not line.startswith((*NOT_RUN, RUNS_ON))]
    keys_of = {line: [key for key in TOUR if line.startswith(key)] for line in typed}
    assert not [line for line, keys in keys_of.items() if not keys], (
        "a command of README's that this test does not know"
    )
    assert {key for keys in keys_of.values() for key in keys} == set(TOUR), "README has lost a command of the tour"
    for line in typed:
        codes, says = TOUR[max(keys_of[line], key=len)]
        done = hour.types(line)
        assert done.returncode in codes, f"{line}: {done.returncode} {done.stdout} {done.stderr}"
        assert re.search(says, done.stdout, flags=re.MULTILINE), f"{line}: {done.stdout}"
        assert "Traceback" not in done.stderr
        if line.startswith("colo submit"):
            eventually_blocking(lambda: _placed(hour, "hello") >= 4, "the job has its places")


def _placed(hour: FirstHour, name: str) -> int:
    """How many replicas of jobs of this name have been placed."""
    placed = (each for one in hour.witness.received("placement.decided") for each in one.body.get("placements", ()))
    return len({each["replica"] for each in placed if each["job"].rpartition("-")[0] == name})


def test_the_example_of_a_subscriber_hears_what_happens(hour: FirstHour) -> None:
    (line,) = [line for line in commands() if line.startswith(RUNS_ON)]
    done = hour.types(f"{line} | head -20")
    received = done.stdout.splitlines()
    assert len(received) == 20, done.stderr
    assert all(one.startswith("colo.v1.evt.") for one in received)
    assert len((ROOT / "examples" / "subscribe.py").read_text().splitlines()) <= 21


# ---------------------------------------------------------------- ten questions


def test_why_is_the_batch_cpu_of_a_node_this_number(hour: FirstHour) -> None:
    published = hour.asks("explain overcommit node-01")["published"]
    terms = {(term["name"], term.get("zone")): term["value"] for term in published["explanation"]["terms"]}

    def recomputed(zone: int) -> int:
        # The formula that the answer prints, by hand.
        capacity = terms["cpu_capacity", zone]
        kept = -(-capacity * (100 - terms["cpu_reclaim_pct", zone]) // 100)
        system = max(terms["cpu_system_used", zone], terms["cpu_reserved", zone])
        return max(0, terms["cpu_held", zone], capacity - kept - system - terms["cpu_online_used", zone])

    zones = published["zones"]
    assert [zone["batch_cpu_mcpu"] for zone in zones] == [recomputed(zone["zone"]) for zone in zones]
    assert sum(recomputed(zone["zone"]) for zone in zones) == published["batch_cpu_mcpu"]
    # And it is what the bus has.
    published_before = [
        one.body for one in hour.witness.received("node.node-01.allocatable") if one.body["at_ms"] == published["at_ms"]
    ]
    assert [one["batch_cpu_mcpu"] for one in published_before] in ([published["batch_cpu_mcpu"]], [])


def test_which_node_is_most_loaded(hour: FirstHour) -> None:
    def agrees() -> bool:
        nodes = hour.asks("get nodes --sort cpu")["nodes"]
        used = {node: sample["cpu_used_mcpu"] for node, sample in hour.witness.newest(".usage").items()}
        # Samples go on while the answer travels: within a twentieth of a machine.
        return len(nodes) == 12 and used[nodes[0]["node"]] >= max(used.values()) - 64_000 // 20

    assert eventually_blocking(agrees, "the first node of the answer is the busiest of the samples")


def test_what_the_tenant_holds_is_what_the_ledger_holds(hour: FirstHour) -> None:
    def agrees() -> bool:
        before = hour.witness.held_mcpu()
        (tenant,) = hour.asks("get tenants")["tenants"]
        after = hour.witness.held_mcpu()
        # Work comes and goes while the answer is on its way.
        return min(before, after) * 0.97 <= tenant["held_cpu_mcpu"] <= max(before, after) * 1.03

    assert eventually_blocking(agrees, "get tenants and the ledger agree")


def test_what_online_services_felt_in_the_last_ten_minutes(hour: FirstHour) -> None:
    def agrees() -> bool:
        fleet = hour.asks("get harm")["fleet"]
        assert "CPU than it wanted" in fleet["definition"]
        samples = [one.body for one in hour.witness.received(".usage")]
        end_ms = max(sample["at_ms"] for sample in samples)
        recent = [sample for sample in samples if sample["at_ms"] > end_ms - fleet["window_ms"]]
        lived_ms = sum(sample["interval_ms"] for sample in recent)
        # 1 % of a sample is ten times as many microseconds as the sample has milliseconds.
        harmed_ms = sum(
            sample["interval_ms"]
            for sample in recent
            if (sample.get("online_stall_us") or 0) > fleet["stall_bound_pct"] * 10 * sample["interval_ms"]
        )
        # The answer counts in parts of half a minute a node, and goes on while it travels.
        near = abs(fleet["harmed_ms"] - harmed_ms) <= 30_000 + harmed_ms // 5
        return near and abs(fleet["lived_ms"] - lived_ms) <= 0.15 * lived_ms

    assert eventually_blocking(agrees, "the harm of the answer is that of the samples")


def test_what_would_fit_now(hour: FirstHour) -> None:
    def agrees() -> bool:
        (task,) = hour.asks("fits --cpu 2 --memory 1Gi")["tasks"]
        held = Counter[str]()
        for hold in hour.witness.holds():
            held[hold["node"]] += hold["cpu_mcpu"]
        facts = hour.witness.newest(".allocatable")
        most = sum(max(fact["batch_cpu_mcpu"] - held[node], 0) // 2_000 for node, fact in facts.items())
        # A replica takes one zone or several; what is free lies in four zones a node.
        return most * 0.5 <= task["fits"] <= most * 1.1

    assert eventually_blocking(agrees, "as many fit as promises and ledger leave room for")
    (large,) = hour.asks("fits --cpu 65 --memory 1Gi")["tasks"]
    assert (large["fits"], large["never"]) == (0, True)


def test_why_a_job_waits(hour: FirstHour, tmp_path: Path) -> None:
    job = tmp_path / "wide.yaml"
    job.write_text("name: wide\ntasks:\n  - {name: main, cpu: 60, memory: 1Gi, work: 1 cpu-min}\n")
    assert hour.types(f"colo submit -f {job}").returncode == 0
    story = _explained(hour)
    assert re.search(r"0 of 12 nodes fit: .*batch-cpu-short", story)
    assert "submitted: 1 replica" in story
    assert hour.types("colo cancel wide").returncode == 0


def _explained(hour: FirstHour) -> str:
    def answered() -> str:
        answer = hour.types("colo explain job wide").stdout
        return answer if "batch-cpu-short" in answer else ""

    return eventually_blocking(answered, "the answer says what is short")


def test_what_changed_in_the_last_minute(hour: FirstHour) -> None:
    answered = hour.asks("history --since 1m --limit 1000")
    job_ids = {line["fact"]["job"] for line in answered["lines"] if line["type"] == "JobSubmitted"}
    received = {
        one.body["job"]
        for one in hour.witness.received("job.submitted")
        if answered["from_ms"] <= one.body["at_ms"] <= answered["to_ms"] - 30_000
    }
    assert received <= job_ids
    assert answered["counts"]


def test_is_anything_broken(hour: FirstHour) -> None:
    everyone = dict.fromkeys(("gateway", "jobs", "scheduler", "overcommit", "evictor"), True)

    def all_ready() -> Any:
        """What is asked, once nobody is too busy to answer in time."""
        status = hour.asks("status")
        asked = {service["service"]: service["is_ready"] for service in status["services"]}
        return status if asked == everyone else None

    status = eventually_blocking(all_ready, "every service is ready")
    assert status["is_well"] == (not status["findings"])
    assert status["recent"]["dead_letters"] == {}
    assert not hour.witness.received("dead-letter")


def test_all_batch_on_a_node_stops_now_and_evictions_are_explained(hour: FirstHour) -> None:
    node = max(hour.witness.newest(".usage"), key=hour.witness.held_mcpu)
    assert hour.types(f"colo drain {node} --reason 'the first hour' --grace 1s").returncode == 0
    eventually_blocking(lambda: hour.witness.held_mcpu(node) == 0, f"the ledger holds nothing on {node}")

    def ordered_there() -> list[dict[str, Any]]:
        return [one.body for one in hour.witness.received("eviction.requested") if one.body["node"] == node]

    ordered = eventually_blocking(ordered_there, "the evictions are received")

    def all_listed() -> bool:
        listed = {one["eviction"] for one in hour.asks("get evictions")["evictions"]}
        return {one["eviction"] for one in ordered} <= listed

    eventually_blocking(all_listed, "the gateway lists them")
    newest = ordered[-1]
    explained = hour.types(f"colo explain eviction {newest['eviction']}").stdout
    assert newest["replica"] in explained
    assert newest["node"] in explained
    assert hour.types(f"colo uncordon {node}").returncode == 0


# ---------------------------------------------------------------- the example of every command's help

#: Commands whose examples ask no gateway, or last until somebody ends them; tests/unit/cli/test_help.py reads them.
NOT_ASKED: Final = ("admin", "completion", "doctor", "help", "lab", "node", "watch", "")
#: What comes last, because it takes away what the others ask about.
LAST: Final = ("colo cancel render", "colo unreserve night")
#: The examples about things that a sound lab does not have: a replica that was evicted, and messages that nobody could handle.
NOT_THERE: Final = (
    "colo explain eviction ",
    "colo dead-letters drop",
    "colo dead-letters replay",
    "colo dead-letters show",
)


@pytest.mark.enable_socket
def test_the_example_of_every_command_does_what_it_says(
    hour: FirstHour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLO_API", hour.api)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)
    job, place = tmp_path / "render.yaml", tmp_path / "night.yaml"
    job.write_text((ROOT / "examples" / "job.yaml").read_text().replace("name: hello", "name: render"))
    place.write_text((ROOT / "examples" / "reservation.yaml").read_text().replace("name: for-hello", "name: night"))
    asking = {example for name, example in EXAMPLES.items() if name.split(" ")[0] not in NOT_ASKED}
    for line in (f"colo submit -f {job}", f"colo reserve -f {place}", *sorted(asking - set(LAST)), *LAST):
        code = main(shlex.split(line)[1:])
        printed = capsys.readouterr()
        if line.startswith(NOT_THERE):
            assert (code, printed.out) == (1, ""), line
            assert printed.err.startswith("colo: "), line
        else:
            # 1: something is wrong, which on a busy machine something may be; then it says what.
            assert code in ((0, 1) if line == "colo status" else (0,)), f"{line}: {printed.out}{printed.err}"
            assert printed.out, line
    assert len(asking) > 35
