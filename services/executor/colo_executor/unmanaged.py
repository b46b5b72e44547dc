"""What the operator lets the executor do to groups that colo did not make: services of the node, units, pods."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_executor.group_pattern import check_group_pattern, covers, is_pattern
from colo_executor.knob_table import KNOB_FILES, PERIOD_US, UNLIMITED, WEIGHT_LEAST, WEIGHT_MOST, Knob
from colo_executor.knobs import quota_us

__all__ = [
    "PROTECTION",
    "AttachedGroupValues",
    "UnmanagedGroup",
    "check_unmanaged",
    "unmanaged_knobs",
    "unmanaged_values",
    "with_better",
    "with_groups_above",
]

PROTECTION: Final = (Knob.MEMORY_MIN, Knob.MEMORY_LOW)
"""The knobs that keep memory from reclaim, which cgroup v1 does not have."""
_GROUPS_MOST: Final = 64
_LEAST_MCPU: Final = 10
_LEAST_BYTES: Final = 1 << 20


class UnmanagedGroup(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One control group and what is kept there; 0 and "" leave a value as it is.

    `group` is its path below the cgroup root, under v1 below each controller ("system.slice/sshd.service"); behind its first name
    there may be patterns of the shell, each within one name ("system.slice/postgresql*.service"). `weight_least` (v1 scale, 1024 is
    the kernel's default) is a floor: a weight below it is raised, one above it stays. `cpu_most_mcpu` and `memory_most_bytes` are
    ceilings, `cpus` the CPUs that it runs on. `clear_of_own_cpus`: it keeps off the CPUs that LSE and LSR work has as its own, for
    as long as it has them. `memory_low_bytes` and `memory_min_bytes` are floors of the memory that the kernel leaves to it
    (memory.low, memory.min): where more was protected before, that stays.
    """

    group: str
    weight_least: int = 0
    cpu_most_mcpu: int = 0
    memory_most_bytes: int = 0
    cpus: str = ""
    clear_of_own_cpus: bool = False
    memory_low_bytes: int = 0
    memory_min_bytes: int = 0

    def protects(self, knob: Knob) -> int:
        """The bytes of that knob of PROTECTION that are kept."""
        return self.memory_min_bytes if knob is Knob.MEMORY_MIN else self.memory_low_bytes


class AttachedGroupValues(UnmanagedGroup, frozen=True, kw_only=True):
    """What is kept in a group that a replica is attached to.

    `identity_least` is a floor of its group identity, where the kernel has such; 0 leaves it as it is.
    """

    identity_least: int = 0


def check_unmanaged(groups: Iterable[UnmanagedGroup], own: str, field: str) -> None:
    """Raise InvalidInput for the first group that breaks a rule. `own` begins the names of the executor's own groups."""
    seen: set[str] = set()
    groups = tuple(groups)
    cleared = [each.group for each in groups if each.clear_of_own_cpus]
    for number, each in enumerate(groups):
        where = f"{field}[{number}]"
        if number >= _GROUPS_MOST:
            raise InvalidInput(field, f"must be at most {_GROUPS_MOST} groups", number + 1)
        parts = check_group_pattern(each.group, f"{where}.group")
        if parts[0] == own or parts[0].startswith(f"{own}-"):
            raise InvalidInput(f"{where}.group", "must not be a group of the executor's own", each.group)
        if each.group in seen:
            raise InvalidInput(f"{where}.group", "may come once", each.group)
        seen.add(each.group)
        if each.weight_least and not WEIGHT_LEAST < each.weight_least <= WEIGHT_MOST:
            rule = f"must be 0, or above batch work's ({WEIGHT_LEAST}) and at most {WEIGHT_MOST}"
            raise InvalidInput(f"{where}.weight_least", rule, each.weight_least)
        most_mcpu = KNOB_FILES[Knob.CPU_QUOTA].most * 1_000 // PERIOD_US
        if each.cpu_most_mcpu and not _LEAST_MCPU <= each.cpu_most_mcpu <= most_mcpu:
            rule = f"must be 0 or at least {_LEAST_MCPU}, and at most {most_mcpu}"
            raise InvalidInput(f"{where}.cpu_most_mcpu", rule, each.cpu_most_mcpu)
        _check_memory(each, where)
        CpuSet.parse(each.cpus, f"{where}.cpus")
        sets = "clear_of_own_cpus" if each.clear_of_own_cpus else "cpus" if each.cpus else ""
        if each.clear_of_own_cpus and is_pattern(each.group):
            rule = (
                "must be set for a group without a pattern, such as the one above, all groups in which then keep clear"
            )
            raise InvalidInput(f"{where}.clear_of_own_cpus", rule, each.group)
        above = next((name for name in cleared if covers(each.group, name)), "")
        if sets and above:
            rule = f"must not be set within {above}, whose clear_of_own_cpus keeps the CPUs of all groups in it"
            raise InvalidInput(f"{where}.{sets}", rule, each.group)
        if not (unmanaged_knobs(each) or sets):
            rule = "must say what is kept: a weight, a ceiling of CPU or memory, protected memory, or CPUs"
            raise InvalidInput(where, rule, each.group)


