"""Starts one command behind a gate: it runs only after its process is in its control group and in the journal."""

import contextlib
import errno
import fcntl
import os
import re
import shlex
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement
from colo_executor.environment import environment_of
from colo_executor.process.remove_tree import remove_tree
from colo_executor.process.run_as import UserIds

__all__ = [
    "NO_ROOM",
    "WORK",
    "Gate",
    "attempt_dir",
    "attempts_dir",
    "check_run",
    "exit_status",
    "launch",
    "make_attempt_dir",
    "reaped",
]

NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of a process, or a machine, that has too much open for the moment: they say nothing about what was asked."""
WORK: Final = "work"
"""The name of an attempt's working directory in its directory."""

# The shell stays as the attempt's first process, so that the exit code is on disk even when no executor runs at the end.
# It waits for a line on its standard input; when the executor dies first, the input ends and the command never runs. A signal that
# comes before the command has a process of its own ends the attempt, as it would have ended the command.
# It may be root's, so a variable of the job (LD_PRELOAD, PATH, ENV) must not be in its environment: these come on descriptor 4.
# It enters the working directory as the executor, because the job's user may not be let through all directories above it.
_SHELL: Final = """cd "$1" || exit 125
shift
code=
trap code=143 TERM
trap code=130 INT
trap code=129 HUP
read -r go || [ -n "$code" ] || exit 125
if [ -n "$code" ]; then
    echo "$code" >&3
    exit "$code"
fi
trap : TERM INT HUP
"$@" <&4 3>&- 4<&-
code=$?
echo "$code" >&3
exit "$code"
"""
# What the prefix runs, as the job's user: the variables and the command, which no other user can read in a list of processes.
_ENTER: Final = """run=$(cat) && [ -n "$run" ] || exit 125
eval "$run"
"""
# An executor that is root leaves it to the operator's prefix whose the command becomes; one that says nothing of it leaves root.
_NEVER_ROOT: Final = """[ "$(id -u)" -gt 0 ] || {
    echo "process_users: must name a user, because process_command_prefix leaves the command root" >&2
    exit 125
}
"""
_SHELL_PATH: Final = "/bin/sh"
_ENV_PATH: Final = "/usr/bin/env"
_ARGUMENTS_MOST_BYTES: Final = 128 << 10
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class Gate(Struct, frozen=True, kw_only=True):
    """A started shell that waits at its gate. `open` lets it run the command, `close` ends it without running the command."""

    pid: int
    fd: int

    def open(self) -> None:
        """Let the command run. A shell that was ended at its gate is no error: its end is told like every other."""
        try:
            with contextlib.suppress(BrokenPipeError):
                os.write(self.fd, b"go\n")
        finally:
            os.close(self.fd)

    def close(self) -> None:
        """End the shell without running the command, and reap it."""
        with contextlib.suppress(OSError):
            os.close(self.fd)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def check_run(placement: Placement, prefix: tuple[str, ...], path: str) -> tuple[str, ...]:
    """The command, with the full path of its program when no prefix may look it up elsewhere.

    `path` is the executor's: the program of the prefix is looked for there and never in the job's PATH. Raises InvalidInput for a
    command that cannot be started.
    """
    run = placement.run
    if not run.command:
        raise InvalidInput("run.command", "must name a program: this node runs processes", run.command)
    if sum(map(len, run.command)) > _ARGUMENTS_MOST_BYTES or any("\0" in part for part in run.command):
        raise InvalidInput(
            "run.command", f"must be at most {_ARGUMENTS_MOST_BYTES} bytes without a zero byte", run.command[0]
        )
    for name, value in run.env.items():
        if not _ENV_NAME.fullmatch(name) or "\0" in value or len(value) > _ARGUMENTS_MOST_BYTES:
            raise InvalidInput(
                f"run.env[{name[:40]!r}]", "must be a shell variable name and a text without a zero byte", name
            )
    program = shutil.which(run.command[0], path=run.env.get("PATH", path))
    if program is None or not os.path.isabs(program):
        raise InvalidInput(
            "run.command[0]", "must be a program that exists on the node and can be executed", run.command[0]
        )
    if prefix and shutil.which(prefix[0], path=path) is None:
        raise InvalidInput(
            "process_command_prefix", "must begin with a program that exists on the node and can be executed", prefix[0]
        )
    return run.command if prefix else (program, *run.command[1:])


def attempt_dir(state_dir: Path, token: str) -> Path:
    """The directory with output, status and working directory of an attempt."""
    return attempts_dir(state_dir) / token


def attempts_dir(state_dir: Path) -> Path:
    """The directory with those of all attempts."""
    return state_dir / "attempts"


