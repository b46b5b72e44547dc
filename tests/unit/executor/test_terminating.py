"""A signal that came before a command had begun reaches it, once, as soon as it has."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from colo_executor.process.terminating import Terminating, command_of
from tests.support.waiting import eventually

#: As the shell of an attempt between its gate and its command: it has heard a signal and does nothing about it.
SHELL = 'trap : TERM; until [ -e "$1/go" ]; do :; done; sh -c "$2"; echo $? > "$1/status"'
#: A command that counts the signals and takes its time to end.
COUNTS = "trap 'echo heard' TERM; echo begun; sleep 0.3 & wait; wait; wait"


async def start(directory: Path, command: str) -> asyncio.subprocess.Process:
    with (directory / "out").open("wb") as out:
        return await asyncio.create_subprocess_exec("sh", "-c", SHELL, "colo", str(directory), command, stdout=out)


def tree_of(pid: int) -> tuple[int, ...]:
    """The process and its children, none when it has ended."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ()
    return (pid, *map(int, text.split()))


async def test_the_command_hears_what_its_shell_heard_before_it(tmp_path: Path) -> None:
    shell = await start(tmp_path, "sleep 60")
    terminating = Terminating("/proc")
    os.kill(shell.pid, signal.SIGTERM)
    assert command_of("/proc", shell.pid, tree_of(shell.pid)) is None
    terminating.terminate("job.main.0@1", shell.pid, lambda: tree_of(shell.pid))
    (tmp_path / "go").touch()
    assert await asyncio.wait_for(shell.wait(), 30) == 0
    assert (tmp_path / "status").read_text() == "143\n"
    await terminating.close()


async def test_what_has_begun_hears_nothing_more(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    shell = await start(tmp_path, COUNTS)

    async def has_begun() -> bool:
        return (tmp_path / "out").read_text() == "begun\n"

    await eventually(has_begun, "the command begins")
    (command,) = tree_of(shell.pid)[1:]
    assert command_of("/proc", shell.pid, tree_of(shell.pid)) == command
    os.kill(command, signal.SIGTERM)
    await asyncio.wait_for(shell.wait(), 30)
    assert (tmp_path / "out").read_text() == "begun\nheard\n"


async def test_nothing_is_sent_where_the_attempt_ends_by_itself(tmp_path: Path) -> None:
    shell = await start(tmp_path, "true")
    shell.kill()
    await shell.wait()
    terminating = Terminating("/proc")
    terminating.terminate("job.main.0@1", shell.pid, lambda: tree_of(shell.pid))
    assert command_of("/proc", shell.pid, ()) is None
    await terminating.close()
