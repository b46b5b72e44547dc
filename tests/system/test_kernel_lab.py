"""The kernel lab from outside: what a command does inside, and what is said when the machine does not play along."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel.lab.boots import FROZEN
from tests.support.waiting import eventually_blocking

pytestmark = [pytest.mark.lab, pytest.mark.timeout(200)]

LAB = (sys.executable, "-m", "tests.kernel.lab")


def lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*LAB, *arguments], capture_output=True, text=True, check=False)
    if done.returncode == FROZEN:
        pytest.skip(f"the emulator broke the machine twice: {done.stderr[-1_000:]}")
    return done


def children(pid: int) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def test_a_command_gets_its_words_and_gives_its_output_and_its_status() -> None:
    done = lab("sh", "-c", 'echo "two  spaces"; echo oops >&2; nproc; exit 7')
    assert done.stdout == "two  spaces\noops\n16\n"
    assert done.returncode == 7


def test_a_command_that_hangs_is_ended_with_the_machine() -> None:
    done = lab("--timeout", "60", "sh", "-c", "echo begun; echo stuck > /dev/console; while :; do sleep 60; done")
    assert done.returncode == 124
    assert "the command did not end within 60 s; the machine was ended" in done.stderr
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


TALK = """
import socket, sys
with socket.create_connection(("10.0.2.100", 4222), 20) as server:
    server.sendall(b"hello from inside")
    print(server.recv(100).decode())
for address in (("10.0.2.2", int(sys.argv[1])), ("10.0.2.100", 22), ("192.0.2.1", 80)):
    try:
        socket.create_connection(address, 3).close()
        print("reached", address)
    except OSError as error:
        print("closed")
"""


async def test_the_machine_reaches_the_servers_named_and_nothing_else() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"heard: " + await reader.read(100))
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(answer, "127.0.0.1", 0) as named,
        await asyncio.start_server(answer, "127.0.0.1", 0) as other,
    ):
        ports = [str(server.sockets[0].getsockname()[1]) for server in (named, other)]
        arguments = ("--nats", f"127.0.0.1:{ports[0]}", "python", "-c", TALK, ports[1])
        done = await asyncio.to_thread(lab, *arguments)
    assert done.stdout == "heard: hello from inside\nclosed\nclosed\nclosed\n", done.stderr


FREEZE = """
import signal, socket, sys
with socket.create_connection(("10.0.2.100", 4222), 20) as server:
    server.sendall(b"which boot?")
    boot = server.recv(100)
print(boot.decode(), flush=True)
if boot == b"first":
    with open("/dev/console", "w") as console:
        print("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", file=console)
    signal.pause()
sys.exit(5)
"""


async def test_a_machine_that_freezes_is_booted_once_more_and_the_command_begins_again() -> None:
    boots = iter((b"first", b"second"))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(next(boots, b"one too many"))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        arguments = ("--nats", f"127.0.0.1:{port}", "--frozen-after", "5", "python", "-c", FREEZE)
        done = await asyncio.to_thread(lab, *arguments)
    assert done.stdout == "first\nsecond\n", done.stderr
    assert done.returncode == 5
    assert "the emulated machine froze: its own kernel reported a stall, and nothing was heard for 5 s" in done.stderr
    assert "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n----\n" in done.stderr
    assert "booting it once more; the command begins again" in done.stderr


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
