"""Debian packages: the emulator is installed on this machine, everything else is unpacked into the cache and never installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.kernel.lab.cache import cache_dir
from tests.kernel.lab.refused import LabRefused

__all__ = ["EMULATOR", "need_emulator", "say", "unpacked"]

EMULATOR: Final = "qemu-system-x86_64"
_EMULATOR_PACKAGE: Final = "qemu-system-x86"


def say(sentence: str) -> None:
    """One line to the person who waits, beside the command's own output."""
    sys.stderr.write(f"kernel-lab: {sentence}\n")
    sys.stderr.flush()


def need_emulator() -> Path:
    """The emulator's program. Installs it where it is missing and this user may. Raises LabRefused."""
    found = shutil.which(EMULATOR)
    if found is None:
        _install(_EMULATOR_PACKAGE)
        found = shutil.which(EMULATOR)
    if found is None:
        raise LabRefused(f"{EMULATOR} is not there after {_EMULATOR_PACKAGE} was installed")
    return Path(found)


def unpacked(package: str, *, refresh: bool = False) -> Path:
    """The directory into which the package is unpacked. It is fetched when it is not there yet, or to `refresh` it.

    Raises LabRefused when the packages of this machine's distribution cannot be had.
    """
    directory = cache_dir("packages") / package
    if directory.is_dir() and not refresh:
        return directory
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise LabRefused(
                f"the package {package} is needed and {program} is missing: the lab needs Debian or Ubuntu"
            )
    say(f"fetching the Debian package {package}")
    fetched = directory.with_name(f"{package}.fetched.{os.getpid()}")
    shutil.rmtree(fetched, ignore_errors=True)
    fetched.mkdir()
    try:
        _apt(["apt-get", "download", "-q", package], f"fetch {package}", cwd=fetched)
        (archive,) = fetched.glob("*.deb")
        _run(["dpkg-deb", "-x", str(archive), str(fetched / "tree")], f"unpack {archive.name}")
        shutil.rmtree(directory, ignore_errors=True)
        (fetched / "tree").rename(directory)
    finally:
        shutil.rmtree(fetched, ignore_errors=True)
    return directory


def _install(package: str) -> None:
    if shutil.which("apt-get") is None:
        raise LabRefused(f"{EMULATOR} is missing and so is apt-get: install QEMU's x86 system emulator")
    if os.geteuid() != 0:
        raise LabRefused(f"{EMULATOR} is missing and only root may install it: apt-get install {package}")
    say(f"installing the Debian package {package} on this machine")
    _apt(
        ["apt-get", "install", "-q", "-y", "--no-install-recommends", package],
        f"install {package}",
        noninteractive=True,
    )


def _apt(command: list[str], what: str, *, cwd: Path | None = None, noninteractive: bool = False) -> None:
    """Run apt-get; once more with fresh lists when it fails, because those of a new machine are empty or old."""
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"} if noninteractive else None
    try:
        _run(command, what, cwd=cwd, environ=environ)
    except LabRefused:
        if os.geteuid() != 0:
            raise
        _run(["apt-get", "update", "-q"], "read the package lists")
        _run(command, what, cwd=cwd, environ=environ)


def _run(command: list[str], what: str, *, cwd: Path | None = None, environ: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise LabRefused(f"could not {what}: {last}")
