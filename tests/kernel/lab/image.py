"""What is inside the machine: an initial file system of layers, of which only the last is made anew for every command."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.kernel.lab.archive import Entry, directory, file, link, write_archive
from tests.kernel.lab.bytecode import with_bytecode
from tests.kernel.lab.cache import entries_key, made_once
from tests.kernel.lab.interpreter import interpreter_entries, package_roots
from tests.kernel.lab.kernel import Kernel
from tests.kernel.lab.libraries import library_entries
from tests.kernel.lab.packages import say, unpacked
from tests.kernel.lab.project import environment, project_entries
from tests.kernel.lab.refused import LabRefused
from tests.kernel.lab.symbols import without_symbols
from tests.kernel.lab.systemd import systemd_entries
from tests.kernel.lab.variants import Variant

__all__ = ["build_image", "need_tools"]

_INIT: Final = Path(__file__).parent / "init"
_FINISH: Final = Path(__file__).parent / "finish"
_PACKAGES: Final = ("busybox-static", "util-linux", "libsmartcols1", "numactl", "libnuma1", "hwloc-nox", "libhwloc15")
_TOOLS: Final = {
    "usr/bin/lscpu": "lscpu",
    "usr/bin/setpriv": "setpriv",
    "usr/bin/taskset": "taskset",
    "usr/bin/numactl": "numactl",
    "usr/bin/lstopo-no-graphics": "lstopo",
    "usr/bin/hwloc-info": "hwloc-info",
}
_IMAGE_MOST_BYTES: Final = 150 << 20
_ROOM_BYTES: Final = 256 << 20
"""What the kernel and the command need beside the image, which is in memory twice while it is unpacked."""


def build_image(
    target: Path, kernel: Kernel, variant: Variant, command: Sequence[str], environ: Mapping[str, str], *, refresh: bool
) -> int:
    """Write the image of one run to `target`; its size in bytes. Raises LabRefused when it would not fit."""
    layers = [_system_layer(kernel, refresh=refresh), _project_layer()]
    if variant.init == "systemd":
        layers.append(_systemd_layer(refresh=refresh))
    with target.open("wb") as out:
        for layer in layers:
            with layer.open("rb") as made:
                shutil.copyfileobj(made, out, 1 << 20)
        write_archive(out, _run_entries(variant, command, environ))
        size_bytes = out.tell()
    if size_bytes > _IMAGE_MOST_BYTES:
        raise LabRefused(
            f"the image has {size_bytes >> 20} MiB, more than {_IMAGE_MOST_BYTES >> 20}: leave something out of interpreter.py"
        )
    if 2 * size_bytes + _ROOM_BYTES > variant.memory_mib << 20:
        raise LabRefused(
            f"the image of {size_bytes >> 20} MiB does not fit into the {variant.memory_mib} MiB of {variant.name}"
        )
    return size_bytes


def need_tools(*, refresh: bool = False) -> dict[str, Path]:
    """Where each package of the image is unpacked. Raises LabRefused when one cannot be had."""
    return {name: unpacked(name, refresh=refresh) for name in _PACKAGES}


def _system_layer(kernel: Kernel, *, refresh: bool) -> Path:
    """Everything that is not the project: tools, modules, interpreter, packages and the libraries of them all."""
    trees = need_tools(refresh=refresh)
    python = interpreter_entries()
    tools = [
        file(f"/usr/bin/{name}", _in_some_tree(trees.values(), path), program=True) for path, name in _TOOLS.items()
    ]
    busybox = file("/bin/busybox", _in_some_tree(trees.values(), "bin/busybox"), program=True)
    linked = [entry.source for entry in (*tools, *python) if entry.source is not None and _is_linked(entry)]
    libraries = library_entries(linked, tuple(trees.values()), inside=package_roots())
    programs = (busybox, *tools, *libraries, *python)
    entries = [without_symbols(entry) if _is_linked(entry) else entry for entry in programs]
    entries += kernel.entries()

    def make(path: Path) -> None:
        say("building the image of the system (once)")
        with path.open("wb") as out:
            write_archive(out, with_bytecode(entries))

    return made_once("system", entries_key(entries), make)


def _project_layer() -> Path:
    entries = project_entries()

    def make(path: Path) -> None:
        with path.open("wb") as out:
            write_archive(out, with_bytecode(entries))

    return made_once("project", entries_key(entries), make)


def _systemd_layer(*, refresh: bool) -> Path:
    entries = systemd_entries(refresh=refresh)

    def make(path: Path) -> None:
        with path.open("wb") as out:
            write_archive(out, entries)

    return made_once("systemd", entries_key(entries), make)


def _run_entries(variant: Variant, command: Sequence[str], environ: Mapping[str, str]) -> tuple[Entry, ...]:
    exports = [f"export {name}={shlex.quote(value)}" for name, value in {**environment(), **environ}.items()]
    script = "\n".join([*exports, f"exec {shlex.join(command)}", ""])
    offline = " ".join(str(cpu) for cpu in variant.offline)
    settings = f"LAB_INIT={variant.init}\nLAB_CGROUP={variant.cgroup}\nLAB_OFFLINE='{offline}'\n"
    return (
        file("/init", _INIT, program=True),
        file("/lab/command", script.encode()),
        file("/lab/finish", _FINISH),
        file("/lab/run", settings.encode()),
        file("/etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
        file("/etc/group", b"root:x:0:\nnogroup:x:65534:\n"),
        file("/etc/hosts", b"127.0.0.1 localhost\n"),
        link("/lib/x86_64-linux-gnu", "../usr/lib/x86_64-linux-gnu"),
        directory("/root"),
    )


def _in_some_tree(trees: Iterable[Path], path: str) -> Path:
    for tree in trees:
        if (tree / path).exists():
            return tree / path
    raise LabRefused(f"no unpacked package has {path}")


def _is_linked(entry: Entry) -> bool:
    """Whether the dynamic linker has something to say about it: a program or an extension module."""
    return entry.mode & 0o111 != 0 or ".so" in entry.path