def _check_memory(each: UnmanagedGroup, where: str) -> None:
    most = KNOB_FILES[Knob.MEMORY_LIMIT].most
    for name in ("memory_most_bytes", "memory_low_bytes", "memory_min_bytes"):
        value = getattr(each, name)
        if value and not _LEAST_BYTES <= value <= most:
            raise InvalidInput(f"{where}.{name}", f"must be 0 or at least {_LEAST_BYTES}, and at most {most}", value)
        if each.memory_most_bytes and value > each.memory_most_bytes:
            raise InvalidInput(f"{where}.{name}", "must be at most memory_most_bytes", value)


def with_better(each: UnmanagedGroup, other: UnmanagedGroup) -> UnmanagedGroup:
    """The first one with the floors of the other one where these are higher, and its ceilings and CPUs where it has none itself."""
    return replace(
        each,
        weight_least=max(each.weight_least, other.weight_least),
        cpu_most_mcpu=each.cpu_most_mcpu or other.cpu_most_mcpu,
        memory_most_bytes=each.memory_most_bytes or other.memory_most_bytes,
        cpus=each.cpus or other.cpus,
        clear_of_own_cpus=each.clear_of_own_cpus or other.clear_of_own_cpus,
        memory_low_bytes=max(each.memory_low_bytes, other.memory_low_bytes),
        memory_min_bytes=max(each.memory_min_bytes, other.memory_min_bytes),
    )


def with_groups_above(groups: Sequence[UnmanagedGroup]) -> tuple[UnmanagedGroup, ...]:
    """The groups, and before them the groups above, which have to protect as much memory as those below them do together.

    A group's memory is protected no further than that of the group above. Paths have no patterns. The root is no group here.
    """
    named = {each.group: each for each in groups}
    above = {path for each in groups if any(map(each.protects, PROTECTION)) for path in _above(each.group)}
    found: dict[str, UnmanagedGroup] = {}
    below: dict[str, list[UnmanagedGroup]] = {}
    for path in sorted(named.keys() | above, key=_depth, reverse=True):
        each, under = named.get(path, UnmanagedGroup(group=path)), below.get(path, [])
        found[path] = replace(
            each,
            memory_min_bytes=max(each.memory_min_bytes, sum(one.memory_min_bytes for one in under)),
            memory_low_bytes=max(each.memory_low_bytes, sum(one.memory_low_bytes for one in under)),
        )
        below.setdefault(path.rpartition("/")[0], []).append(found[path])
    implied = sorted(above - named.keys(), key=_depth)
    return (*(found[path] for path in implied), *(found[each.group] for each in groups))


def _above(path: str) -> Iterable[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _depth(path: str) -> tuple[int, str]:
    return path.count("/"), path


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
    if _identity_least(each):
        found.add(Knob.CPU_BVT)
    found |= {knob for knob in PROTECTION if each.protects(knob)}
    return frozenset(found)


def unmanaged_values(
    each: UnmanagedGroup,
    weight: int | None,
    period_us: int | None,
    protected: Mapping[Knob, int],
    identity: int | None = None,
) -> dict[Knob, int | str]:
    """The values that the group is to have. `weight` is what it has now, in the v1 scale; None: the kernel shows none, as of
    `period_us`, the period of its quota, and of its `identity`. `protected` is the memory that was protected before colo changed
    it.
    """
    values: dict[Knob, int | str] = {}
    if each.weight_least and weight is not None and weight < each.weight_least:
        values[Knob.CPU_WEIGHT] = each.weight_least
    if identity is not None and identity < (least := _identity_least(each)):
        values[Knob.CPU_BVT] = least
    if each.cpu_most_mcpu:
        if period_us is not None:
            values[Knob.CPU_PERIOD] = PERIOD_US
        values[Knob.CPU_QUOTA] = quota_us(each.cpu_most_mcpu)
    if each.memory_most_bytes:
        values[Knob.MEMORY_LIMIT] = each.memory_most_bytes
    if each.cpus and not each.clear_of_own_cpus:
        values[Knob.CPUSET_CPUS] = CpuSet.parse(each.cpus).format()
    for knob in PROTECTION:
        if asked := each.protects(knob):
            before = protected.get(knob, 0)
            values[knob] = before if before == UNLIMITED else max(before, asked)
    return values


def _identity_least(each: UnmanagedGroup) -> int:
    return each.identity_least if isinstance(each, AttachedGroupValues) else 0
