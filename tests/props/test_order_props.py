"""Ordered kernel writes against a kernel that refuses what the real one refuses: every single write is accepted."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.cpuset import CpuSet
from colo_executor.knob_table import PERIOD_US, UNLIMITED, Knob, file_of
from colo_executor.order import ORDER, KnobWrite, ordered_writes
from tests.parity.peers.cgroup_model import Bandwidth, burst_errno, child_quota_errno, parent_quota_errno, write_v1
from tests.parity.peers.cpuset_model import CpusetV1Tree
from tests.support.profiles import examples

PATHS = ("", "batch", "batch/a", "batch/b", "batch/a/x")
SETS = (Knob.CPUSET_CPUS, Knob.CPUSET_MEMS)
CPUS, MEMS = CpuSet.parse("0-7"), CpuSet.parse("0-1")
QUOTAS = st.one_of(st.just(UNLIMITED), st.integers(1_000, 50_000))
PERIODS = st.one_of(st.just(PERIOD_US), st.integers(1_000, 1_000_000))


class Kernel:
    """The cpu and cpuset files of a tree of groups under cgroup v1, each group with a process in it."""

    def __init__(self, tree: Mapping[str, Mapping[Knob, int | str]]) -> None:
        self.values = {path: dict(values) for path, values in tree.items()}
        self.sets = CpusetV1Tree(CPUS, MEMS)
        for path in PATHS:
            where = self._in_cpuset(path)
            assert self.sets.mkdir(where) is None
            for knob in SETS:
                assert self.sets.write(where, knob.value.replace("-", "."), str(tree[path][knob])) is None
            assert self.sets.attach(where) is None

    def write(self, write: KnobWrite) -> None:
        """Take the write. Fails with the kernel's errno, and for a write that changes nothing."""
        values = self.values[write.path]
        assert values[write.knob] != write.value, f"{write} changes nothing"
        refused = self._refusal(write, values)
        assert refused is None, f"{write} is refused with {refused}"
        values[write.knob] = write.value
        if write.knob is Knob.CPU_IDLE:
            # The kernel gives the group a weight of its own.
            values[Knob.CPU_WEIGHT] = 3 if write.value else 1_024

    def _refusal(self, write: KnobWrite, values: Mapping[Knob, int | str]) -> str | None:
        if write.knob in SETS:
            return self.sets.write(self._in_cpuset(write.path), write.knob.value.replace("-", "."), str(write.value))
        place = file_of(write.knob, 1)
        assert place is not None
        is_idle, quota = values[Knob.CPU_IDLE] == 1, int(values[Knob.CPU_QUOTA])
        alone = write_v1(place[1], str(write.value), "", is_idle=is_idle, quota_us=quota).errno
        if alone is not None or write.knob not in (Knob.CPU_QUOTA, Knob.CPU_PERIOD):
            return alone
        after = {**values, write.knob: write.value}
        new = Bandwidth(int(after[Knob.CPU_QUOTA]), int(after[Knob.CPU_PERIOD]))
        below = [self._bandwidth(path) for path in PATHS if _limited_parent(self, path) == write.path]
        above = _limited_parent(self, write.path)
        return (
            burst_errno(new.quota_us, int(values[Knob.CPU_BURST]))
            or parent_quota_errno(new, below)
            or (child_quota_errno(self._bandwidth(above), new) if above is not None else None)
            or (None if new.is_limited or above is None else self._freed(above, below))
        )

    def _freed(self, above: str, below: list[Bandwidth]) -> str | None:
        """A group without a quota leaves its children to the limit above it."""
        return parent_quota_errno(self._bandwidth(above), below)

    def _bandwidth(self, path: str) -> Bandwidth:
        return Bandwidth(int(self.values[path][Knob.CPU_QUOTA]), int(self.values[path][Knob.CPU_PERIOD]))

    @staticmethod
    def _in_cpuset(path: str) -> str:
        return f"top/{path}" if path else "top"


def _parent(path: str) -> str | None:
    return None if path == "" else path.rpartition("/")[0]


def _limited_parent(kernel: Kernel, path: str) -> str | None:
    """The nearest group above that has a quota, or the one whose quota is being written."""
    above = _parent(path)
    while above is not None and int(kernel.values[above][Knob.CPU_QUOTA]) == UNLIMITED:
        above = _parent(above)
    return above


