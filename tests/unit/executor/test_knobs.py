"""Kernel files, what is written to them, and what counts as the same when it is read back."""

from pathlib import Path

import pytest

from colo_common.model.invalid import InvalidInput
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.desired import DesiredPolicy
from colo_executor.knob_table import KNOB_FILES, UNLIMITED, FoundBy, Knob, file_of
from colo_executor.knobs import agrees, quota_us, text_of, value_of, weight_v1, weight_v2
from colo_executor.order import KnobWrite
from colo_executor.process.settings import ProcessPolicy
from colo_executor.settings import ExecutorSettings
from tests.support.cgroup2_files import Cgroup2Files


@pytest.mark.parametrize(
    ("mcpu", "quota", "shares"),
    [(1, 1_000, 2), (10, 1_000, 10), (11, 1_100, 11), (1_000, 100_000, 1_024), (64_000, 6_400_000, 65_536)],
    ids=["below the least quota", "the least quota", "above it", "one CPU", "many"],
)
def test_quota_and_shares_of_milli_cpu(mcpu, quota, shares):
    assert (quota_us(mcpu), weight_v1(mcpu)) == (quota, shares)


@pytest.mark.parametrize(
    ("shares", "weight"),
    [(2, 1), (5, 1), (6, 1), (16, 2), (1_024, 100), (102_400, 10_000), (262_144, 10_000), (0, 1), (999_999, 10_000)],
)
def test_weight_of_shares(shares, weight):
    assert weight_v2(shares) == weight


@pytest.mark.parametrize(
    ("knob", "version", "value", "text"),
    [
        (Knob.CPU_QUOTA, 1, UNLIMITED, "-1"),
        (Knob.CPU_QUOTA, 2, UNLIMITED, "max 100000"),
        (Knob.CPU_QUOTA, 2, 20_000, "20000 100000"),
        (Knob.CPU_WEIGHT, 1, 2, "2"),
        (Knob.CPU_WEIGHT, 2, 2, "1"),
        (Knob.MEMORY_LIMIT, 1, UNLIMITED, "-1"),
        (Knob.MEMORY_LIMIT, 2, UNLIMITED, "max"),
        (Knob.PIDS_LIMIT, 1, UNLIMITED, "max"),
        (Knob.CPUSET_CPUS, 1, "3,0-1", "0-1,3"),
    ],
)
def test_the_text_that_is_written(knob, version, value, text):
    assert text_of(knob, version, value) == text


@pytest.mark.parametrize(
    ("knob", "wrote", "shown", "same"),
    [
        (Knob.CPU_WEIGHT, "2", "2", True),
        (Knob.CPU_WEIGHT, "2", "3", False),
        (Knob.MEMORY_LIMIT, "1000000", "999424", True),
        (Knob.MEMORY_LIMIT, "1000000", "1003520", False),
        (Knob.MEMORY_LIMIT, "-1", "9223372036854771712", True),
        (Knob.MEMORY_LIMIT, "1000000", "4096", False),
    ],
    ids=["equal", "clamped", "rounded down to a page", "above the promise", "unlimited", "far below"],
)
def test_what_counts_as_the_same_after_reading_back(knob, wrote, shown, same):
    assert agrees(knob, 1, wrote, shown) is same


def test_a_knob_that_a_version_lacks_has_no_file():
    assert file_of(Knob.CPU_PERIOD, 2) is None
    assert file_of(Knob.OOM_GROUP, 1) is None
    assert file_of(Knob.CPU_QUOTA, 2) == ("cpu", "cpu.max")


@pytest.mark.parametrize(("knob", "value"), [(Knob.CPU_QUOTA, "max"), (Knob.CPUSET_CPUS, 3), (Knob.CPUSET_CPUS, "1-0")])
def test_a_value_of_the_wrong_kind_is_refused(knob, value):
    with pytest.raises(InvalidInput) as refused:
        text_of(knob, 1, value)
    assert refused.value.field == knob.value


NUMBERS = [knob for knob in Knob if KNOB_FILES[knob].is_number]
VERSIONS = [(knob, version) for knob in NUMBERS for version in (1, 2) if file_of(knob, version, 2 << 20)]


