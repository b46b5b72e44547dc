"""Debian's cloud kernel: fetched, unpacked, never installed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from tests.kernel.lab.archive import Entry, file
from tests.kernel.lab.cache import cache_dir
from tests.kernel.lab.packages import unpacked
from tests.kernel.lab.refused import LabRefused

__all__ = ["Kernel", "find_kernel"]

_META: Final = "linux-image-cloud-amd64"
_DEPENDS: Final = re.compile(r"Depends:\s+(linux-image-[0-9][a-z0-9.+-]*-cloud-amd64)\b")

_MODULES: Final = ("virtio_pci", "virtio_console", "virtio_net")
"""Drivers of the machine's two devices. The kernel has everything else built in."""
_NEEDS: Final = re.compile(rb"\0depends=([a-z0-9_,-]*)\0")


class Kernel(Struct, frozen=True, kw_only=True):
    """An unpacked kernel. `modules` are in the order in which they can be loaded."""

    image: Path
    modules: tuple[Path, ...]

    def entries(self) -> tuple[Entry, ...]:
        """The modules as they stand in the image, their names telling the order."""
        return tuple(
            file(f"/lab/modules/{number:02d}-{path.name}", path) for number, path in enumerate(self.modules, 1)
        )


def find_kernel(*, refresh: bool = False) -> Kernel:
    """The newest kernel of this machine's distribution at the first call, and that one afterwards, until it is refreshed.

    Raises LabRefused when it cannot be had.
    """
    name = _package(refresh=refresh)
    tree = unpacked(name, refresh=refresh)
    images = sorted(tree.glob("boot/vmlinuz-*"))
    if not images:
        raise LabRefused(f"the package {name} has no kernel in it")
    found = {path.stem.replace("-", "_"): path for path in tree.rglob("*.ko")}
    return Kernel(image=images[-1], modules=tuple(_in_order(_MODULES, found)))


def _in_order(names: Sequence[str], found: Mapping[str, Path]) -> list[Path]:
    """The modules of those names and all that they build on, each after what it needs."""
    order: dict[str, Path] = {}

    def add(name: str) -> None:
        if name in order:
            return
        if name not in found:
            raise LabRefused(f"the kernel has no module {name}")
        match = _NEEDS.search(found[name].read_bytes())
        for needed in (match[1].decode() if match else "").split(","):
            if needed:
                add(needed.replace("-", "_"))
        order[name] = found[name]

    for name in names:
        add(name)
    return list(order.values())


def _package(*, refresh: bool) -> str:
    """The package behind the one that names the newest, kept in the cache so that nothing is asked at the next boot."""
    note = cache_dir() / "kernel-package"
    if note.exists() and not refresh:
        return note.read_text().strip()
    tree = unpacked(_META, refresh=refresh)
    shown = subprocess.run(["apt-cache", "depends", _META], capture_output=True, text=True, check=False).stdout
    match = _DEPENDS.search(shown)
    if match is None:
        raise LabRefused(f"the package {_META} in {tree} names no kernel: is this Debian on amd64?")
    note.write_text(match[1])
    return match[1]
