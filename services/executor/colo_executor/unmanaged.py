"""What the operator lets the executor do to groups that colo did not make: services of the node, units, pods."""

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_executor.knobs import PERIOD_US, WEIGHT_LEAST, WEIGHT_MOST, Knob, quota_us

__all__ = ["UnmanagedGroup", "check_unmanaged", "unmanaged_knobs", "unmanaged_values"]

_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,230}")
_GROUPS_MOST: Final = 64
_LEAST_MCPU: Final = 10
_LEAST_BYTES: Final = 1 << 20


class UnmanagedGroup(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One control group and what is kept there; 0 and "" leave a value as it is.

    `group` is its path below the cgroup root, under v1 below each controller ("system.slice/sshd.service"). `weight_least` (v1
    scale, 1024 is the kernel's default) is a floor: a weight below it is raised, one above it stays. `cpu_most_mcpu` and
    `memory_most_bytes` are ceilings, `cpus` the CPUs that it runs on. `clear_of_own_cpus`: it keeps off the CPUs that LSE and LSR
    work has as its own, for as long as it has them.
    """

    group: str
    weight_least: int = 0
    cpu_most_mcpu: int = 0
    memory_most_bytes: int = 0
    cpus: str = ""
    clear_of_own_cpus: bool = False


def check_unmanaged(groups: Iterable[UnmanagedGroup], own: str, field: str) -> None:
    """Raise InvalidInput for the first group that breaks a rule. `own` begins the names of the executor's own groups."""
    seen: set[str] = set()
    groups = tuple(groups)
    cleared = [f"{each.group}/" for each in groups if each.clear_of_own_cpus]
    for number, each in enumerate(groups):
        where = f"{field}[{number}]"
        parts = each.group.split("/")
        if number >= _GROUPS_MOST:
            raise InvalidInput(field, f"must be at most {_GROUPS_MOST} groups", number + 1)
        if not all(_PART.fullmatch(part) for part in parts):
            raise InvalidInput(
                f"{where}.group", "must be names of letters, digits and _ . @ - between slashes", each.group
            )
        if parts[0] == own or parts[0].startswith(f"{own}-"):
            raise InvalidInput(f"{where}.group", "must not be a group of the executor's own", each.group)
        if each.group in seen:
            raise InvalidInput(f"{where}.group", "may come once", each.group)
        seen.add(each.group)
        if each.weight_least and not WEIGHT_LEAST < each.weight_least <= WEIGHT_MOST:
            rule = f"must be 0, or above batch work's ({WEIGHT_LEAST}) and at most {WEIGHT_MOST}"
            raise InvalidInput(f"{where}.weight_least", rule, each.weight_least)
        if each.cpu_most_mcpu and each.cpu_most_mcpu < _LEAST_MCPU:
            raise InvalidInput(f"{where}.cpu_most_mcpu", f"must be 0 or at least {_LEAST_MCPU}", each.cpu_most_mcpu)
        if each.memory_most_bytes and each.memory_most_bytes < _LEAST_BYTES:
            rule = f"must be 0 or at least {_LEAST_BYTES}"
            raise InvalidInput(f"{where}.memory_most_bytes", rule, each.memory_most_bytes)
        CpuSet.parse(each.cpus, f"{where}.cpus")
        sets = "clear_of_own_cpus" if each.clear_of_own_cpus else "cpus" if each.cpus else ""
        above = next((name for name in cleared if each.group.startswith(name)), "")
        if sets and above:
            rule = f"must not be set within {above[:-1]}, whose clear_of_own_cpus keeps the CPUs of all groups in it"
            raise InvalidInput(f"{where}.{sets}", rule, each.group)
        if not (each.weight_least or each.cpu_most_mcpu or each.memory_most_bytes or sets):
            raise InvalidInput(
                where, "must say what is kept: a weight, a ceiling of CPU or memory, or CPUs", each.group
            )


def unmanaged_knobs(each: UnmanagedGroup) -> frozenset[Knob]:
    """The knobs that may be written for the group; a quota depends on its period and its burst.

    Without the CPUs of a group that is kept clear of others' own: these are no fixed value.
    """
    found = {Knob.CPU_WEIGHT} if each.weight_least else set()
    if each.cpu_most_mcpu:
        found |= {Knob.CPU_PERIOD, Knob.CPU_QUOTA, Knob.CPU_BURST}
    if each.memory_most_bytes:
        found.add(Knob.MEMORY_LIMIT)
    if each.cpus and not each.clear_of_own_cpus:
        found.add(Knob.CPUSET_CPUS)
    return frozenset(found)


def unmanaged_values(each: UnmanagedGroup, weight: int | None, period_us: int | None) -> dict[Knob, int | str]:
    """The values that the group is to have. `weight` is what it has now, in the v1 scale; None: the kernel shows none, as of
    `period_us`, the period of its quota.
    """
    values: dict[Knob, int | str] = {}
    if each.weight_least and weight is not None and weight < each.weight_least:
        values[Knob.CPU_WEIGHT] = each.weight_least
    if each.cpu_most_mcpu:
        if period_us is not None:
            values[Knob.CPU_PERIOD] = PERIOD_US
        values[Knob.CPU_QUOTA] = quota_us(each.cpu_most_mcpu)
    if each.memory_most_bytes:
        values[Knob.MEMORY_LIMIT] = each.memory_most_bytes
    if each.cpus and not each.clear_of_own_cpus:
        values[Knob.CPUSET_CPUS] = CpuSet.parse(each.cpus).format()
    return values