def make_attempt_dir(state_dir: Path, token: str) -> Path:
    """A fresh directory for an attempt; the leftovers of an attempt of the same name that never ran are removed."""
    directory = attempt_dir(state_dir, token)
    if directory.is_symlink():
        directory.unlink()
    remove_tree(directory)
    directory.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    directory.mkdir(mode=0o711)
    # Closed until its owner is known: its name can be foretold, and what another user puts here first is the job's to run.
    (directory / WORK).mkdir(mode=0o700)
    return directory


def launch(
    placement: Placement,
    command: tuple[str, ...],
    directory: Path,
    path: str,
    prefix: tuple[str, ...] = (),
    account: UserIds | None = None,
) -> Gate:
    """Start the shell of an attempt; its command waits for Gate.open. Raises OSError.

    The shell and `prefix`, which makes the command another user's, have no variable of the job: the job's environment begins with
    its own process, after the prefix. The prefix must keep its standard input open. `account` owns the outputs and the directory;
    without one the command of an executor that is root runs only where the prefix made it another user's.
    """
    own = {"PATH": path, "HOME": str(directory / WORK), "LANG": "C.UTF-8"}
    gate_read, gate_write = os.pipe()
    opened = [gate_read]
    try:
        for name in ("stdout", "stderr", "status"):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            opened.append(os.open(directory / name, flags, 0o600))
        # The exit code that comes after it needs no more room, on a disk that is full by then.
        os.write(opened[-1], b"\n")
        _give(directory, opened[1:3], account)
        # Not where every distribution has it: in a small system it is beside the shell.
        env = shutil.which("env", path=path) or shutil.which("env", path="/usr/bin:/bin") or _ENV_PATH
        opened.append(
            _script(env, placement.run.directory, command, {**own, **placement.run.env, **environment_of(placement)})
        )
        # Targets 0-4 may collide with the numbers of the sources, so the sources are copied to higher numbers first.
        sources = [_above(fd) for fd in opened]
        try:
            enter = _NEVER_ROOT + _ENTER if account is None and os.geteuid() == 0 else _ENTER
            inside = (*prefix, _SHELL_PATH, "-c", enter, "colo-replica")
            actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(sources)]
            pid = os.posix_spawn(
                _SHELL_PATH,
                [_SHELL_PATH, "-c", _SHELL, "colo-replica", str(directory / WORK), *inside],
                own,
                file_actions=actions,
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD],
            )
        finally:
            for fd in sources:
                os.close(fd)
    except BaseException:
        os.close(gate_write)
        raise
    finally:
        for fd in opened:
            os.close(fd)
    return Gate(pid=pid, fd=gate_write)


def _give(directory: Path, outputs: Sequence[int], account: UserIds | None) -> None:
    """Make the outputs, which a program may open again by /dev/stdout, and the working directory the user's own.

    Where the user is not known, or the executor has no right to give files away, the directory is opened to everybody.
    """
    if account is not None:
        with contextlib.suppress(PermissionError):
            for fd in outputs:
                os.fchown(fd, account.uid, account.gid)
            os.chown(directory / WORK, account.uid, account.gid, follow_symlinks=False)
            return
    (directory / WORK).chmod(0o1777)


def _script(program: str, where: str, command: tuple[str, ...], env: dict[str, str]) -> int:
    """A descriptor to read the line from that becomes the command with exactly these variables, in the directory `where` if any."""
    given = (f"{name}={value}" for name, value in env.items())
    # As the job's user, who may not be let into every directory.
    line = shlex.join(["cd", where]) + " || exit 125; " if where else ""
    line += shlex.join(["exec", program, "-i", *given, *command]) + " </dev/null\n"
    fd = os.memfd_create("colo-run", os.MFD_CLOEXEC)
    try:
        with os.fdopen(fd, "wb", closefd=False) as file:
            file.write(line.encode("utf-8", "surrogateescape"))
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _above(fd: int) -> int:
    """A copy of the descriptor at 10 or above."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)


def exit_status(directory: Path, pid: int) -> int | None:
    """The exit code of an attempt whose shell exited: from the status file, else from the kernel to the parent, else None.

    Raises OSError, and reaps nothing, where this process may open no more files.
    """
    text = ""
    try:
        text = (directory / "status").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise
    code = reaped(pid)
    # A line without its newline is torn.
    if text.endswith("\n") and text.strip().isdigit():
        return int(text.split()[-1])
    return code


def reaped(pid: int) -> int | None:
    """The exit code of an exited child of this process; None for every other process, and for pid 0, which is none."""
    if pid < 1:
        return None
    try:
        reaped, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    code = os.waitstatus_to_exitcode(status)
    return None if not reaped else 128 - code if code < 0 else code
