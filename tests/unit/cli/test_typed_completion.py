"""What a person sees who types into a shell and presses Tab: real shells on a terminal of their own."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from colo_cli.main import main
from tests.support.waiting import eventually_blocking

#: Stands for colo on the PATH: what the shells ask is answered without a gateway.
NAMES = """#!/bin/sh
[ "$1 $2" = "complete-names jobs" ] && printf 'train-a\\ntrain-b\\n'
[ "$1 $2" = "complete-names nodes" ] && printf 'node-01\\nnode-02\\n'
true
"""
START = {
    "bash": "source {text}; PS1='rea''dy> '",
    "zsh": "fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D; PS1='rea''dy> '",
}
TYPED = {
    "colo get no\t": "colo get node",
    "colo sta\t": "colo status",
    "colo get node node-0\t\t\t": "node-01  node-02",
    "colo cancel tr\t\t\t": "train-a  train-b",
    "colo cordon no\t\t\t": "node-01  node-02",
}


class Terminal:
    """A shell on a pseudo-terminal; `seen` is all that it has written."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def shows(self, text: str) -> None:
        def look() -> bool:
            # Not select(): a run that has many files open has descriptors beyond what it takes.
            with contextlib.suppress(BlockingIOError):
                self.seen += os.read(self._descriptor, 65_536).decode(errors="replace")
            # Without the bells.
            return text in self.seen.replace("\a", "")

        eventually_blocking(look, f"the terminal shows {text!r}")


@contextmanager
def shell_on_terminal(name: str, path: str) -> Iterator[Terminal]:
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"NOT PROVED: {name} is not on the PATH")
    descriptor, terminal = pty.openpty()
    # Nobody's own settings, and a terminal without colour.
    arguments = [program, *(("--norc", "-i") if name == "bash" else ("-f", "-i"))]
    variables = {"PATH": path, "TERM": "dumb", "LC_ALL": "C.UTF-8", "HOME": "/"}
    child = subprocess.Popen(
        arguments, stdin=terminal, stdout=terminal, stderr=terminal, env=variables, start_new_session=True
    )
    os.close(terminal)
    try:
        yield Terminal(descriptor)
    finally:
        child.kill()
        child.wait()
        os.close(descriptor)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_tab_completes_commands_and_the_names_that_the_gateway_knows(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    text = tmp_path / "_colo"
    text.write_text(capsys.readouterr().out)
    stub = tmp_path / "bin" / "colo"
    stub.parent.mkdir()
    stub.write_text(NAMES)
    stub.chmod(0o755)
    with shell_on_terminal(shell, f"{stub.parent}:{os.environ['PATH']}") as terminal:
        terminal.type(START[shell].format(text=text, folder=tmp_path) + "\n")
        terminal.shows("ready> ")
        for typed, shown in TYPED.items():
            terminal.seen = ""
            terminal.type(typed)
            terminal.shows(shown)
            # Deletes the line.
            terminal.type("\x05\x15")
