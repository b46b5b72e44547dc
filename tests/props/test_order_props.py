"""Ordered kernel writes against a small model of the rules that cgroup v1 enforces: every single write is accepted."""

from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.cpuset import CpuSet
from colo_executor.knobs import UNLIMITED, Knob
from colo_executor.order import cpuset_writes, quota_writes

PATHS = ("", "batch", "batch/a", "batch/b", "batch/a/x")
QUOTAS = st.one_of(st.just(UNLIMITED), st.integers(1_000, 50_000))


def _parent(path: str) -> str | None:
    return None if path == "" else path.rpartition("/")[0]


def _inherited(tree: dict[str, int], path: str | None) -> int | None:
    """The quota of the nearest limited group at or above the path; None: no limit."""
    while path is not None:
        if tree[path] != UNLIMITED:
            return tree[path]
        path = _parent(path)
    return None


def _quotas_are_legal(tree: dict[str, int]) -> bool:
    for path, quota in tree.items():
        above = _inherited(tree, _parent(path))
        if quota != UNLIMITED and above is not None and quota > above:
            return False
    return True


@st.composite
def quota_trees(draw):
    tree: dict[str, int] = {}
    for path in PATHS:
        quota = draw(QUOTAS)
        tree[path] = UNLIMITED
        above = _inherited(tree, _parent(path))
        tree[path] = quota if above is None or quota == UNLIMITED else min(quota, above)
    return tree


@given(quota_trees(), quota_trees())
def test_every_quota_write_is_one_the_kernel_accepts(have, placement_request):
    tree = dict(have)
    for write in quota_writes(have, placement_request):
        assert tree[write.path] != write.value, "a write that changes nothing"
        tree[write.path] = write.value
        assert _quotas_are_legal(tree), f"refused at {write}"
    assert tree == placement_request


@st.composite
def cpuset_trees(draw):
    tree: dict[str, CpuSet] = {}
    for path in PATHS:
        parent = tree.get(_parent(path) or "") if path else CpuSet.from_iterable(range(8))
        members = draw(st.sets(st.sampled_from(sorted(parent)), min_size=1))
        tree[path] = CpuSet.from_iterable(members)
    return tree


@given(cpuset_trees(), cpuset_trees())
def test_every_cpuset_write_keeps_children_inside_and_groups_filled(have, placement_request):
    tree = dict(have)
    for write in cpuset_writes(Knob.CPUSET_CPUS, have, placement_request):
        tree[write.path] = CpuSet.parse(write.value)
        for path, cpus in tree.items():
            assert cpus, "an empty set with processes is refused"
            assert path == "" or cpus <= tree[_parent(path)], f"refused at {write}"
    assert tree == placement_request
