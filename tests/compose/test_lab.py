"""What compose/README.md says of the lab in containers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from colo_cli.bus_rights import CONTROL
from tests.audit.judge import judge, lines_of
from tests.audit.recording import read
from tests.support.containers import FOLDER, Containers, answered
from tests.support.running import FINAL
from tests.support.waiting import NeverHappened, eventually_blocking

pytestmark = [pytest.mark.compose, pytest.mark.server, pytest.mark.timeout(400)]

FILES = Path(__file__).parents[2] / "k8s" / "colo" / "files"
RULES = [
    rule for group in yaml.safe_load((FILES / "rules" / "colo.yaml").read_text())["groups"] for rule in group["rules"]
]
PLACEMENT = {"colo-jobs submit", "colo-scheduler decide", "colo-scheduler commit", "colo-sim apply"}
IDLE_MIB = 80
IMAGE_MB = 250
#: Work that begins while everything is written down. It is long, so that it ends by being evicted or cancelled.
BATCH = {"name": "audited", "replicas": 24, "cpu": "500m", "memory": "256Mi", "work": "600 cpu-min", "grace": "1s"}
OWN_CPUS = {"name": "audited-own", "qos": "LSR", "replicas": 4, "cpu": "2", "memory": "1Gi", "work": "600 cpu-min"}


def queries() -> list[tuple[str, str]]:
    """Every query of every dashboard, with its place."""
    return [
        (f"{path.stem}: {panel['title']}", target["expr"].replace("$instance", ".*"))
        for path in sorted((FILES / "dashboards").glob("*.json"))
        for panel in json.loads(path.read_text())["panels"]
        for target in panel["targets"]
    ]


def asked(lab: Containers, query: str) -> list[object]:
    answer = lab.get("PROMETHEUS_PORT", "/api/v1/query", query=query)
    assert answer["status"] == "success", answer
    return answer["data"]["result"]


def test_the_first_placement_comes_in_time(containers: Containers):
    print(f"\nfirst placement {containers.first_placement_s:.1f} s after `docker compose up --wait` (budget: 20 s)")
    status = containers.get("API_PORT", "/v1/status")
    assert {each["service"]: each["is_ready"] for each in status["services"]} == dict.fromkeys(
        ("gateway", "jobs", "scheduler", "overcommit", "evictor"), True
    )

    def all_fresh() -> bool:
        return bool(containers.get("API_PORT", "/v1/status")["fleet"]["nodes"]["fresh"] == 12)

    # The first placement does not wait for the last node.
    assert eventually_blocking(lambda: answered(all_fresh), "every node is fresh", limit_s=30)


def test_every_figure_of_the_dashboards_has_data(containers: Containers):
    def empty() -> list[str]:
        return [f"{place}: {query}" for place, query in queries() if not asked(containers, query)]

    with suppress(NeverHappened):
        eventually_blocking(lambda: not empty(), "every query has data", limit_s=150)
    assert empty() == []
    print(f"\n{len(queries())} queries of four dashboards have data")


def test_a_placement_is_one_trace_in_jaeger(containers: Containers):
    if "traces" not in containers.services():
        pytest.skip("NOT PROVED: there is no image of Jaeger (TRACES_IMAGE)")

    def whole() -> set[str]:
        """The parts of a placement that Jaeger lists under the link of the dashboards."""
        traces = containers.get("TRACES_PORT", "/api/traces", service="colo-jobs", lookback="1h", limit="100")["data"]
        parts = [
            {f"{each['processes'][span['processID']]['serviceName']} {span['operationName']}" for span in each["spans"]}
            for each in traces
        ]
        return next((found for found in parts if found >= PLACEMENT), set())

    assert eventually_blocking(lambda: answered(whole), "Jaeger has every span of a placement", limit_s=60)


def test_every_rule_is_evaluated_and_no_alert_fires(containers: Containers):
    groups = containers.get("PROMETHEUS_PORT", "/api/v1/rules")["data"]["groups"]
    found = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert found.keys() == {rule.get("alert") or rule["record"] for rule in RULES}
    assert eventually_blocking(
        lambda: all(
            rule["health"] == "ok"
            for group in containers.get("PROMETHEUS_PORT", "/api/v1/rules")["data"]["groups"]
            for rule in group["rules"]
        ),
        "every rule was evaluated",
        limit_s=60,
    )
    for rule in RULES:
        if "record" in rule:
            assert asked(containers, rule["record"]), rule["record"]
    alerts = containers.get("PROMETHEUS_PORT", "/api/v1/alerts")["data"]["alerts"]
    firing = {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}
    # Simulated online load may rise above what was promised, and a busy machine lets its simulation lag.
    assert not firing - {"ColoOnlineHarmFast", "ColoPromiseBrokenFast"}


@contextmanager
def recorded(lab: Containers, folder: Path) -> Iterator[Path]:
    """What the lab says and stores meanwhile, written down by an administrator of its servers."""
    ca, key, file = folder / "ca.pem", folder / "admin.nkey", folder / "recording.jsonl"
    ca.write_text(lab.compose("exec", "-T", "gateway", "cat", "/etc/colo/ca.pem"))
    key.write_text(lab.secret("admin"))
    password = lab.compose("exec", "-T", "redis", "cat", "/etc/redis/secrets/admin-password").strip()
    # The certificate is for the name that the containers know it by.
    where = f"{lab.address_of('redis')}:6379/0?ssl_ca_certs={ca}&ssl_check_hostname=False"
    words = ["--nats", f"tls://127.0.0.1:{lab.ports['NATS_PORT']}", "--nats-ca", str(ca), "--nats-nkey", str(key)]
    words += ["--redis", f"rediss://admin:{quote(password)}@{where}", "--parent", str(os.getpid()), str(file)]
    process = subprocess.Popen([sys.executable, "-m", "tests.audit", "record", *words], cwd=FOLDER.parent)
    try:
        assert eventually_blocking(file.exists, "the recording begins", limit_s=60)
        yield file
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=90) == 0
    finally:
        process.kill()
        process.wait()


def nothing_is_held(lab: Containers) -> bool:
    """Cancel what has not ended; whether nothing is held any more."""
    for job in lab.get("API_PORT", "/v1/jobs", limit="1000")["jobs"]:
        if job["state"] not in FINAL and job["state"] != "Terminating":
            lab.change("DELETE", f"/v1/jobs/{job['job']}")
    return bool(lab.get("API_PORT", "/v1/status")["fleet"]["held_cpu_mcpu"] == 0)


def replicas_of(lab: Containers, job: str) -> list[Any]:
    """The replicas of a job as the gateway shows them."""
    found: list[Any] = lab.get("API_PORT", f"/v1/jobs/{job}")["replicas"]
    return found


def run_there(lab: Containers, job: str) -> bool:
    """Whether every replica of a job runs."""
    return all(replica["state"] == "Running" for replica in replicas_of(lab, job))


def victims_find_another_place(lab: Containers, job: str) -> None:
    """Drain the node with most of the job's replicas until two of them were evicted and run somewhere else; then lift that."""
    nodes = Counter(replica["node"] for replica in replicas_of(lab, job))
    node, count = nodes.most_common(1)[0]
    assert count >= 2, nodes
    lab.change("POST", "/v1/restrictions", {"kind": "drain", "scope": "node", "target": node, "grace": "1s"})

    def moved() -> bool:
        later = [each for each in replicas_of(lab, job) if each["evictions"] and each["state"] == "Running"]
        return len(later) >= 2 and all(each["attempt"] > 1 and each["node"] != node for each in later)

    assert eventually_blocking(lambda: answered(moved), "two victims run on another node", limit_s=90)
    lab.change("DELETE", f"/v1/restrictions?kind=drain&scope=node&target={node}")