def test_every_knob_has_a_row_with_a_unit_a_range_and_how_it_is_found():
    assert set(KNOB_FILES) == set(Knob)
    for knob, row in KNOB_FILES.items():
        assert row.v1 or row.v2, knob
        assert (row.least < row.most) is row.is_number, knob
        assert bool(row.v1_word) <= bool(row.v1), knob
        assert bool(row.v2_word) <= bool(row.v2), knob
        promised = row.since is not None or knob is Knob.CPU_PERIOD
        assert (row.found_by is FoundBy.FILE) is promised, knob


@pytest.mark.parametrize(("knob", "version"), VERSIONS)
def test_the_ends_of_the_range_are_written_and_what_lies_beyond_is_refused(knob, version):
    row = KNOB_FILES[knob]
    for value in (row.least, row.most, *([UNLIMITED] if row.word(version) else [])):
        text_of(knob, version, value)
    beyond = [row.most + 1, row.least - 1 if row.least - 1 != UNLIMITED else UNLIMITED - 1]
    is_legal = row.word(version) or row.least <= UNLIMITED
    for value in (*beyond, *([] if is_legal else [UNLIMITED]), 1 << 80):
        with pytest.raises(InvalidInput) as refused:
            text_of(knob, version, value)
        assert refused.value.field == knob.value
        assert "must be" in refused.value.rule


def test_the_rule_names_the_range_the_unit_and_the_word_for_no_limit():
    def rule(knob, value):
        with pytest.raises(InvalidInput) as refused:
            text_of(knob, 2, value)
        return refused.value.rule

    assert rule(Knob.PIDS_LIMIT, -2) == "must be from 0 to 4194304 (processes), or -1 for no limit"
    assert rule(Knob.CPU_WEIGHT, 1) == "must be from 2 to 262144 (v1 shares)"
    assert rule(Knob.FROZEN, 2) == "must be 0 or 1"


def test_a_number_beyond_the_range_never_reaches_the_kernel_and_the_file_is_named(tmp_path: Path, monkeypatch):
    files = Cgroup2Files(tmp_path, monkeypatch)
    tree = CgroupTree(str(files.root), "colo")
    tree.make("")
    files.writes.clear()
    for act in (tree.write, tree.observed):
        with pytest.raises(CgroupError, match="colo/pids.max is not written: pids-limit: must be from 0 to 4194304"):
            act(KnobWrite(path="", knob=Knob.PIDS_LIMIT, value=1 << 40))
    assert files.writes == []
    assert tree.drifted() == (), "and it is not kept"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("identity", [-2, -1, 0, 1, 2])
def test_an_identity_is_written_and_read_as_its_number_though_minus_one_means_unlimited_elsewhere(version, identity):
    text = text_of(Knob.CPU_BVT, version, identity)
    assert (text, value_of(Knob.CPU_BVT, version, text)) == (str(identity), identity)
    assert file_of(Knob.CPU_BVT, version) == ("cpu", "cpu.bvt_warp_ns")
    assert agrees(Knob.CPU_BVT, version, text, f"{identity}\n")
    assert not agrees(Knob.CPU_BVT, version, text, str(identity + 1))


def test_an_idle_groups_weight_reads_as_the_least():
    assert value_of(Knob.CPU_WEIGHT, 2, "0") == value_of(Knob.CPU_WEIGHT, 2, "1") == 2


@pytest.mark.parametrize("most", [0, (4 << 20) + 1])
def test_a_limit_of_processes_that_the_kernel_would_refuse_is_refused_at_the_start(most):
    policy = ProcessPolicy(desired=DesiredPolicy(pids_most=most))
    with pytest.raises(InvalidInput, match=r"process_desired_pids_most: must be from 1 to 4194304"):
        ExecutorSettings(process=policy).validate()


def test_the_readme_lists_every_file_with_its_unit():
    readme = (Path(__file__).parents[3] / "services/executor/README.md").read_text()
    rows = [line for line in readme.splitlines() if line.startswith("| ") and "`" in line]
    for row in KNOB_FILES.values():
        names = [name.replace("{size}", "SIZE") for name in (row.v1, row.v2) if name]
        assert any(all(f"`{name}`" in line for name in names) and row.unit.value in line for line in rows), (
            f"{names} in {row.unit.value}"
        )
