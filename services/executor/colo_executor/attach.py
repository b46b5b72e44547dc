"""Which control groups of others a job may be attached to on this node, and what is kept there then. Pure rules.

The operator lists them, and whose jobs may; by default there is none, because who submits a job must not get hold of any group of
the node. Attached work has what online work has: at least the weight of its request, the identity of online work, protected memory,
the CPUs of its class, and limits where the job has some. A value of the group that is better already stays.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from colo_common.model.invalid import InvalidInput
from colo_common.model.job_rules import check_name
from colo_common.model.placement import Placement
from colo_common.model.reasons import Reason
from colo_executor.desired import ONLINE_IDENTITY, DesiredPolicy, has_identities, most_mcpu
from colo_executor.group_pattern import check_group_pattern, is_match, is_pattern
from colo_executor.knob_table import WEIGHT_LEAST, Knob
from colo_executor.knobs import weight_v1
from colo_executor.online import hold_of, protected_bytes
from colo_executor.unmanaged import AttachedGroupValues, UnmanagedGroup

__all__ = ["AttachRefused", "attach_refusal", "attached_values", "check_attachable", "is_cleared_above", "is_own_group"]

_PATTERNS_MOST: Final = 256
_DEFAULT_TENANT: Final = "default"


class AttachRefused(Exception):
    """The placement cannot be attached on this node; nothing was changed."""

    reason: Final = Reason.RUNTIME_ABSENT


class _AttachRule(NamedTuple):
    """An entry of the operator's list: which groups, by name or pattern, which tenants may attach; () stands for every tenant."""

    pattern: str
    tenants: tuple[str, ...]

    def admits(self, tenant: str) -> bool:
        """Whether jobs of the tenant may be attached to what the pattern stands for."""
        return not self.tenants or (tenant or _DEFAULT_TENANT) in self.tenants


def _rule_of(entry: str) -> _AttachRule:
    """The rule of an entry: "GROUP", or "GROUP=TENANT|TENANT" for jobs of these tenants alone."""
    pattern, equals, tenants = entry.partition("=")
    return _AttachRule(pattern, tuple(each.strip() for each in tenants.split("|")) if equals else ())


def check_attachable(entries: Sequence[str], own: str, field: str) -> None:
    """Raise InvalidInput for the first entry that breaks a rule. `own` begins the names of the executor's own groups."""
    if len(entries) > _PATTERNS_MOST:
        raise InvalidInput(field, f"must be at most {_PATTERNS_MOST} groups or patterns", len(entries))
    for number, entry in enumerate(entries):
        where, rule = f"{field}[{number}]", _rule_of(entry)
        parts = check_group_pattern(rule.pattern, where)
        if is_own_group(parts[0], own):
            raise InvalidInput(where, "must not be a group of the executor's own", entry)
        if "" in rule.tenants:
            raise InvalidInput(where, 'must name a tenant behind "=" and each "|"; without "=" every tenant may', entry)
        for tenant in rule.tenants:
            check_name(tenant, where)


def is_own_group(top: str, own: str) -> bool:
    """Whether the top group is one of the executor's own, whose names begin with `own`."""
    return top == own or top.startswith(f"{own}-")


def attach_refusal(
    path: str,
    tenant: str,
    allowed: Iterable[str],
    own: str,
    here: str,
    attached: Iterable[str],
    kept: Iterable[UnmanagedGroup],
) -> str:
    """Why a job of the tenant may not be attached to the group, in one sentence; "" when it may.

    `allowed` are the entries of the operator's list, of which one that admits the tenant is enough. `here` is the executor's own
    group ("" when it is the root), `attached` are the groups that others are attached to, `kept` those whose CPUs the operator's
    policy keeps: fixed, or clear of own ones.
    """
    if is_own_group(path.partition("/")[0], own):
        return f"{path} is a group of the executor's own"
    if here and (_is_within(here, path) or _is_within(path, here)):
        return f"{path} contains the executor's own group, or lies in it"
    rules = [rule for rule in map(_rule_of, allowed) if _is_allowed(path, rule.pattern)]
    if not rules:
        return f"{path} is none of the groups that the operator of this node lets jobs attach to (process_attach)"
    if not any(rule.admits(tenant) for rule in rules):
        who = tenant or _DEFAULT_TENANT
        return f"{path} may not be attached by tenant {who}: the operator of this node names others for it (process_attach)"
    for other in attached:
        if _is_within(path, other) or _is_within(other, path):
            return f"{path} is the group {other}, which is attached already, or one within the other"
    for each in kept:
        is_same = _is_allowed(path, each.group)
        is_in_it = not (is_same or is_pattern(each.group)) and _is_within(each.group, path)
        if is_in_it or (is_same and each.cpus and not each.clear_of_own_cpus):
            return f"{path} is {each.group}, whose CPUs process_unmanaged keeps, or contains it"
    return ""


def is_cleared_above(path: str, kept: Iterable[UnmanagedGroup]) -> str:
    """The group of the policy that keeps this one off the CPUs of LSE and LSR work, "" where none does."""
    found = (each.group for each in kept if each.clear_of_own_cpus and _is_within(path, each.group))
    return next(found, "")


def attached_values(
    policy: DesiredPolicy, placement: Placement, path: str, version: int, has: Collection[Knob]
) -> AttachedGroupValues:
    """What is kept in the group: by the request at least its weight and its protected memory, which cgroup v1 does not have; its
    limits, and the identity of online work where the kernel, whose knobs are `has`, tells groups apart by it.
    """
    limits = placement.run.limits
    least, low = protected_bytes(policy, hold_of(placement, placement.replica)) if version == 2 else (0, 0)
    return AttachedGroupValues(
        group=path,
        weight_least=max(WEIGHT_LEAST + 1, weight_v1(placement.cpu_mcpu)),
        cpu_most_mcpu=0 if placement.qos.has_own_cpus else most_mcpu(policy, placement) or 0,
        memory_most_bytes=0 if limits is None else limits.memory_bytes,
        memory_low_bytes=low,
        memory_min_bytes=least,
        identity_least=ONLINE_IDENTITY if has_identities(policy, has) else 0,
    )


def _is_within(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}/")


def _is_allowed(path: str, pattern: str) -> bool:
    names, parts = path.split("/"), pattern.split("/")
    return len(names) == len(parts) and all(map(is_match, names, parts))