def test_services_are_scaled_up_and_down_and_nothing_is_broken(containers: Containers, tmp_path: Path):
    def instances() -> dict[str, int]:
        services = containers.get("API_PORT", "/v1/services")["services"]
        return {each["service"]: len(each["instances"]) for each in services if each["is_ready"]}

    wanted = {"scheduler": 3, "jobs": 2, "overcommit": 2, "evictor": 2}
    with recorded(containers, tmp_path) as recording:
        scales = (word for name, count in wanted.items() for word in ("--scale", f"{name}={count}"))
        containers.up("--no-recreate", *scales)
        assert eventually_blocking(
            lambda: answered(lambda: wanted.items() <= instances().items()), "every instance answers", limit_s=90
        ), instances()
        # Only now: a placement that names a number from before the recording cannot be checked.
        own = [containers.change("POST", "/v1/jobs", job)["job"] for job in (BATCH, OWN_CPUS)]
        query = 'count(colo_ready{part="scheduler",service="scheduler"} == 1) == 3'
        assert eventually_blocking(lambda: asked(containers, query), "three schedulers are measured", limit_s=60)
        for job in own:
            assert eventually_blocking(
                lambda name=job: answered(lambda: run_there(containers, name)), f"{job} runs", limit_s=60
            )
        victims_find_another_place(containers, own[0])
        containers.up("--no-recreate")
        one = dict.fromkeys(wanted, 1)
        assert eventually_blocking(
            lambda: answered(lambda: one.items() <= instances().items()), "one instance of each answers", limit_s=90
        ), instances()
        containers.compose("stop", "--timeout", "2", "feed")
        assert eventually_blocking(lambda: answered(lambda: nothing_is_held(containers)), "all jobs end", limit_s=120)
    found = judge(read(recording))
    print("\n" + "\n".join(lines_of(found)))
    assert not found.violations
    assert [each.invariant for each in found.findings if not each.checked] == []
    containers.compose("start", "feed")


