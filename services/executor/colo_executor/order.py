"""The order of kernel writes in which the kernel accepts every step.

cgroup v1 refuses a CPU quota whose share of its period is above that of an ancestor, a limit of memory above that of memory and
swap together, and a CPU set outside the parent's or without a child's CPUs; both versions refuse a burst above the quota, and a
weight while the group is idle. `ORDER` says so for every knob, and `ordered_writes` follows it: growing values from the top down,
then shrinking values from the bottom up, a set that moves through the union of old and new.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from colo_common.model.cpuset import CpuSet
from colo_executor.knob_table import PERIOD_US, UNLIMITED, Knob

__all__ = ["ORDER", "Bandwidth", "KnobWrite", "OrderRule", "cpuset_writes", "ordered_writes", "quota_writes"]

_INFINITE: Final = 1 << 62
_RATIO_SHIFT: Final = 20

Values = Mapping[Knob, int | str]
"""The values of one group."""


class KnobWrite(Struct, frozen=True, kw_only=True):
    """One value for one knob of the control group at `path` (relative to the executor's own group, "" is that group).

    `page_bytes` is the page size of a limit of huge pages, 0 for every other knob.
    """

    path: str
    knob: Knob
    value: int | str
    page_bytes: int = 0


class OrderRule(Struct, frozen=True, kw_only=True):
    """What a write of the knob depends on.

    `in_parent`: the value lies within the parent's, so growth goes from the top down and shrinking from the bottom up; for a set
    through the union. `below`: a knob of the same group that the value may not exceed: it is lowered before that one and raised
    after it. `with_`: knobs of the same group that the kernel judges together with it. `not_while`: a knob of the same group
    during whose value 1 the write is refused.
    """

    in_parent: bool = False
    below: Knob | None = None
    with_: tuple[Knob, ...] = ()
    not_while: Knob | None = None


_FREE: Final = OrderRule()
ORDER: Final[Mapping[Knob, OrderRule]] = {
    Knob.CPUSET_CPUS: OrderRule(in_parent=True),
    Knob.CPUSET_MEMS: OrderRule(in_parent=True),
    Knob.CPU_WEIGHT: OrderRule(not_while=Knob.CPU_IDLE),
    Knob.CPU_IDLE: _FREE,
    Knob.CPU_BVT: _FREE,
    Knob.CPU_PERIOD: OrderRule(in_parent=True, with_=(Knob.CPU_QUOTA,)),
    Knob.CPU_QUOTA: OrderRule(in_parent=True, with_=(Knob.CPU_PERIOD,)),
    Knob.CPU_BURST: OrderRule(below=Knob.CPU_QUOTA),
    Knob.MEMORY_LIMIT: OrderRule(below=Knob.MEMORY_SWAP_LIMIT),
    # The kernel takes any protection, and what is above the parent's protects nothing: the parent's is written first.
    Knob.MEMORY_MIN: _FREE,
    Knob.MEMORY_LOW: _FREE,
    Knob.MEMORY_SWAP_LIMIT: _FREE,
    Knob.SWAP_LIMIT: _FREE,
    Knob.OOM_GROUP: _FREE,
    Knob.PIDS_LIMIT: _FREE,
    Knob.FROZEN: _FREE,
    Knob.HUGE_PAGES_LIMIT: _FREE,
    Knob.HUGE_PAGES_RESERVED_LIMIT: _FREE,
    # Within the parent's, too, but no group above a replica has rules of colo.
    Knob.DEVICES: _FREE,
}
"""The rule of every knob, the stricter of both cgroup versions."""
_SETS: Final = (Knob.CPUSET_CPUS, Knob.CPUSET_MEMS)
_BANDWIDTH: Final = (Knob.CPU_QUOTA, Knob.CPU_PERIOD, Knob.CPU_BURST)


class Bandwidth(Struct, frozen=True, kw_only=True):
    """Quota, period and burst of one group in us."""

    quota_us: int = UNLIMITED
    period_us: int = PERIOD_US
    burst_us: int = 0

    @property
    def size(self) -> int:
        """The share of the period as the kernel compares it: in fixed point of 20 bits, rounded down; without quota infinite."""
        return _INFINITE if self.quota_us == UNLIMITED else (self.quota_us << _RATIO_SHIFT) // self.period_us


def _depth(path: str) -> tuple[int, str]:
    return (path.count("/") + 1 if path else 0, path)


def ordered_writes(have: Mapping[str, Values], target: Mapping[str, Values]) -> tuple[KnobWrite, ...]:
    """Writes that lead the groups from `have` to `target`, by group; both must be legal, and `have` has what `target` names.

    A group that is idle and stays it keeps its weight, because the kernel takes none. A burst that is not in `target` and above
    the target's quota is lowered to it.
    """
    writes: list[KnobWrite] = []
    for knob in _SETS:
        paths = [path for path in target if knob in target[path]]
        sets = ({path: CpuSet.parse(str(each[path][knob]), path) for path in paths} for each in (have, target))
        writes += cpuset_writes(knob, *sets)
    for path in sorted(target, key=_depth):
        writes += _plain_writes(path, have[path], target[path])
    paths = [path for path in target if Knob.CPU_QUOTA in target[path]]
    now = {path: _bandwidth(have[path]) for path in paths}
    aims = {path: _aim(now[path], target[path]) for path in paths}
    return (*writes, *_bandwidth_writes(now, aims))


def _plain_writes(path: str, have: Values, target: Values) -> Iterable[KnobWrite]:
    """The writes of knobs that no other group's values bear on: idle is lifted before the weight and set after it."""
    changed = [knob for knob in target if knob not in (*_SETS, *_BANDWIDTH) and have[knob] != target[knob]]
    idle = target.get(Knob.CPU_IDLE, have.get(Knob.CPU_IDLE, 0))
    is_lifted = Knob.CPU_IDLE in changed and idle == 0
    if is_lifted:
        yield KnobWrite(path=path, knob=Knob.CPU_IDLE, value=0)
    for knob in _in_bounds(changed, have, target):
        if knob is Knob.CPU_IDLE or (
            ORDER[knob].not_while is Knob.CPU_IDLE and not is_lifted and have.get(Knob.CPU_IDLE)
        ):
            continue
        yield KnobWrite(path=path, knob=knob, value=target[knob])
    if is_lifted and Knob.CPU_WEIGHT in target and Knob.CPU_WEIGHT not in changed:
        # Lifting idle sets a weight of the kernel's own.
        yield KnobWrite(path=path, knob=Knob.CPU_WEIGHT, value=target[Knob.CPU_WEIGHT])
    if Knob.CPU_IDLE in changed and not is_lifted:
        yield KnobWrite(path=path, knob=Knob.CPU_IDLE, value=idle)


def _in_bounds(changed: Sequence[Knob], have: Values, target: Values) -> list[Knob]:
    """The knobs in order of name, but one that another one bounds after it where it grows, and before it where it shrinks."""
    order = sorted(changed)
    for knob in changed:
        bound = ORDER[knob].below
        if bound in order:
            order.remove(knob)
            grows = _amount(target[knob]) > _amount(have[knob])
            order.insert(order.index(bound) + int(grows), knob)
    return order


def _amount(value: int | str) -> int:
    return _INFINITE if value == UNLIMITED else int(value)


def _bandwidth(values: Values) -> Bandwidth:
    return Bandwidth(
        quota_us=int(values.get(Knob.CPU_QUOTA, UNLIMITED)),
        period_us=int(values.get(Knob.CPU_PERIOD, PERIOD_US)),
        burst_us=int(values.get(Knob.CPU_BURST, 0)),
    )


def _aim(have: Bandwidth, target: Values) -> Bandwidth:
    quota_us = int(target[Knob.CPU_QUOTA])
    burst_us = have.burst_us if quota_us == UNLIMITED else min(have.burst_us, quota_us)
    return Bandwidth(
        quota_us=quota_us,
        period_us=int(target.get(Knob.CPU_PERIOD, have.period_us)),
        burst_us=int(target.get(Knob.CPU_BURST, burst_us)),
    )


def quota_writes(have: Mapping[str, int], target: Mapping[str, int]) -> tuple[KnobWrite, ...]:
    """Writes that lead the quotas `have` to `target` (same paths, one period, UNLIMITED for none); both trees must be legal.

    After each write every group's quota is at most that of its nearest limited ancestor, as v1 demands.
    """
    now, aims = ({path: Bandwidth(quota_us=each[path]) for path in target} for each in (have, target))
    return _bandwidth_writes(now, aims)


def _bandwidth_writes(have: Mapping[str, Bandwidth], target: Mapping[str, Bandwidth]) -> tuple[KnobWrite, ...]:
    changed = [path for path in target if have[path] != target[path]]
    grows = sorted((path for path in changed if target[path].size >= have[path].size), key=_depth)
    shrinks = sorted((path for path in changed if target[path].size < have[path].size), key=_depth, reverse=True)
    return tuple(write for path in (*grows, *shrinks) for write in _steps(path, have[path], target[path]))


def _steps(path: str, have: Bandwidth, target: Bandwidth) -> Iterable[KnobWrite]:
    """The writes of one group whose parent has grown and whose children have shrunk: no step is beyond both ends."""
    if target.burst_us < have.burst_us:
        yield KnobWrite(path=path, knob=Knob.CPU_BURST, value=target.burst_us)
    quota = KnobWrite(path=path, knob=Knob.CPU_QUOTA, value=target.quota_us)
    if target.period_us == have.period_us:
        if target.quota_us != have.quota_us:
            yield quota
    else:
        period = KnobWrite(path=path, knob=Knob.CPU_PERIOD, value=target.period_us)
        yield from _turn_in(path, have, target, quota, period)
    if target.burst_us > have.burst_us:
        yield KnobWrite(path=path, knob=Knob.CPU_BURST, value=target.burst_us)


def _turn_in(
    path: str, have: Bandwidth, target: Bandwidth, quota: KnobWrite, period: KnobWrite
) -> tuple[KnobWrite, ...]:
    """Quota and period one after the other, so that the share in between is none that a parent or child forbids."""
    least, most = sorted((have.size, target.size))
    if target.quota_us == have.quota_us:
        # The share lies between both ends by itself.
        return (period,)
    if UNLIMITED in (have.quota_us, target.quota_us):
        # Without quota any period will do.
        return (period, quota) if have.quota_us == UNLIMITED else (quota, period)
    if least <= Bandwidth(quota_us=target.quota_us, period_us=have.period_us).size <= most:
        return (quota, period)
    if least <= Bandwidth(quota_us=have.quota_us, period_us=target.period_us).size <= most:
        return (period, quota)
    return (KnobWrite(path=path, knob=Knob.CPU_QUOTA, value=UNLIMITED), period, quota)


def cpuset_writes(knob: Knob, have: Mapping[str, CpuSet], target: Mapping[str, CpuSet]) -> tuple[KnobWrite, ...]:
    """Writes that lead the sets `have` to `target` (same paths): unions from the top down, then targets from the bottom up.

    After each write every group's set lies in its parent's and contains its children's.
    """
    writes = []
    now = dict(have)
    for path in sorted(target, key=_depth):
        union = have[path] | target[path]
        if union != now[path]:
            writes.append(KnobWrite(path=path, knob=knob, value=union.format()))
            now[path] = union
    for path in sorted(target, key=_depth, reverse=True):
        if target[path] != now[path]:
            writes.append(KnobWrite(path=path, knob=knob, value=target[path].format()))
            now[path] = target[path]
    return tuple(writes)
