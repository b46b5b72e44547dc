"""A signal that came before a command had begun reaches it, once, as soon as it has."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from colo_executor.process.namespaces import OWN_NAMESPACES, namespaces_prefix
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.terminating import Terminating, command_of

#: As the shell of an attempt between its gate and its command: it has heard a signal and does nothing about it. It says when it
#: heeds signals; one interrupts the first `read`, and no more than one is sent. Without its test its input ends, and so does it.
SHELL = """trap : TERM; echo ready
read -r go || read -r go || exit 1
sh -c "$1"; echo "$?"
"""
PATH = ProcessPolicy().path
#: A command that counts the signals; it lives until it is told to end.
COUNTS = "trap 'echo heard' TERM; echo begun; read -r end || read -r end"


@asynccontextmanager
async def started(command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The shell, when it heeds signals. Nothing of it is left at the end."""
    pipe = asyncio.subprocess.PIPE
    shell = await asyncio.create_subprocess_exec("sh", "-c", SHELL, "colo", command, stdin=pipe, stdout=pipe)
    try:
        assert await line_of(shell) == "ready"
        yield shell
    finally:
        if shell.returncode is None:
            shell.kill()
        await shell.communicate(b"")


async def line_of(shell: asyncio.subprocess.Process) -> str:
    assert shell.stdout is not None
    return (await shell.stdout.readline()).decode().rstrip()


async def go_on(shell: asyncio.subprocess.Process) -> None:
    """Write the line that what reads now waits for."""
    assert shell.stdin is not None
    shell.stdin.write(b"go\n")
    await shell.stdin.drain()


def tree_of(pid: int) -> tuple[int, ...]:
    """The process and its children, none when it has ended."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ()
    return (pid, *(found for child in text.split() for found in tree_of(int(child))))


async def test_the_command_hears_what_its_shell_heard_before_it() -> None:
    async with started("exec sleep 60") as shell:
        terminating = Terminating("/proc")
        os.kill(shell.pid, signal.SIGTERM)
        assert command_of("/proc", shell.pid, tree_of(shell.pid)) is None
        await terminating.terminate("job.main.0@1", shell.pid, lambda: tree_of(shell.pid), lambda: False)
        await go_on(shell)
        assert await line_of(shell) == "143"
        assert await shell.wait() == 0
        await terminating.close()


@pytest.mark.skipif(bool(namespaces_prefix("auto", PATH)[1]), reason="namespaces are not permitted here")
async def test_a_command_hears_what_its_namespace_had_no_ear_for() -> None:
    # The first process of the namespace says that it is there, and has no handler before it reads a line.
    first = 'echo first; read -r go; trap : TERM; "$@"; exit "$?"'
    words = [first if "trap" in word else word for word in OWN_NAMESPACES]
    async with started(f"exec {shlex.join([*words, 'sleep', '60'])}") as shell:
        await go_on(shell)
        assert await line_of(shell) == "first"
        processes = tree_of(shell.pid)
        assert len(processes) == 3
        assert command_of("/proc", shell.pid, processes) is None
        for pid in processes:
            os.kill(pid, signal.SIGTERM)
        terminating = Terminating("/proc")
        await terminating.terminate("job.main.0@1", shell.pid, lambda: tree_of(shell.pid), lambda: False)
        await go_on(shell)
        assert await line_of(shell) == "143"
        assert await shell.wait() == 0
        await terminating.close()


async def test_what_has_begun_hears_nothing_more() -> None:
    async with started(COUNTS) as shell:
        await go_on(shell)
        assert await line_of(shell) == "begun"
        (command,) = tree_of(shell.pid)[1:]
        assert command_of("/proc", shell.pid, tree_of(shell.pid)) == command
        os.kill(command, signal.SIGTERM)
        assert await line_of(shell) == "heard"
        await go_on(shell)
        assert [await line_of(shell), await shell.wait()] == ["0", 0]


async def test_nothing_is_sent_where_the_attempt_ends_by_itself() -> None:
    async with started("true") as shell:
        shell.kill()
        await shell.wait()
        terminating = Terminating("/proc")
        await terminating.terminate("job.main.0@1", shell.pid, lambda: tree_of(shell.pid), lambda: False)
        assert command_of("/proc", shell.pid, ()) is None
        await terminating.close()
