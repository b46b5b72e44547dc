"""The last-level caches of /sys/devices/system/cpu: which CPUs share one, its id and its size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from colo_collector.kernel_text import cpu_list, unsigned, where
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.topology import Cache

__all__ = ["CPU_ROOT", "L3Domain", "Texts", "cache_paths", "l3_domains", "shared_caches"]

Texts = Mapping[str, str | None]
"""File texts by path; a missing file is None or absent."""

CPU_ROOT: Final = "/sys/devices/system/cpu"
CACHE_INDEXES: Final = 6
"""Cache indexes read per CPU. Machines have four (L1 data and code, L2, L3), seldom five."""

_SIZE: Final = re.compile(r"([0-9]{1,12})([KMG]?)", re.ASCII)
_SIZE_FACTOR: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


class L3Domain(Struct, frozen=True, kw_only=True):
    """CPUs that share a last-level cache.

    `l3` is the kernel's cache id, by which resctrl names domains; where these ids are absent or not unique, the rank by lowest CPU.
    `size_bytes` is 0 where the kernel does not publish the size.
    """

    l3: int
    cpus: str
    size_bytes: int


def cache_paths(cpu: int) -> tuple[str, ...]:
    """The files that describe the caches of one CPU."""
    return tuple(
        f"{CPU_ROOT}/cpu{cpu}/cache/index{index}/{name}"
        for index in range(CACHE_INDEXES)
        for name in ("level", "shared_cpu_list", "id", "size")
    )


def l3_domains(online: CpuSet, zone_of: Mapping[int, int], texts: Texts, assumed: list[str]) -> tuple[L3Domain, ...]:
    """The domains of the online CPUs in ascending id; every CPU is in exactly one.

    CPUs without a published L3 share one domain a zone, and `assumed` gets a sentence about it. Ids are the kernel's if every
    domain has one and no two share it, otherwise ranks by lowest CPU. Raises InvalidInput for malformed or contradicting files.
    """
    found: dict[CpuSet, tuple[int | None, int]] = {}
    grouped = CpuSet()
    for cpu in online:
        if cpu in grouped:
            continue
        cache = _l3_cache(cpu, texts)
        if cache is None:
            continue
        cpus = _shared(cache, cpu, texts) & online
        if not cpus.is_disjoint(grouped):
            raise InvalidInput(f"{cache}/shared_cpu_list", "L3 domains must be disjoint", (cpus & grouped).format())
        found[cpus] = (_cache_id(cache, texts), _cache_size_bytes(cache, texts))
        grouped |= cpus
    if grouped != online:
        assumed.append("no L3 cache is published for some CPUs; those of one zone count as one domain")
        for zone in sorted(set(zone_of.values())):
            rest = CpuSet.from_iterable(cpu for cpu in online - grouped if zone_of[cpu] == zone)
            if rest:
                found[rest] = (None, 0)
    ids = [id_ for id_, _ in found.values()]
    keeps_ids = None not in ids and len(set(ids)) == len(ids)
    domains = []
    for rank, cpus in enumerate(sorted(found, key=lambda cpus: next(iter(cpus)))):
        id_, size_bytes = found[cpus]
        l3 = id_ if keeps_ids and id_ is not None else rank
        domains.append(L3Domain(l3=l3, cpus=cpus.format(), size_bytes=size_bytes))
    return tuple(sorted(domains, key=lambda domain: domain.l3))


def shared_caches(online: CpuSet, texts: Texts, assumed: list[str]) -> tuple[Cache, ...]:
    """The caches of level 2 and 3 that /sys publishes, in ascending level and id, whatever gaps the ids have.

    Where ids are absent or two caches of a level have one, ranks by lowest CPU take their place, as for L3 domains. A cache whose
    files are malformed is left out, and `assumed` gets a sentence.
    """
    found: dict[tuple[int, CpuSet], tuple[int | None, int]] = {}
    for cpu in online:
        for index in range(CACHE_INDEXES):
            cache = f"{CPU_ROOT}/cpu{cpu}/cache/index{index}"
            level = texts.get(f"{cache}/level")
            if level is None or level.strip() not in ("2", "3"):
                continue
            try:
                cpus = _shared(cache, cpu, texts) & online
                key = (int(level), cpus)
                if key not in found:
                    found[key] = (_cache_id(cache, texts), _cache_size_bytes(cache, texts))
            except InvalidInput as error:
                assumed.append(f"{error}; the cache is left out")
    caches = []
    for wanted in (2, 3):
        of_level = {cpus: entry for (level, cpus), entry in found.items() if level == wanted}
        ids = [id_ for id_, _ in of_level.values()]
        keeps_ids = None not in ids and len(set(ids)) == len(ids)
        for rank, cpus in enumerate(sorted(of_level, key=lambda one: next(iter(one)))):
            id_, size_bytes = of_level[cpus]
            number = id_ if keeps_ids and id_ is not None else rank
            caches.append(Cache(level=wanted, cache=number, cpus=cpus.format(), size_bytes=size_bytes))
    return tuple(sorted(caches, key=lambda one: (one.level, one.cache)))


def _l3_cache(cpu: int, texts: Texts) -> str | None:
    """The directory of the CPU's level 3 cache, or None."""
    for index in range(CACHE_INDEXES):
        cache = f"{CPU_ROOT}/cpu{cpu}/cache/index{index}"
        level = texts.get(f"{cache}/level")
        if level is not None and unsigned(level.strip(), where(f"{cache}/level", 1)) == 3:
            return cache
    return None


def _shared(cache: str, cpu: int, texts: Texts) -> CpuSet:
    path = f"{cache}/shared_cpu_list"
    text = texts.get(path)
    if text is None:
        raise InvalidInput(path, "must be there for a cache that has a level", None)
    cpus = cpu_list(path, text)
    if cpu not in cpus:
        raise InvalidInput(where(path, 1), f"must contain CPU {cpu} itself", text)
    return cpus


def _cache_id(cache: str, texts: Texts) -> int | None:
    text = texts.get(f"{cache}/id")
    return None if text is None else unsigned(text.strip(), where(f"{cache}/id", 1))


def _cache_size_bytes(cache: str, texts: Texts) -> int:
    """Bytes of a size such as "32768K"; 0 where the kernel does not publish it."""
    text = texts.get(f"{cache}/size")
    if text is None:
        return 0
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidInput(where(f"{cache}/size", 1), 'must be a size such as "32768K"', text)
    return int(match[1]) * _SIZE_FACTOR[match[2]]
