"""Debian's systemd in the image: the manager and its tools, the units that make slices, and the command as a service."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.kernel.lab.archive import Entry, file, link
from tests.kernel.lab.libraries import library_entries
from tests.kernel.lab.packages import unpacked
from tests.kernel.lab.refused import LabRefused
from tests.kernel.lab.symbols import without_symbols

__all__ = ["need_systemd", "systemd_entries"]

_PACKAGES: Final = ("systemd", "libsystemd-shared", "libseccomp2", "libkmod2", "libapparmor1", "libip4tc2")
"""Those of its libraries that a small Debian lacks; the others are in every one."""
_TOOLS: Final = ("systemctl", "systemd-run", "systemd-cgls")
_UNITS: Final = (
    "basic.target",
    "local-fs.target",
    "machine.slice",
    "paths.target",
    "shutdown.target",
    "slices.target",
    "sockets.target",
    "swap.target",
    "sysinit.target",
    "timers.target",
    "umount.target",
    "user.slice",
)
"""Without the services that these would start on a real machine: none of them changes what a slice is."""
_HOME: Final = "/usr/lib/systemd"
_TARGET: Final = """[Unit]
Description=The lab is up
Requires=basic.target
Wants=user.slice machine.slice lab-command.service
After=basic.target
AllowIsolate=yes
"""
_SERVICE: Final = """[Unit]
Description=The command of the lab

[Service]
Type=exec
ExecStart=/bin/busybox sh /lab/finish
TasksMax=infinity
"""


def need_systemd(*, refresh: bool = False) -> tuple[Path, ...]:
    """Where the packages are unpacked. Raises LabRefused when one cannot be had."""
    return tuple(unpacked(name, refresh=refresh) for name in _PACKAGES)


def systemd_entries(*, refresh: bool = False) -> tuple[Entry, ...]:
    """Everything that is in the image because systemd is. Raises LabRefused when something of it cannot be had."""
    trees = need_systemd(refresh=refresh)
    manager = file(f"{_HOME}/systemd", _found(trees, "lib/systemd/systemd"), program=True)
    tools = [file(f"/usr/bin/{name}", _found(trees, f"bin/{name}"), program=True) for name in _TOOLS]
    programs = [manager, *tools]
    libraries = library_entries([one.source for one in programs if one.source is not None], trees)
    units = [file(f"{_HOME}/system/{name}", _found(trees, f"lib/systemd/system/{name}")) for name in _UNITS]
    return (
        *(without_symbols(one) for one in (*programs, *libraries)),
        *units,
        link("/lib/systemd", "../usr/lib/systemd"),
        file("/etc/systemd/system/default.target", _TARGET.encode()),
        file("/etc/systemd/system/lab-command.service", _SERVICE.encode()),
        # A machine that boots for the first time asks for much that nobody answers here.
        file("/etc/machine-id", b"c0105e7f00d04c5e8b1de5ca1ab1e001\n"),
        file("/etc/os-release", b"ID=colo-kernel-lab\n"),
    )


def _found(trees: tuple[Path, ...], path: str) -> Path:
    """A file of a package; distributions are on their way from /lib and /bin to those below /usr."""
    for tree in trees:
        for place in (tree / path, tree / "usr" / path):
            if place.exists():
                return place
    raise LabRefused(f"no unpacked package has {path}")
