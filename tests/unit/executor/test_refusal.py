"""What a refusal of the kernel says in plain words: by the table, over files that refuse, and of the real kernel where it is v1."""

import errno
import os
import re
from pathlib import Path

import pytest

from colo_executor import refusal
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.knob_table import KNOB_FILES, Knob
from colo_executor.order import KnobWrite
from colo_executor.refusal import error_name, what_refusal_means
from tests.parity.sentences import CPUSET_V1_RULES, V2_CORE_RULES
from tests.support.cgroup2_files import Cgroup2Files

COMMON = ("EACCES", "EBUSY", "EINVAL", "ENODEV", "ENOMEM", "ENOSPC", "EOPNOTSUPP", "EPERM", "ERANGE", "EROFS", "ESRCH")
UNKNOWN = what_refusal_means("cpu.max", "EXDEV")


def test_every_file_of_the_table_has_a_sentence_for_every_common_error() -> None:
    for row in KNOB_FILES.values():
        for name in filter(None, (row.v1, row.v2)):
            for error in COMMON:
                means = what_refusal_means(name, error)
                assert means != UNKNOWN, (name, error)
                assert not re.search(r"[A-Z]$|\.$", means), "a clause that another sentence goes on with"


def test_each_error_of_the_tables_is_found_by_the_number_that_the_kernel_returns() -> None:
    tables = (refusal._ANYWHERE, *refusal._OF_FILE.values(), *refusal._OF_STEP.values())
    for name in sorted({name for table in tables for name in table}):
        assert error_name(getattr(errno, name)) == name
    assert error_name(None) == error_name(1 << 20) == "error"


def test_an_error_that_nobody_knows_sends_to_the_kernels_log() -> None:
    assert "dmesg" in UNKNOWN


def test_what_differs_by_file_is_said_by_file() -> None:
    assert "would be left without any" in what_refusal_means("cpuset.cpus", "ENOSPC")
    assert "group below" in what_refusal_means("cpuset.cpus", "EBUSY")
    assert "group above" in what_refusal_means("cpu.cfs_quota_us", "EINVAL")
    assert "burst" in what_refusal_means("cpu.max", "EINVAL")
    assert "idle" in what_refusal_means("cpu.weight", "EINVAL")
    assert "reading only" in what_refusal_means("cpu.weight", "EROFS")
    assert "hands controllers down" in what_refusal_means("cgroup.procs", "EBUSY")
    assert "cgroup.max.descendants" in what_refusal_means("colo", "EAGAIN", "mkdir")
    assert what_refusal_means("pids.max", "EBUSY") != what_refusal_means("cpuset.cpus", "EBUSY")


def test_every_rule_that_the_kernel_models_answer_with_an_error_has_a_sentence_of_its_own() -> None:
    for file, rules in (("cpuset.cpus", CPUSET_V1_RULES), ("cgroup.subtree_control", V2_CORE_RULES)):
        for patterns, answer in rules:
            error = answer()
            # What is refused of a whole group is said of that step.
            means = "" if error is None else what_refusal_means(file, error, "mkdir" if error == "EAGAIN" else "")
            assert error is None or means != UNKNOWN, (patterns, error)


@pytest.mark.parametrize(
    ("error", "knob", "value", "says"),
    [
        (errno.EROFS, Knob.MEMORY_LIMIT, 1 << 20, "mounted for reading only"),
        (errno.ENOSPC, Knob.CPUSET_CPUS, "0", "would be left without any"),
        (errno.EPERM, Knob.PIDS_LIMIT, 7, "run it as root"),
        (errno.EOPNOTSUPP, Knob.SWAP_LIMIT, 0, "does not count swap"),
        (errno.EMFILE, Knob.PIDS_LIMIT, 7, "as many files open as it may"),
    ],
)
def test_a_refused_write_names_the_file_the_error_and_what_it_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, knob: Knob, value: int | str, says: str
) -> None:
    files = Cgroup2Files(tmp_path, monkeypatch)
    tree = CgroupTree(str(files.root), "colo")
    tree.make("")

    def refuse(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(CgroupTree, "_put", refuse)
    with pytest.raises(CgroupError) as refused:
        tree.write(KnobWrite(path="", knob=knob, value=value))
    name = error_name(error)
    assert re.match(
        rf"colo/[a-z.]+: write '.*' refused with {name} \({os.strerror(error)}\): .*{says}", str(refused.value)
    )


def test_a_group_that_vanishes_during_a_write_is_said_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Cgroup2Files(tmp_path, monkeypatch)
    tree = CgroupTree(str(files.root), "colo")
    tree.make("")

    def vanish(*_: object) -> None:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(CgroupTree, "_put", vanish)
    with pytest.raises(FileNotFoundError, match="the group was removed meanwhile: 'colo/pids.max'"):
        tree.write(KnobWrite(path="", knob=Knob.PIDS_LIMIT, value=7))