def test_an_alert_fires_when_its_cause_is_there_and_ends_with_it(containers: Containers):
    def state(name: str) -> set[str]:
        alerts = containers.get("PROMETHEUS_PORT", "/api/v1/alerts")["data"]["alerts"]
        return {each["state"] for each in alerts if each["labels"]["alertname"] == name}

    containers.compose("stop", "--timeout", "2", "evictor")
    assert eventually_blocking(
        lambda: answered(lambda: state("ColoServiceAbsent") == {"firing"}), "ColoServiceAbsent fires", limit_s=120
    )
    containers.compose("start", "evictor")
    assert eventually_blocking(
        lambda: answered(lambda: not state("ColoServiceAbsent")), "ColoServiceAbsent ends", limit_s=60
    )


def test_a_service_is_small(containers: Containers):
    lines = containers.docker("stats", "--no-stream", "--format", "{{.Name}} {{.CPUPerc}} {{.MemUsage}}").splitlines()
    own = {
        name.removeprefix(f"{containers.project}-"): rest
        for name, _, rest in (line.partition(" ") for line in lines)
        if name.startswith(containers.project)
    }
    print("\n" + "\n".join(f"{name:<16}{rest}" for name, rest in sorted(own.items())))
    for name in ("jobs", "scheduler", "overcommit", "evictor", "gateway"):
        used = re.search(r"([0-9.]+)MiB /", own[f"{name}-1"])
        assert used is not None, own
        assert float(used[1]) <= IDLE_MIB, (name, used[1])


def test_the_image_is_no_larger_than_it_may_be(containers: Containers):
    image = os.environ.get("COLO_IMAGE", "colo:local")
    size_mb = int(containers.docker("image", "inspect", image, "--format", "{{.Size}}")) / 1e6
    print(f"\nthe image: {size_mb:.0f} MB")
    assert size_mb <= IMAGE_MB