@st.composite
def trees(draw):
    """Values of every group that a kernel would hold: each within its parent's."""
    tree: dict[str, dict[Knob, int | str]] = {}
    for path in PATHS:
        above = _parent(path)
        inside = {knob: CpuSet.parse(str(tree[above][knob])) for knob in SETS} if above is not None else {}
        sets = {
            knob: CpuSet.from_iterable(draw(st.sets(st.sampled_from(sorted(inside.get(knob, whole))), min_size=1)))
            for knob, whole in zip(SETS, (CPUS, MEMS), strict=True)
        }
        quota, period = draw(QUOTAS), draw(PERIODS)
        limit = above
        while limit is not None and tree[limit][Knob.CPU_QUOTA] == UNLIMITED:
            limit = _parent(limit)
        if limit is not None and quota != UNLIMITED:
            most = Bandwidth(int(tree[limit][Knob.CPU_QUOTA]), int(tree[limit][Knob.CPU_PERIOD]))
            if Bandwidth(quota, period).ratio > most.ratio:
                quota, period = most.quota_us, most.period_us
        idle = draw(st.integers(0, 1))
        tree[path] = {
            **{knob: cpus.format() for knob, cpus in sets.items()},
            Knob.CPU_QUOTA: quota,
            Knob.CPU_PERIOD: period,
            Knob.CPU_BURST: draw(st.integers(0, 50_000 if quota == UNLIMITED else quota)),
            Knob.CPU_IDLE: idle,
            Knob.CPU_WEIGHT: 3 if idle else draw(st.integers(2, 4_096)),
        }
    return tree


def test_every_knob_has_a_rule_and_a_rule_names_knobs_of_its_file_or_beside_it() -> None:
    assert set(ORDER) == set(Knob)
    for knob, rule in ORDER.items():
        for other in (*rule.with_, rule.below, rule.not_while):
            place, named = file_of(knob, 1), None if other is None else file_of(other, 1)
            assert named is None or (place is not None and named[0] == place[0]), "one controller judges them"


@examples(0.5)
@given(trees(), trees())
def test_every_write_is_one_that_the_kernel_accepts_and_the_target_is_reached(have, target) -> None:
    kernel = Kernel(have)
    for write in ordered_writes(have, target):
        kernel.write(write)
    assert kernel.values == target


LIMITS = st.one_of(st.just(UNLIMITED), st.integers(0, 1 << 40))


@st.composite
def memory_limits(draw):
    """Limits of memory, and of memory and swap together, as v1 holds them: the second is never below the first."""
    limit, together = sorted((draw(LIMITS), draw(LIMITS)), key=_amount)
    return {Knob.MEMORY_LIMIT: limit, Knob.MEMORY_SWAP_LIMIT: together}


def _amount(limit: int) -> int:
    return 1 << 62 if limit == UNLIMITED else limit


@examples(0.5)
@given(memory_limits(), memory_limits())
def test_memory_is_never_limited_above_memory_and_swap_together(have, target) -> None:
    values = dict(have)
    for write in ordered_writes({"": have}, {"": target}):
        values[write.knob] = write.value
        assert _amount(values[Knob.MEMORY_LIMIT]) <= _amount(values[Knob.MEMORY_SWAP_LIMIT]), "EINVAL"
    assert values == target


@examples(0.5)
@given(trees(), trees())
def test_a_burst_that_nobody_asked_about_low_priority_to_the_quota(have, target) -> None:
    aims = {path: {knob: values[knob] for knob in (Knob.CPU_QUOTA, Knob.CPU_PERIOD)} for path, values in target.items()}
    kernel = Kernel(have)
    for write in ordered_writes(have, aims):
        kernel.write(write)
    for path, values in kernel.values.items():
        assert all(values[knob] == aims[path][knob] for knob in aims[path])
        quota = int(values[Knob.CPU_QUOTA])
        least = have[path][Knob.CPU_BURST] if quota == UNLIMITED else min(int(have[path][Knob.CPU_BURST]), quota)
        assert values[Knob.CPU_BURST] == least
