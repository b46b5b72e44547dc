"""docs/install.md: what its units start runs with its configuration, on three machines, without a privilege that is not named."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import pytest

from colo_cli.server_process import tied_command
from colo_cli.servers import find_nats_server, find_redis_server
from colo_executor.process.run_as import NOBODYS
from tests.support.lab import groups_of
from tests.support.ports import free_ports
from tests.support.units import CONFIGURATION, UNITS, Unit, relocated
from tests.support.waiting import NeverHappened, eventually_blocking

CONTROL: Final = ("jobs", "scheduler", "overcommit", "evictor", "gateway")
HTTP_PORTS: Final = {"gateway": 8088, "jobs": 9101, "scheduler": 9102, "overcommit": 9103, "evictor": 9104}
PASSWORD: Final = "a-password-of-this-test"


class Installed:
    """The files of the install page in a directory of a test's own, and what was started from them."""

    def __init__(self, directory: Path, places: Mapping[str, str]) -> None:
        self.directory = directory
        for name in ("etc", "nats", "redis", "executor"):
            (directory / name).mkdir()
        self.places = {
            "/opt/colo/bin/python": sys.executable,
            "/opt/colo/bin/nats-server": str(find_nats_server()),
            "/usr/bin/redis-server": str(find_redis_server()),
            "/etc/colo": str(directory / "etc"),
            "/var/lib/colo": str(directory),
            "CHANGE-ME": PASSWORD,
            **places,
        }
        for name in CONFIGURATION:
            (directory / "etc" / name).write_text(relocated((UNITS / name).read_text(), self.places))
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *, prefix: Sequence[str] = (), **environment: str) -> None:
        """Start what the unit starts; "colo@jobs.service" is an instance of a template."""
        stem, at, instance = name.removesuffix(".service").partition("@")
        unit = Unit(f"{stem}@.service" if at else name)
        words = [*prefix, *(relocated(word, self.places) for word in unit.command(instance))]
        settings = {key: relocated(value, self.places) for key, value in unit.environment().items()}
        with self.log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                tied_command([str(shutil.which(words[0])), *words[1:]]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], **settings, **environment},
            )

    def make_streams(self, prefix: Sequence[str] = ()) -> None:
        """Do as the page says before the control services start, with a small disk."""
        words = (
            "admin",
            "init",
            "--config",
            str(self.directory / "etc" / "colo.yaml"),
            "--stream-disk-bytes",
            str(1 << 30),
        )
        done = subprocess.run(
            [*prefix, sys.executable, "-m", "colo_cli", *words],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def stop(self, name: str) -> int:
        """SIGTERM, as systemd does it; the exit code."""
        process = self.running.pop(name)
        process.terminate()
        return process.wait(timeout=60)

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()
        self.running.clear()


@contextlib.contextmanager
def installed(directory: Path, places: Mapping[str, str]) -> Iterator[Installed]:
    made = Installed(directory, places)
    try:
        yield made
    except BaseException:
        for log in sorted(directory.glob("*.log")):
            sys.stderr.write(f"{log.name}: {log.read_text()[-1_500:]}\n")
        raise
    finally:
        made.end()


def answer(url: str) -> tuple[int, str]:
    """Status and text of a page; 0 while nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_the_files_agree_with_the_page_and_say_no_more_than_they_must() -> None:
    page = (UNITS.parents[1] / "docs" / "install.md").read_text()
    for path in sorted(UNITS.iterdir()):
        assert path.name in page, f"docs/install.md says nothing of {path.name}"
    for name in ("colo@.service", "colo-collector.service", "colo-nats.service", "colo-redis.service"):
        unit = Unit(name)
        assert (unit.one("User"), unit.capabilities(), unit.one("NoNewPrivileges")) == ("colo", [], "yes"), name
    executor = Unit("colo-executor.service")
    assert executor.all("User") == []
    assert executor.one("KillMode") == "process", "with cgroup v1 a restart would end every replica"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this machine")
def test_systemd_understands_every_line_of_the_units(tmp_path: Path) -> None:
    programs = {
        "/opt/colo/bin/python": "/bin/sh",
        "/opt/colo/bin/nats-server": "/bin/sh",
        "/usr/bin/redis-server": "/bin/sh",
    }
    names = []
    for path in sorted(UNITS.glob("*.service")):
        name = path.name.replace("@.", "@jobs.")
        text = relocated(path.read_text(), programs)
        # Users of this machine: those of the page are made by it.
        (tmp_path / name).write_text(text.replace("=colo\n", "=daemon\n"))
        names.append(str(tmp_path / name))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *names], capture_output=True, text=True, timeout=120, check=False
    )
    # It also reads units of this machine and may complain of those.
    assert [line for line in done.stderr.splitlines() if str(tmp_path) in line or "colo" in line] == []


@pytest.mark.server
def test_what_the_units_start_is_a_whole_control_plane_with_this_machine_as_a_node(tmp_path: Path) -> None:
    wanted = ("4222", "6379", "8222", *map(str, HTTP_PORTS.values()), "9105")
    ports = dict(zip(wanted, map(str, free_ports(len(wanted))), strict=True))
    with installed(tmp_path, {"10.0.0.1": "127.0.0.1", **ports}) as colo:
        for name in ("colo-nats.service", "colo-redis.service"):
            colo.start(name)
        colo.make_streams()
        for name in CONTROL:
            colo.start(f"colo@{name}.service")
        colo.start("colo-collector.service", COLO_NODE="here")
        for name, port in {**HTTP_PORTS, "collector": 9105}.items():
            eventually_blocking(
                lambda port=port: answer(f"http://127.0.0.1:{ports[str(port)]}/readyz")[0] == 200,
                f"{name} is ready",
            )
        api = f"http://127.0.0.1:{ports['8088']}"
        nodes: Any = eventually_blocking(lambda: _nodes(api), "the node is known")
        assert [node["node"] for node in nodes] == ["here"]
        # The password is in no log.
        assert not [log.name for log in tmp_path.glob("*.log") if PASSWORD in log.read_text()]
        for name in list(colo.running):
            assert colo.stop(name) in (0, 1) if name == "colo-nats.service" else colo.stop(name) == 0, name


def _nodes(api: str) -> list[dict[str, Any]]:
    status, text = answer(f"{api}/v1/nodes")
    return list(json.loads(text)["nodes"]) if status == 200 else []


# ---------------------------------------------------------------- three machines


class Network:
    """Three machines of one kernel: network namespaces with the addresses of the page, joined by a bridge in the first."""

    ADDRESSES: Final = {"control": "10.0.0.1", "node-1": "10.0.0.2", "node-2": "10.0.0.3"}

    def __init__(self) -> None:
        self._names = {machine: f"colo-{os.getpid()}-{machine}" for machine in self.ADDRESSES}

    def __enter__(self) -> Self:
        control = self._names["control"]
        for machine, name in self._names.items():
            self._ip("netns", "add", name)
            self._ip("-n", name, "link", "set", "lo", "up")
            if machine == "control":
                self._ip("-n", name, "link", "add", "bridge", "type", "bridge")
            else:
                self._ip("-n", control, "link", "add", machine, "type", "veth", "peer", "name", "net", "netns", name)
                self._ip("-n", control, "link", "set", machine, "master", "bridge", "up")
            device = "bridge" if machine == "control" else "net"
            self._ip("-n", name, "address", "add", f"{self.ADDRESSES[machine]}/24", "dev", device)
            self._ip("-n", name, "link", "set", device, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._names.values():
            subprocess.run(["ip", "netns", "delete", name], check=False)

    def on(self, machine: str) -> tuple[str, ...]:
        """What a command begins with to run on that machine. Not `ip netns exec`, which hides the control groups."""
        named = ("sh", "-c", f'hostname {machine}; exec "$@"', "sh")
        return ("nsenter", f"--net=/run/netns/{self._names[machine]}", "unshare", "--uts", *named)

    @staticmethod
    def _ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)


class Person:
    """Somebody at the control machine, who types commands of colo."""

    def __init__(self, prefix: Sequence[str]) -> None:
        self._prefix = prefix

    def types(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*self._prefix, sys.executable, "-m", "colo_cli", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    def reads(self, *words: str) -> Any:
        """What a command prints as JSON; None while it fails."""
        done = self.types(*words, "-o", "json")
        return json.loads(done.stdout) if done.returncode == 0 else None


WHOAMI: Final = """id -u; pwd; touch "$HOME/made" && echo at home; grep -E "^(CapBnd|CapEff|NoNewPrivs)" /proc/self/status
touch /etc/made 2>/dev/null && echo "wrote /etc"; echo over; exec sleep 600"""
JOB: Final = f"""
name: who
qos: LS
tasks:
  - {{name: main, replicas: 2, cpu: 10m, memory: 32Mi, command: [sh, -c, {json.dumps(WHOAMI)}], place: {{spread: true}}}}
"""


@pytest.mark.kernel
@pytest.mark.timeout(400)
@pytest.mark.skipif(shutil.which("ip") is None, reason="network namespaces need the program ip")
def test_the_steps_on_three_machines_from_the_first_service_to_the_last_trace(tmp_path: Path) -> None:
    states = {node: Path(tempfile.mkdtemp(prefix=f"colo-{node}-")) for node in ("node-1", "node-2")}
    job = tmp_path / "who.yaml"
    job.write_text(JOB)
    with (
        Network() as network,
        installed(tmp_path, {}) as colo,
    ):
        for name in ("colo-nats.service", "colo-redis.service"):
            colo.start(name, prefix=network.on("control"))
        colo.make_streams(network.on("control"))
        for name in CONTROL:
            # However busy the machine is with other tests, online work may come.
            colo.start(
                f"colo@{name}.service", prefix=network.on("control"), COLO_SCHEDULER_POLICY_LOAD_PROD_CPU_PCT="0"
            )
        try:
            for node, state in states.items():
                _start_node(colo, network, node, state)
            _run_and_leave(colo, network, Person(network.on("control")), states, job)
        finally:
            colo.end()
            for node, state in states.items():
                subprocess.run(_restore(colo, network, node, state), check=True, timeout=120)
                shutil.rmtree(state)
    assert not [group for node in states for tier in ("", "-online") for group in groups_of(_subtree(node) + tier)]


def _start_node(colo: Installed, network: Network, node: str, state: Path) -> None:
    """Start both agents of a node with the privileges of their units, and the state directory as systemd makes it."""
    state.chmod(int(Unit("colo-executor.service").one("StateDirectoryMode"), 8))
    for service in ("collector", "executor"):
        colo.start(
            f"colo-{service}.service",
            prefix=[*network.on(node), *_with_capabilities(f"colo-{service}.service")],
            **_of_node(node, state),
        )
        # Each machine has one of each; here they are told apart.
        colo.running[f"{node} {service}"] = colo.running.pop(f"colo-{service}.service")


def _of_node(node: str, state: Path) -> dict[str, str]:
    """What differs because the two nodes are one kernel."""
    return {
        "COLO_COLLECTOR_SUBTREE": _subtree(node),
        "COLO_EXECUTOR_PROCESS_SUBTREE": _subtree(node),
        "COLO_EXECUTOR_PROCESS_STATE_DIR": str(state),
    }


def _subtree(node: str) -> str:
    return f"colo-{os.getpid()}-{node}"


def _with_capabilities(unit: str) -> tuple[str, ...]:
    """root with no more capabilities than the unit names, and no way to more."""
    kept = "".join(f",+{name}" for name in Unit(unit).capabilities())
    return ("setpriv", f"--bounding-set=-all{kept}", "--inh-caps=-all", "--no-new-privs", "--")


def _restore(colo: Installed, network: Network, node: str, state: Path) -> list[str]:
    """The command of the page that puts a machine back."""
    environment = {"COLO_CONFIG": f"{colo.directory}/etc/colo.yaml", **_of_node(node, state)}
    assignments = [f"{name}={value}" for name, value in environment.items()]
    return [*network.on(node), "env", *assignments, sys.executable, "-m", "colo_executor", "restore"]


def _run_and_leave(colo: Installed, network: Network, person: Person, states: Mapping[str, Path], job: Path) -> None:
    # Online work, because it needs no promise: a machine that is busy with other tests has nothing to promise to batch work.
    def both() -> bool:
        nodes = (person.reads("get", "nodes") or {"nodes": []})["nodes"]
        return sum(node["freshness"] == "fresh" for node in nodes) == len(states)

    eventually_blocking(both, "both nodes are fresh", limit_s=60)
    done = person.types("submit", "-f", str(job))
    assert done.returncode == 0, done.stderr
    outputs = {node: _output(state) for node, state in states.items()}
    for node, output in outputs.items():
        try:
            eventually_blocking(lambda output=output: output().endswith("over\n"), f"the job ran on {node}")
        except NeverHappened as error:
            raise AssertionError(person.types("explain", "job", "who").stdout) from error
        user, place, home, *status, _over = output().splitlines()
        first, last = map(int, NOBODYS.split("-"))
        assert first <= int(user) <= last
        assert home == "at home"
        assert place.startswith(str(states[node]))
        assert dict(line.split() for line in status) == {
            "CapEff:": "0000000000000000",
            # CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, KILL 5, SETGID 6, SETUID 7, SYS_NICE 23: bounds, which nothing here can use.
            "CapBnd:": f"{1 << 0 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 23:016x}",
            "NoNewPrivs:": "1",
        }
    # An upgrade of a node: the executor goes, its replica stays and is adopted.
    before = {path: path.read_text() for path in _procs(_subtree("node-1"))}
    assert any(before.values())
    starts = _starts(colo)
    assert colo.stop("node-1 executor") == 0
    colo.stop("node-1 collector")
    _start_node(colo, network, "node-1", states["node-1"])
    eventually_blocking(lambda: _starts(colo) > starts, "it is back", limit_s=60)
    assert {path: path.read_text() for path in _procs(_subtree("node-1"))} == before


def _starts(colo: Installed) -> int:
    """How often an executor has started to serve; those of both nodes have one log."""
    return colo.log("colo-executor.service").read_text().count('"event":"service-started"')


def _output(state: Path) -> Callable[[], str]:
    return lambda: "".join(path.read_text() for path in state.glob("attempts/*/stdout"))


def _procs(subtree: str) -> list[Path]:
    return sorted(path for group in groups_of(f"{subtree}-online") for path in group.glob("*/cgroup.procs"))
