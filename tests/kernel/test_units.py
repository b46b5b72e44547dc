"""Under systemd: the agents' unit files run as docs/install.md says, with the privileges that they name and no others."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.kernel.inside import CGROUP_ROOT, reported, this_machine
from tests.support.units import UNITS, Unit
from tests.support.waiting import NeverHappened, eventually_blocking

pytestmark = [
    pytest.mark.vm,
    pytest.mark.enable_socket,
    pytest.mark.skipif(this_machine().init != "systemd", reason="systemd is not the first process here"),
]

AGENTS: Final = {"colo-collector": 9105, "colo-executor": 9106}
CAPABILITIES: Final = {
    "colo-collector": 0,
    "colo-executor": 1 << 0 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 23,
}


@pytest.fixture(scope="module")
def agents() -> Iterator[None]:
    """Both agents installed and started, without a server that they could reach."""
    with Path("/etc/passwd").open("a") as users, Path("/etc/group").open("a") as groups:
        users.write("colo:x:990:990::/:/bin/false\n")
        groups.write("colo:x:990:\n")
    Path("/etc/colo").mkdir()
    Path("/etc/colo/colo.yaml").write_text((UNITS / "colo.yaml").read_text().replace("10.0.0.1", "127.0.0.1"))
    for name in AGENTS:
        text = (UNITS / f"{name}.service").read_text()
        Path(f"/etc/systemd/system/{name}.service").write_text(text.replace("/opt/colo/bin/python", sys.executable))
        drop_in = Path(f"/etc/systemd/system/{name}.service.d")
        drop_in.mkdir()
        # The lab's interpreter finds the project by this variable, and no journal runs here.
        drop_in.joinpath("lab.conf").write_text(
            f"[Service]\nEnvironment=PYTHONPATH={os.environ['PYTHONPATH']}\nStandardError=file:/lab/{name}.log\n"
        )
    reported("systemctl", "daemon-reload")
    try:
        for name in AGENTS:
            reported("systemctl", "start", f"{name}.service")
        yield
    finally:
        for name in AGENTS:
            subprocess.run(["systemctl", "stop", f"{name}.service"], check=False)


def seen(name: str, look: Callable[[], bool], what: str) -> None:
    """Wait for it; at the limit the agent's log is what failed. An emulated CPU needs half a minute to start it."""
    try:
        eventually_blocking(look, f"{name} {what}", limit_s=240)
    except NeverHappened as error:
        raise AssertionError(Path(f"/lab/{name}.log").read_text()) from error


def status_of(name: str) -> dict[str, str]:
    """The process of a unit as the kernel describes it."""
    pid = reported("systemctl", "show", "-P", "MainPID", f"{name}.service").strip()
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _colon, value in (line.partition(":") for line in lines)}


def is_live(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def lives(name: str) -> None:
    """Wait until the agent serves its health page."""
    seen(name, lambda: is_live(AGENTS[name]), "lives")


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_runs_with_what_its_unit_names(agents: None, name: str) -> None:
    lives(name)
    assert reported("systemctl", "show", "-P", "NRestarts", f"{name}.service") == "0\n"
    status = status_of(name)
    assert int(status["CapBnd"], 16) == CAPABILITIES[name]
    assert int(status["CapEff"], 16) == CAPABILITIES[name]
    assert status["NoNewPrivs"] == "1"
    assert status["Uid"].split()[0] == ("990" if Unit(f"{name}.service").all("User") else "0")


def test_the_executor_makes_its_groups_and_a_restart_leaves_them(agents: None) -> None:
    lives("colo-executor")
    group = CGROUP_ROOT / "colo" / "batch"
    seen("colo-executor", group.is_dir, "makes the group of batch work")
    made = group.stat().st_ino
    state = Path("/var/lib/colo/executor")
    assert oct(state.stat().st_mode & 0o777) == f"0o{int(Unit('colo-executor.service').one('StateDirectoryMode'), 8):o}"
    reported("systemctl", "restart", "colo-executor.service")
    lives("colo-executor")
    assert group.stat().st_ino == made