def test_nobody_has_the_key_of_another_and_nothing_was_refused(containers: Containers):
    keys = {name: containers.compose("exec", "-T", name, "cat", "/etc/colo/nkey").split() for name in CONTROL}
    assert {name: user for name, (_, user) in keys.items()} == {name: name for name in CONTROL}
    assert len({seed for seed, _ in keys.values()}) == len(CONTROL)
    refused = containers.compose("exec", "-T", "redis", "sh", "/etc/redis/admin.sh", "ACL", "LOG")
    assert not refused.strip(), refused
    logged = containers.compose("logs", "--no-log-prefix", *CONTROL, "sim", "feed")
    # A question whose asker has ended meanwhile has no answer to give.
    assert not [line for line in logged.splitlines() if "ermissions" in line and "_inbox." not in line.lower()][:3]


def test_redis_has_after_a_restart_what_it_had(containers: Containers):
    def jobs() -> set[str]:
        words = ("exec", "-T", "redis", "sh", "/etc/redis/admin.sh", "--raw", "HKEYS", "colo:v1:job")
        return set(containers.compose(*words).split())

    before = jobs()
    assert before
    containers.compose("restart", "--timeout", "10", "redis")
    assert eventually_blocking(lambda: answered(lambda: all_ready(containers)), "every service is ready", limit_s=90)
    assert before <= jobs()
    assert "NOPERM" not in containers.compose("logs", "--no-log-prefix", "redis"), "it refused what its file has"


def all_ready(lab: Containers) -> bool:
    """Whether every instance of every service is ready."""
    services = lab.get("API_PORT", "/v1/services")["services"]
    return bool(services) and all(each["is_ready"] for each in services)


def test_all_keys_and_passwords_are_rotated_without_a_stop(containers: Containers):
    def keys() -> dict[str, str]:
        return {name: containers.compose("exec", "-T", name, "cat", "/etc/colo/nkey").split()[0] for name in CONTROL}

    def read_again() -> None:
        containers.compose("kill", "-s", "HUP", "nats")
        assert containers.compose("exec", "-T", "redis", "sh", "/etc/redis/admin.sh", "ACL", "LOAD").strip() == "OK"

    before = keys()
    for words in (("rotate",), ("rotate", "--finish")):
        containers.compose("run", "--rm", "--no-deps", "secrets", *words)
        read_again()
        # Connections are made anew with what the files have now.
        assert eventually_blocking(
            lambda: answered(lambda: all_ready(containers)), "every service is ready", limit_s=90
        )
    after = keys()
    assert not set(before.values()) & set(after.values())
    # Who still had an old password would not be let in any more.
    clients = ("exec", "-T", "redis", "sh", "/etc/redis/admin.sh", "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert int(containers.compose(*clients)) > 0
    assert eventually_blocking(
        lambda: answered(lambda: all_ready(containers)), "every service is ready again", limit_s=90
    )


def test_a_change_of_credentials_that_was_broken_off_is_given_out_at_the_next_start(containers: Containers):
    run = ("run", "--rm", "--no-deps")
    broken = "rm /secrets/all/given /secrets/feed/nkey"
    containers.compose(*run, "--entrypoint", "sh", "secrets", "-c", broken)
    assert "broken off" in containers.compose(*run, "secrets")
    assert containers.compose("exec", "-T", "feed", "cat", "/etc/colo/nkey").split()[1] == "feed"
    assert "they are there already" in containers.compose(*run, "secrets")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("show",), "show: must name a user that `list` shows (got nothing)"),
        (("show", "nobody"), "(got nobody)"),
        (("revoke", "feed", "admin"), "revoke: must not name admin"),
        (("revoke", "nobody"), "there is none of this name, and nothing was changed"),
        (("rotat",), "rotat"),
    ],
)
def test_what_the_lab_cannot_do_with_its_credentials_it_says_and_changes_nothing(
    containers: Containers, words: tuple[str, ...], says: str
):
    run = ("run", "--rm", "--no-deps", "secrets")
    with pytest.raises(AssertionError, match=re.escape(says)):
        containers.compose(*run, *words)
    assert "they are there already" in containers.compose(*run)


def test_log_lines_are_json(containers: Containers):
    for name in ("jobs", "scheduler", "gateway", "sim"):
        text = containers.compose("logs", "--no-log-prefix", name)
        assert all(json.loads(line)["event"] for line in text.splitlines())
