"""The huge pages of a machine by zone and size, from the kernel's counters of reserved pages (nr_hugepages)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from colo_collector.kernel_text import single_count
from colo_common.model.constraints import HugePages
from colo_common.model.invalid import InvalidInput

__all__ = ["huge_page_paths", "huge_pages_of_zone"]

NODE_ROOT: Final = "/sys/devices/system/node"
MACHINE_ROOT: Final = "/sys/kernel/mm/hugepages"

_SIZES_KIB: Final = (64, 1_024, 2_048, 16_384, 32_768, 262_144, 524_288, 1_048_576, 2_097_152, 16_777_216)
"""Every huge page size of x86, arm64, ppc64, s390 and riscv with any base page; the kernel has a directory for each."""


def huge_page_paths(zones: Sequence[int]) -> tuple[str, ...]:
    """The counters of these zones; without zones (an empty sequence) those of the whole machine."""
    roots = [f"{NODE_ROOT}/node{zone}/hugepages" for zone in zones] or [MACHINE_ROOT]
    return tuple(_path(root, size) for root in roots for size in _SIZES_KIB)


def huge_pages_of_zone(
    zone: int | None, memory_bytes: int, texts: Mapping[str, str | None], refused: list[str]
) -> tuple[HugePages, ...]:
    """The huge pages of a zone (None: a machine without zones) in ascending page size; sizes without pages are left out.

    A file that holds no number, or more memory than the zone has, is left out too, and `refused` gets a sentence that names it.
    """
    root = MACHINE_ROOT if zone is None else f"{NODE_ROOT}/node{zone}/hugepages"
    found = []
    for size_kib in _SIZES_KIB:
        path = _path(root, size_kib)
        text = texts.get(path)
        if text is None:
            continue
        try:
            total_bytes = single_count(path, text) * size_kib * 1_024
            if total_bytes > memory_bytes:
                raise InvalidInput(path, f"must not be more than the {memory_bytes} bytes of its zone", text.strip())
        except InvalidInput as error:
            refused.append(f"{error}; these huge pages are left out")
            continue
        if total_bytes:
            found.append(HugePages(page_bytes=size_kib * 1_024, total_bytes=total_bytes))
    return tuple(found)


def _path(root: str, size_kib: int) -> str:
    return f"{root}/hugepages-{size_kib}kB/nr_hugepages"
