"""A journal whose process is killed at each of its system calls: `python -m tests.support.journal_steps DIRECTORY`.

For every call of a story and every way to die at it (before it, or with half of its bytes written), a forked child runs the story
and is killed there, then the journal is opened again. Each death is one line of JSON. Children are forked, as a start of Python
for each would take longer than all of them.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from colo_common.events.enforcement import ReplicaEnded
from colo_common.model.reasons import EndCause
from colo_executor import journal
from colo_executor.journal import JournalFile
from colo_executor.journal_lines import Booted, Created, EndedEntry, JournalState, Launched, PreImage, compacted, encode
from tests.support.builders import a_placement

__all__ = ["Death"]

_CALLS: Final = ("open", "write", "fdatasync", "fsync", "ftruncate", "rename", "link", "unlink", "close")
_FACT: Final = ReplicaEnded(node="n1", replica="job/main/0", job="job", attempt=1, cause=EndCause.EXITED, exit_code=0)


class Death(Struct, frozen=True, kw_only=True):
    """`call` is that at which the child was killed, "" where its story came to its end, `step` the one that it was in.

    `state` is that of the journal that was opened then, which `before` the step was one and `after` it is to be the other.
    """

    call: str
    is_half: bool
    step: int
    state: str
    before: str
    after: str
    damaged_lines: int
    takes_more: bool


def steps(file: JournalFile) -> tuple[Callable[[], object], ...]:
    """All that is done to a journal."""
    launched = Launched(placement=a_placement(), pid=7, start_ticks=9, at_ms=1)
    return (
        lambda: file.append(Booted(boot_id="b")),
        lambda: file.append(Created(path="cpu/colo")),
        lambda: file.append(PreImage(path="cpu/other/cpu.shares", value="1024")),
        lambda: file.append(launched),
        lambda: file.note(EndedEntry(fact=_FACT)),
        lambda: file.forget_old_values(["cpu/other/cpu.shares"]),
        file.forget,
    )


def text_of(state: JournalState) -> str:
    """The state as one text."""
    return b"".join(map(encode, compacted(state))).decode()


def die_at(at: int, *, is_half: bool, report: int) -> None:
    """Let this process be killed at its call number `at` (from 0), whose name goes to `report` before."""
    write, count = os.write, itertools.count()

    def dying(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if next(count) == at:
                if is_half and name == "write":
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                write(report, name.encode())
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **more)

        return call

    for name in _CALLS:
        setattr(os, name, dying(name, getattr(os, name)))


def child(directory: Path, at: int, *, is_half: bool, report: int) -> None:
    """Run the story until the death; a point for each step that is over goes to `report`."""
    tell = os.write
    setattr(journal, "_COMPACT_BYTES", 0)  # noqa: B010 - each write is to be followed by a rewrite
    file = JournalFile(directory)
    die_at(at, is_half=is_half, report=report)
    for step in steps(file):
        step()
        tell(report, b".")


def run(directory: Path, at: int, *, is_half: bool) -> tuple[str, int]:
    """The call at which the child was killed, "" for none, and how many steps were over then."""
    read, report = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            child(directory, at, is_half=is_half, report=report)
            code = 0
        finally:
            os._exit(code)
    os.close(report)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a child failed"
    return text.lstrip("."), text.count(".")


def main(directory: str) -> None:
    """Die at every call, until a story comes to its end."""
    states = []
    file = JournalFile(Path(directory) / "whole")
    states.append(text_of(file.state))
    for step in steps(file):
        step()
        states.append(text_of(file.state))
    file.close()
    for at in itertools.count():
        for is_half in (False, True):
            place = Path(directory) / f"{at}-{is_half}"
            call, over = run(place, at, is_half=is_half)
            file = JournalFile(place)
            damaged, state = file.damaged_lines, text_of(file.state)
            file.append(Created(path="cpu/later"))
            takes_more = "cpu/later" in file.state.created
            file.close()
            death = Death(
                call=call,
                is_half=is_half,
                step=over,
                state=state,
                before=states[over],
                after=states[min(over + 1, len(states) - 1)],
                damaged_lines=damaged,
                takes_more=takes_more,
            )
            sys.stdout.buffer.write(msgspec.json.encode(death) + b"\n")
            if not call:
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
