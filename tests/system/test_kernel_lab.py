"""The kernel lab from outside: what a command does inside, and what is said when the machine does not play along."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kernel.lab.boots import FROZEN
from tests.support.waiting import eventually_blocking

pytestmark = [pytest.mark.lab, pytest.mark.timeout(200)]

LAB = (sys.executable, "-m", "tests.kernel.lab")


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LAB, *arguments], capture_output=True, text=True, check=False)


def lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = ran(*arguments)
    if done.returncode == FROZEN:
        pytest.skip(f"the emulator broke the machine: {done.stderr[-1_000:]}")
    return done


def children(pid: int) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


STORY = """
import socket, subprocess, sys
with socket.create_connection(("10.0.2.100", 4222), 20) as server:
    server.sendall(b"hello from inside")
    print(server.recv(100).decode(), flush=True)
print(sys.argv[2], flush=True)
print("oops", file=sys.stderr, flush=True)
subprocess.run(["nproc"], check=True)
for address in (("10.0.2.2", int(sys.argv[1])), ("10.0.2.100", 22), ("192.0.2.1", 80)):
    try:
        socket.create_connection(address, 3).close()
        print("reached", address)
    except OSError:
        print("closed")
sys.exit(7)
"""


class StoryRun(NamedTuple):
    """What the lab left of one command in a healthy machine, and how long the boot and the command took."""

    status: int
    lines: list[str]
    errors: str
    took_s: float


@pytest.fixture(scope="module")
def story() -> StoryRun:
    """One run of the story for every test that needs a machine and does not end it in a way of its own."""
    return asyncio.run(_lived_story())


async def _lived_story() -> StoryRun:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"received: " + await reader.read(100))
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(answer, "127.0.0.1", 0) as named,
        await asyncio.start_server(answer, "127.0.0.1", 0) as other,
    ):
        ports = [str(server.sockets[0].getsockname()[1]) for server in (named, other)]
        options = ("--nats", f"127.0.0.1:{ports[0]}")
        begun_s = time.monotonic()
        done = await asyncio.to_thread(lab, *options, "python", "-c", STORY, ports[1], "two  spaces")
    return StoryRun(done.returncode, done.stdout.splitlines(), done.stderr, time.monotonic() - begun_s)


def test_a_command_gets_its_words_and_gives_its_output_and_its_status(story: StoryRun) -> None:
    assert story.lines[1:4] == ["two  spaces", "oops", "16"], story.errors
    assert story.status == 7


def test_the_machine_reaches_the_servers_named_and_nothing_else(story: StoryRun) -> None:
    assert story.lines[0] == "received: hello from inside", story.errors
    assert story.lines[4:] == ["closed", "closed", "closed"]


def test_a_command_that_hangs_is_ended_with_the_machine(story: StoryRun) -> None:
    # Three times as long as a boot and a short command took here: the host may give less to this machine than to the one before.
    limit_s = f"{min(90.0, max(40.0, round(3 * story.took_s))):g}"
    done = lab("--timeout", limit_s, "sh", "-c", "echo begun; echo stuck > /dev/console; while :; do sleep 60; done")
    assert done.returncode == 124
    assert f"the command did not end within {limit_s} s; the machine was ended" in done.stderr
    assert "the last lines of the console" in done.stderr
    assert "stuck" in done.stderr
    assert done.stdout == "begun\n"


def test_a_kernel_that_panics_is_told_in_one_sentence() -> None:
    done = lab("sh", "-c", "echo c > /proc/sysrq-trigger; sleep 60")
    assert done.returncode == 125
    assert "the kernel panicked: sysrq triggered crash" in done.stderr


def test_no_machine_stays_behind_when_the_lab_is_killed(tmp_path: Path) -> None:
    # Who is killed cleans nothing up: the image stays where pytest removes it.
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([*LAB, "sleep", "600"], stderr=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stderr is not None
        machines = eventually_blocking(lambda: children(process.pid), "the machine", limit_s=120)
        process.kill()
        eventually_blocking(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in machines), "the machine to end")


def test_systemd_runs_the_command_as_a_service_and_its_status_comes_back() -> None:
    done = lab("--variant", "systemd", "sh", "-c", "cat /proc/1/comm; cat /proc/self/cgroup; exit 9")
    assert done.stdout == "systemd\n0::/system.slice/lab-command.service\n", done.stderr
    assert done.returncode == 9


FREEZE = """
import signal
print("begun", flush=True)
with open("/dev/console", "w") as console:
    print("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", file=console)
signal.pause()
"""


def test_a_machine_that_freezes_is_told_apart_and_its_command_does_not_begin_again() -> None:
    done = ran("--frozen-after", "5", "python", "-c", FREEZE)
    assert done.stdout == "begun\n", done.stderr
    assert done.returncode == FROZEN
    assert "the emulated machine froze: its own kernel reported a stall, and nothing was heard for 5 s" in done.stderr
    assert "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n----\n" in done.stderr
    assert "booting" not in done.stderr.partition("froze")[2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--variant", "pdp11", "true"), "there is no variant 'pdp11'; there are numa2, "),
        (("--nats", "here", "true"), "an address is HOST:PORT, not 'here'"),
        (("--memory", "300", "true"), "the image of "),
        (("--memory", "301", "true"), "the memory of numa2 is a multiple of 2 MiB, not 301"),
    ],
    ids=["unknown machine", "bad address", "image too large", "memory that cannot be shared"],
)
def test_what_cannot_be_done_is_refused_with_a_sentence(arguments: tuple[str, ...], says: str) -> None:
    done = lab(*arguments)
    assert done.returncode == 125
    assert f"kernel-lab: refused: {says}" in done.stderr
