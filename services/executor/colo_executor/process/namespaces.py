"""A replica's own PID and mount namespace: it sees its own processes and no others, and what it mounts is nobody else's."""

import select
import shutil
import signal
import subprocess
from collections.abc import Sequence
from typing import IO, Final, Literal

from colo_common.model.invalid import InvalidInput

__all__ = ["OWN_NAMESPACES", "Namespaces", "makes_namespaces", "namespaces_prefix"]

Namespaces = Literal["no", "auto", "yes"]

# The first process of a PID namespace hears only signals that it has a handler for, so it is a shell that has them and waits. The
# command is its child and gets each signal itself, as every process of the attempt does. A signal that comes before the shell has
# handlers is lost, as `unshare` above it ignores it; `terminating.py` sends it to the command when that begins.
# Numbers of processes begin at one by chance: /tmp is everybody's, and programs name files by their number, which would be the same
# in each namespace. A kernel that lets nobody choose (without CONFIG_CHECKPOINT_RESTORE) begins at 2.
# What the machine mounts and unmounts later is so in the namespace, too (slave): else an automount would not be seen there, and a
# file system would stay in use for as long as the job runs.
_FIRST: Final = """trap : TERM INT HUP
{
    read -r chance </proc/sys/kernel/random/uuid
    for most in 4000000 32000; do
        echo "$((0x${chance%%-*} % most + 300))" >/proc/sys/kernel/ns_last_pid && break
    done
} 2>/dev/null
"$@"
exit "$?"
"""
OWN_NAMESPACES: Final = (
    "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "slave", "--", "/bin/sh", "-c", _FIRST,
    "colo-first",
)  # fmt: skip
# It sees itself and the first process alone, and is still there when its input ends.
_PROBE: Final = """set -- /proc/[0-9]*
[ "$#" -eq 2 ] && [ -e /proc/1 ] || exit 1
echo begun
read -r over
exit 0
"""
_PIPE: Final = subprocess.PIPE
_SCRIPT: Final = OWN_NAMESPACES.index(_FIRST)
_LIMIT_S: Final = 10.0
_FIELD: Final = "process_hygiene_namespaces"


def makes_namespaces(words: Sequence[str]) -> bool:
    """Whether a process with this command line makes an attempt's namespaces."""
    return tuple(words[:_SCRIPT]) == OWN_NAMESPACES[:_SCRIPT] and tuple(words[_SCRIPT + 1 :][:1]) == OWN_NAMESPACES[-1:]


def namespaces_prefix(wanted: Namespaces, path: str) -> tuple[tuple[str, ...], str]:
    """What precedes every command, and why it is nothing where `auto` was wanted: tried once, with a program that does nothing.

    Raises InvalidInput for `yes` on a machine that does not permit it.
    """
    if wanted == "no":
        return (), ""
    refusal = _refusal(path)
    if refusal and wanted == "yes":
        raise InvalidInput(_FIELD, f"needs the right to make namespaces, or must be auto: {refusal}", wanted)
    return (() if refusal else OWN_NAMESPACES), refusal


def _refusal(path: str) -> str:
    program = shutil.which(OWN_NAMESPACES[0], path=path)
    if program is None:
        return f"there is no {OWN_NAMESPACES[0]} in {path}"
    command = [program, *OWN_NAMESPACES[1:], "/bin/sh", "-c", _PROBE]
    try:
        with subprocess.Popen(command, stdin=_PIPE, stdout=_PIPE, stderr=_PIPE, env={"PATH": path}) as process:
            try:
                has_begun = _is_readable(process.stdout)
                # As an attempt that is to end: every process of it gets the signal, this one among them.
                process.terminate()
                _, complaint = process.communicate(timeout=_LIMIT_S)
            finally:
                process.kill()
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if has_begun and process.returncode == -signal.SIGTERM:
        return f"{program} ends at SIGTERM with all that it started, which could not end by itself any more"
    if process.returncode == 0:
        return ""
    return complaint.decode("utf-8", "replace").strip().partition("\n")[0][:200] or "unshare failed"


def _is_readable(stream: IO[bytes] | None) -> bool:
    """Whether the stream has something, or its end, within the limit."""
    return stream is not None and bool(select.select([stream], [], [], _LIMIT_S)[0])
