"""Groups that colo did not make: what the operator's policy keeps there, over files that look like cgroup v2, and its rules."""

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.model.invalid import InvalidInput
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.journal import JournalFile
from colo_executor.knob_table import UNLIMITED, Knob
from colo_executor.local import Drift
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.systemd_units import SystemdUnits
from colo_executor.process.tier import Tier
from colo_executor.process.unmanaged import UnmanagedTier
from colo_executor.unit_properties import shown_text, unit_property_at
from colo_executor.unmanaged import UnmanagedGroup, check_unmanaged
from tests.support.cgroup2_files import Cgroup2Files

SERVICE = UnmanagedGroup(
    group="system.slice/daemon.service", weight_least=1_024, cpu_most_mcpu=2_000, memory_most_bytes=4 << 20, cpus="0-1"
)


NO_UNIT = UnmanagedGroup(group="containers", cpu_most_mcpu=3_000)


class Bench:
    """One executor and a service that it did not start."""

    def __init__(self, directory: Path, files: Cgroup2Files) -> None:
        self.files = files
        self.policy = ProcessPolicy(
            state_dir=str(directory / "state"), cgroup_root=str(files.root), sys_root=str(files.sys_root)
        )
        for group in ("system.slice", SERVICE.group):
            (files.root / group).mkdir()
            files._fill(files.root / group)
            (files.root / group / "memory.current").write_text("1048576\n")
        self.journal = JournalFile(Path(self.policy.state_dir))
        self.tier = Tier(self.policy, self.journal)
        self.tier.prepare()

    def keep(self, *groups: UnmanagedGroup, observes: bool = False):
        return self.kept(*groups).keep(observes=observes)

    def kept(self, *groups: UnmanagedGroup) -> UnmanagedTier:
        return UnmanagedTier(groups, self.tier.open, old_value=self.tier.old.value)

    def add(self, *groups: str) -> None:
        """More groups of others, each in one that there is."""
        for group in groups:
            (self.files.root / group).mkdir()
            self.files._fill(self.files.root / group)

    def protection(self, group: str) -> tuple[int, int]:
        return int(self.files.text(f"{group}/memory.min")), int(self.files.text(f"{group}/memory.low"))

    def all_files(self) -> dict[str, str]:
        return {str(path): path.read_text() for path in self.files.root.rglob("*") if path.is_file()}

    def give_back(self, *groups: UnmanagedGroup, observes: bool = False) -> Drift:
        managed = UnmanagedTier(groups, self.tier.open).managed()
        return self.tier.put_back_all_but(managed, observes=observes)

    def start_again(self) -> None:
        self.tier.close()
        self.journal.close()
        self.journal = JournalFile(Path(self.policy.state_dir))
        self.tier = Tier(self.policy, self.journal)
        self.tier.prepare()

    def shown(self) -> list[str]:
        names = ("cpu.weight", "cpu.max", "memory.max", "cpuset.cpus")
        return [self.files.text(f"{SERVICE.group}/{name}") for name in names]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, Cgroup2Files(tmp_path, monkeypatch))


def test_a_service_gets_its_ceilings_and_its_cpus_and_keeps_a_higher_weight(bench: Bench) -> None:
    drift = bench.keep(SERVICE)
    assert drift.failed == ()
    assert bench.shown() == ["100", "200000 100000", str(4 << 20), "0-1"]
    bench.files.writes.clear()
    assert bench.keep(SERVICE).knobs == ()
    assert bench.files.writes == [], "nothing is written when nothing has changed"


def test_a_weight_that_somebody_lowered_is_raised_and_the_old_value_comes_back(bench: Bench) -> None:
    path = bench.files.root / SERVICE.group / "cpu.weight"
    path.write_text("1\n")
    (knob,) = bench.keep(replace(SERVICE, cpu_most_mcpu=0, memory_most_bytes=0, cpus="")).knobs
    assert (knob.path, knob.value, knob.before) == (f"{SERVICE.group}/cpu.weight", "100", "1")
    bench.keep(SERVICE)
    assert bench.tier.restore() == ()
    assert bench.shown() == ["1", "max 100000", "max", ""]
    assert bench.files.groups() == ["system.slice", SERVICE.group]


def test_a_policy_that_is_only_observed_is_withheld_and_what_attached_work_needs_is_written(bench: Bench) -> None:
    bench.add("web.slice")
    tier = UnmanagedTier((SERVICE,), bench.tier.open, old_value=bench.tier.old.value, is_observed=True)
    tier.attached["web.main.0@1"] = UnmanagedGroup(group="web.slice", cpu_most_mcpu=1_000)
    before = bench.shown()
    drift = tier.keep()
    assert [knob.path for knob in drift.knobs] == ["web.slice/cpu.max"]
    assert {knob.path: knob.value for knob in drift.withheld} == {
        f"{SERVICE.group}/cpu.max": "200000 100000",
        f"{SERVICE.group}/memory.max": str(4 << 20),
        f"{SERVICE.group}/cpuset.cpus": "0-1",
    }
    assert (drift.failed, drift.observed) == ((), False)
    assert bench.shown() == before
    assert {path.rpartition("/")[0] for path, _ in bench.tier.old.values().items()} == {"web.slice"}
    again = tier.keep()
    assert (again.knobs, again.withheld) == ((), drift.withheld)
    assert tier.keep(only="web.slice") == Drift()


def test_what_is_taken_out_of_the_policy_gets_its_old_value_back_and_nothing_else_does(bench: Bench) -> None:
    bench.keep(SERVICE)
    after = replace(SERVICE, cpu_most_mcpu=0, cpus="")
    would = bench.give_back(after, observes=True)
    assert {knob.path.rpartition("/")[2]: knob.value for knob in would.knobs} == {
        "cpu.max": "max 100000",
        "cpuset.cpus": "",
    }
    assert bench.shown() == ["100", "200000 100000", str(4 << 20), "0-1"]
    assert len(bench.give_back(after).knobs) == 2
    assert bench.shown() == ["100", "max 100000", str(4 << 20), ""]
    # What somebody sets there from now on is his, also over a start; the own groups keep what they have.
    (bench.files.root / SERVICE.group / "cpu.max").write_text("50000 100000\n")
    before = bench.files.text("colo/cpu.idle")
    bench.start_again()
    assert bench.give_back(after).knobs == ()
    assert bench.shown() == ["100", "50000 100000", str(4 << 20), ""]
    # The value from before is noted again when the policy names it again.
    bench.keep(SERVICE)
    assert bench.give_back().failed == ()
    assert bench.shown() == ["100", "50000 100000", "max", ""]
    assert bench.files.text("colo/cpu.idle") == before
    bench.files.writes.clear()
    assert bench.give_back() == Drift()
    assert bench.files.writes == []


def test_a_refused_value_is_nobodys_old_value_and_what_is_set_there_meanwhile_counts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = replace(NO_UNIT, memory_min_bytes=2 << 20)
    bench.add(group.group)
    put, refused = CgroupTree._put, {f"{group.group}/memory.min", f"{group.group}/cpu.max"}

    def put_or_refuse(tree: CgroupTree, mount: str, path: str | None, name: str, text: str) -> None:
        if tree._shown(mount, path, name) in refused:
            raise OSError(errno.EINVAL, "Invalid argument")
        put(tree, mount, path, name, text)

    monkeypatch.setattr(CgroupTree, "_put", put_or_refuse)
    for _ in range(2):
        assert "refused with EINVAL" in bench.keep(group).failed[0]
    assert not refused & bench.tier.old.values().keys()
    journal = bench.journal.state.pre_images
    assert refused & journal.keys(), "the journal has it before the write, because a write may be taken"
    # An operator protects more than colo would: that is what its own value is put beside.
    (bench.files.root / group.group / "memory.min").write_text(f"{64 << 20}\n")
    (bench.files.root / group.group / "cpu.max").write_text("70000 100000\n")
    assert bench.give_back() == Drift()
    bench.keep(group)
    bench.start_again()
    assert not refused & bench.tier.old.values().keys(), "the next executor does not take it for a value of colo's"
    refused.clear()
    assert bench.keep(group).failed == ()
    assert (bench.protection(group.group)[0], bench.files.text(f"{group.group}/cpu.max")) == (64 << 20, "300000 100000")
    assert bench.tier.restore() == ()
    assert (bench.protection(group.group)[0], bench.files.text(f"{group.group}/cpu.max")) == (64 << 20, "70000 100000")


def test_a_group_that_is_gone_has_nothing_to_get_back(bench: Bench) -> None:
    bench.keep(SERVICE)
    shutil.rmtree(bench.files.root / SERVICE.group)
    assert bench.give_back() == Drift()
    assert SERVICE.group not in str(bench.tier._journal.state.pre_images)


def test_what_cannot_be_had_is_named_and_nothing_is_changed_there(bench: Bench) -> None:
    (bench.files.root / SERVICE.group / "memory.current").write_text(f"{5 << 20}\n")
    (bench.files.root / "system.slice" / "cpu.max").unlink()
    bench.files.writes.clear()
    drift = bench.keep(SERVICE, replace(SERVICE, group="system.slice"), replace(SERVICE, group="absent.slice"))
    assert drift.knobs == ()
    assert drift.failed == (
        f"{SERVICE.group}: uses {5 << 20} bytes, more than memory_most_bytes; nothing is changed there",
        "system.slice: cgroup v2 has no file for cpu-quota-us there",
    )
    assert bench.files.writes == []


def test_a_node_that_only_observes_says_what_it_would_write(bench: Bench) -> None:
    bench.files.writes.clear()
    drift = bench.keep(SERVICE, observes=True)
    assert drift.observed
    assert {knob.path.rpartition("/")[2]: knob.value for knob in drift.knobs} == {
        "cpuset.cpus": "0-1",
        "memory.max": str(4 << 20),
        "cpu.max": "200000 100000",
    }
    assert bench.files.writes == []


@pytest.mark.parametrize(
    ("group", "field", "rule"),
    [
        (replace(SERVICE, group="../etc"), "process_unmanaged[0].group", "must not have the names . and .."),
        (replace(SERVICE, group="a.slice/../*"), "process_unmanaged[0].group", "must not have the names . and .."),
        (replace(SERVICE, group="/system.slice"), "process_unmanaged[0].group", "and not begin with a slash"),
        (replace(SERVICE, group="a.slice/b\0*"), "process_unmanaged[0].group", "must have no NUL"),
        (replace(SERVICE, group="*.slice/x"), "process_unmanaged[0].group", "must begin with the name of a top group"),
        (replace(SERVICE, group="a.slice/**"), "process_unmanaged[0].group", "must not have ** in it"),
        (replace(SERVICE, group="a.slice/[x"), "process_unmanaged[0].group", "must be names of letters"),
        (replace(SERVICE, group="a.slice//*"), "process_unmanaged[0].group", "must be names of letters"),
        (replace(SERVICE, group="a.slice/b c"), "process_unmanaged[0].group", "must be names of letters"),
        (replace(SERVICE, group=""), "process_unmanaged[0].group", "must be names of letters"),
        (replace(SERVICE, group="colo-online/x"), "process_unmanaged[0].group", "must not be a group of the executor"),
        (replace(SERVICE, weight_least=2), "process_unmanaged[0].weight_least", "above batch work"),
        (replace(SERVICE, cpu_most_mcpu=9), "process_unmanaged[0].cpu_most_mcpu", "must be 0 or at least 10"),
        (replace(SERVICE, memory_most_bytes=1), "process_unmanaged[0].memory_most_bytes", "must be 0 or at least"),
        (replace(SERVICE, memory_low_bytes=1), "process_unmanaged[0].memory_low_bytes", "must be 0 or at least"),
        (
            replace(SERVICE, memory_min_bytes=8 << 20),
            "process_unmanaged[0].memory_min_bytes",
            "at most memory_most_bytes",
        ),
        (replace(SERVICE, cpu_most_mcpu=1 << 60), "process_unmanaged[0].cpu_most_mcpu", "and at most"),
        (
            UnmanagedGroup(group="a.slice/*", clear_of_own_cpus=True),
            "process_unmanaged[0].clear_of_own_cpus",
            "must be set for a group without a pattern",
        ),
        (replace(SERVICE, cpus="x"), "process_unmanaged[0].cpus", "must be a list"),
        (UnmanagedGroup(group="a.slice"), "process_unmanaged[0]", "must say what is kept"),
    ],
)
def test_a_policy_without_meaning_is_refused(group: UnmanagedGroup, field: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_unmanaged([group], "colo", "process_unmanaged")
    assert (refused.value.field, rule in refused.value.rule) == (field, True)


def test_a_group_may_come_once() -> None:
    check_unmanaged([SERVICE], "colo", "process_unmanaged")
    with pytest.raises(InvalidInput, match="may come once"):
        check_unmanaged([SERVICE, SERVICE], "colo", "process_unmanaged")


class FakeSystemd:
    """One systemd with one service; `says` is what `show` prints of its properties."""

    def __init__(self) -> None:
        self.says = {"CPUWeight": "[not set]", "CPUQuotaPerSecUSec": "1min 2s 500ms", "MemoryMax": "infinity"}
        self.says |= {"AllowedCPUs": "0-1 5", "LoadState": "loaded", "ControlGroup": f"/{SERVICE.group}"}
        self.set: list[str] = []
        self.calls = 0
        self.refuses = False

    def __call__(self, words: Sequence[str]) -> str:
        self.calls += 1
        if self.refuses:
            raise CgroupError("systemctl: timed out")
        assert words[words.index("--") + 1] == "daemon.service"
        if words[0] == "show":
            return self.says[words[1].removeprefix("--property=")] + "\n"
        self.set = list(words[4:])
        return ""


def test_a_unit_of_systemd_gets_the_values_as_properties_and_its_old_ones_back(bench: Bench) -> None:
    systemd = FakeSystemd()
    bench.tier.units = SystemdUnits(systemd, bench.tier.old.note_first)
    (bench.files.root / SERVICE.group / "cpu.weight").write_text("1\n")
    tier = UnmanagedTier((SERVICE,), bench.tier.open, bench.tier.units)
    assert tier.keep().failed == ()
    assert systemd.set == ["AllowedCPUs=0-1", "CPUQuota=200%", "CPUWeight=100", f"MemoryMax={4 << 20}"]
    systemd.set, systemd.calls = [], 0
    assert tier.keep() == Drift()
    assert systemd.calls == 0, "systemd is asked only when something has changed"
    kept = UnmanagedTier((replace(SERVICE, memory_most_bytes=0),), bench.tier.open).managed()
    assert bench.tier.put_back_all_but(kept).failed == ()
    assert systemd.set == ["MemoryMax=infinity"]
    bench.start_again()
    bench.tier.units = SystemdUnits(systemd, bench.tier.old.note_first)
    seen = []
    systemd_call = systemd.__call__
    bench.tier.units._systemctl = lambda words: seen.append(list(words[4:])) or systemd_call(words)
    assert bench.tier.restore() == ()
    assert {words[0] for words in seen if words and "=" in words[0]} == {
        "CPUWeight=",
        "CPUQuota=6250%",
        "AllowedCPUs=0-1 5",
    }
    assert bench.shown() == ["1", "max 100000", "max", ""]


class SystemdWithFiles(FakeSystemd):
    """A systemd that keeps what is set in files, and reads them at a reload; `own` is what the unit's file says."""

    def __init__(self, run: Path) -> None:
        super().__init__()
        self.directory = run / "transient" / "daemon.service.d"
        self.own = {"CPUWeight": "300"}
        self.says |= self.own
        self.reloads = 0
        self.is_slow = False

    def __call__(self, words: Sequence[str]) -> str:
        if words == ["daemon-reload"]:
            self.reloads += 1
            if self.is_slow:
                raise CgroupError("systemctl daemon-reload: timed out")
            self.says |= self.own | self.kept()
            return ""
        shown = super().__call__(words)
        if words[0] == "set-property":
            self.directory.mkdir(parents=True, exist_ok=True)
            for name, _, value in (word.partition("=") for word in words[4:]):
                header = '# This is a drop-in unit file extension, created via "systemctl set-property"\n'
                (self.directory / f"50-{name}.conf").write_text(f"{header}[Service]\n{name}={value}\n")
                self.says[name] = value
        return shown

    def kept(self) -> dict[str, str]:
        texts = (path.read_text().splitlines()[-1].partition("=") for path in self.directory.glob("*.conf"))
        return {name: value for name, _, value in texts}


@pytest.mark.parametrize(
    ("set_before", "is_slow", "left", "value"),
    [
        ({}, False, {}, "300"),
        ({"CPUWeight": "7"}, False, {"CPUWeight": "7"}, "7"),
        ({"MemoryMax": "1"}, False, {"MemoryMax": "1"}, "300"),
        ({}, True, {"CPUWeight": "300"}, "300"),
    ],
    ids=["nothing was set", "the same was set", "something else was set", "no reload in time"],
)
def test_the_file_of_a_property_that_was_put_back_is_removed_and_those_of_the_operator_stay(
    tmp_path: Path, set_before: dict[str, str], is_slow: bool, left: dict[str, str], value: str
) -> None:
    systemd, old = SystemdWithFiles(tmp_path), dict[str, str]()
    for name, text in set_before.items():
        systemd(["set-property", "--runtime", "--", "daemon.service", f"{name}={text}"])
    units = SystemdUnits(systemd, old.__setitem__, str(tmp_path))
    units.keep(SERVICE.group, 2, {Knob.CPU_WEIGHT: 10_000})
    assert systemd.kept()["CPUWeight"] == "977"
    systemd.is_slow = is_slow
    ((path, before),) = old.items()
    unit, name = unit_property_at(path) or ("", "")
    units.put_back(unit, name, before)
    units.remove_files()
    assert (systemd.kept(), systemd.says["CPUWeight"], systemd.reloads) == (left, value, 1)
    assert systemd.directory.exists() is bool(left)
    units.remove_files()
    assert systemd.reloads == 1


def test_a_controller_that_the_unit_lacks_is_asked_of_systemd(bench: Bench) -> None:
    (bench.files.root / SERVICE.group / "cpuset.cpus").unlink()
    systemd = FakeSystemd()
    tier = UnmanagedTier((SERVICE,), bench.tier.open, SystemdUnits(systemd, bench.tier.old.note_first))
    assert tier.keep(observes=True).failed == (f"{SERVICE.group}: cgroup v2 has no file for cpuset-cpus there",)
    assert tier.keep().failed == ()
    assert "AllowedCPUs=0-1" in systemd.set
    systemd.says["ControlGroup"] = "/elsewhere/daemon.service"
    assert tier.keep().failed == (f"{SERVICE.group}: cgroup v2 has no file for cpuset-cpus there",)


def test_a_systemd_that_does_not_answer_is_said_and_the_values_are_written_all_the_same(bench: Bench) -> None:
    systemd = FakeSystemd()
    systemd.refuses = True
    units = SystemdUnits(systemd, bench.tier.old.note_first)
    (bench.files.root / NO_UNIT.group).mkdir()
    bench.files._fill(bench.files.root / NO_UNIT.group)
    tier = UnmanagedTier((SERVICE, NO_UNIT), bench.tier.open, units)
    drift = tier.keep()
    assert systemd.calls == 1
    assert drift.failed == (
        f"{SERVICE.group}: is written, and systemd undoes it at its next reload: systemctl: timed out",
    )
    assert bench.shown() == ["100", "200000 100000", str(4 << 20), "0-1"]
    systemd.refuses = False
    assert tier.keep() == Drift()
    assert systemd.set == ["AllowedCPUs=0-1", "CPUQuota=200%", f"MemoryMax={4 << 20}"]


@pytest.mark.parametrize(
    ("name", "shown", "text"),
    [
        ("CPUQuota", "infinity", ""),
        ("CPUQuota", "1s 234.5ms", "123.45%"),
        ("CPUQuota", "500us", "0.05%"),
        ("CPUWeight", "[not set]", ""),
        ("CPUWeight", "300", "300"),
        ("MemoryMax", "infinity", "infinity"),
    ],
)
def test_what_systemd_prints_of_a_property_is_what_sets_it(name: str, shown: str, text: str) -> None:
    assert shown_text(name, shown) == text


MIB = 1 << 20
DATABASE = UnmanagedGroup(group="system.slice/db.service", memory_low_bytes=64 * MIB, memory_min_bytes=16 * MIB)
PODS = UnmanagedGroup(group="kubepods.slice/*/pod[0-9]*.slice", memory_low_bytes=8 * MIB, weight_least=1_024)


def test_memory_of_a_group_of_others_is_protected_with_the_groups_above_it_and_all_comes_back(bench: Bench) -> None:
    bench.add("system.slice/db.service")
    before = bench.all_files()
    service = UnmanagedGroup(group=SERVICE.group, memory_low_bytes=4 * MIB)
    tier = bench.kept(DATABASE, service)
    assert tier.keep().failed == ()
    shown = [bench.protection(group) for group in (DATABASE.group, service.group, "system.slice")]
    assert shown == [(16 * MIB, 64 * MIB), (0, 4 * MIB), (16 * MIB, 68 * MIB)]
    bench.files.writes.clear()
    assert (tier.keep(), bench.files.writes) == (Drift(), [])
    (bench.files.root / "system.slice/memory.low").write_text("0\n")
    (bench.files.root / DATABASE.group / "memory.min").write_text("99999999\n")
    assert sorted(knob.path for knob in tier.keep().knobs) == [
        "system.slice/db.service/memory.min",
        "system.slice/memory.low",
    ]
    assert bench.give_back(DATABASE, service) == Drift()
    # One of them ends, the policy keeps less, and then nothing.
    shutil.rmtree(bench.files.root / service.group)
    tier.keep()
    assert bench.protection("system.slice") == (16 * MIB, 64 * MIB)
    bench.start_again()
    less = replace(DATABASE, memory_low_bytes=32 * MIB, memory_min_bytes=0)
    bench.give_back(less)
    bench.keep(less)
    assert [bench.protection(group) for group in (DATABASE.group, "system.slice")] == [(0, 32 * MIB)] * 2
    assert bench.tier.restore() == ()
    after = bench.all_files()
    assert {path: text.strip() for path, text in after.items()} == {
        path: before[path].strip() for path in before if path in after
    }


def test_systemd_has_properties_for_protected_memory(bench: Bench) -> None:
    systemd = FakeSystemd()
    systemd.says |= {"MemoryMin": "0", "MemoryLow": "infinity"}
    units = SystemdUnits(systemd, bench.tier.old.note_first)
    units.keep(SERVICE.group, 2, {Knob.MEMORY_MIN: MIB, Knob.MEMORY_LOW: UNLIMITED})
    assert systemd.set == ["MemoryLow=infinity", f"MemoryMin={MIB}"]


def test_what_protects_more_by_itself_stays(bench: Bench) -> None:
    for group, text in ((SERVICE.group, f"{8 * MIB}\n"), ("system.slice", "max\n")):
        (bench.files.root / group / "memory.low").write_text(text)
    bench.files.writes.clear()
    assert bench.keep(UnmanagedGroup(group=SERVICE.group, memory_low_bytes=4 * MIB)) == Drift()
    assert bench.files.writes == []


def test_a_group_without_the_files_is_named_and_has_the_rest_of_its_policy(bench: Bench) -> None:
    (bench.files.root / SERVICE.group / "memory.low").unlink()
    drift = bench.keep(replace(SERVICE, memory_low_bytes=MIB))
    assert drift.failed == (f"{SERVICE.group}: it has no such file; memory-low-bytes is not kept there",)
    assert bench.shown() == ["100", "200000 100000", str(4 << 20), "0-1"]


@pytest.mark.kernel
def test_cgroup_v1_protects_nothing_and_it_is_said() -> None:
    name = f"protected-{os.getpid()}.service"
    tree = CgroupTree("/sys/fs/cgroup", name)
    tree.make("")
    try:
        each = UnmanagedGroup(group=name, weight_least=2_048, memory_low_bytes=MIB)
        drift = UnmanagedTier((each,), lambda top: CgroupTree("/sys/fs/cgroup", top)).keep()
        if tree.version == 1:
            assert drift.failed == (
                f"{name}: cgroup v1 protects no memory, and its soft limit does not either; memory-low-bytes is not kept there",
            )
        else:
            assert drift.failed == ()
        assert tree.read(Knob.CPU_WEIGHT, "") in (2_048, 2_047, 2_046)
    finally:
        assert tree.remove("")


def test_a_pattern_keeps_every_group_that_it_stands_for_also_those_that_come_later(bench: Bench) -> None:
    bench.add("kubepods.slice", "kubepods.slice/burstable.slice", "kubepods.slice/burstable.slice/pod1.slice")
    first, second = (f"kubepods.slice/burstable.slice/pod{number}.slice" for number in (1, 2))
    tier = bench.kept(PODS)
    assert tier.keep().failed == ()
    assert bench.protection(first) == (0, 8 * MIB)
    assert bench.protection("kubepods.slice") == (0, 8 * MIB)
    bench.add(second, "kubepods.slice/burstable.slice/podx.slice", "kubepods.slice/burstable.slice/pod3.scope")
    (bench.files.root / second / "cpu.weight").write_text("1\n")
    assert sorted(knob.path for knob in tier.keep().knobs) == [
        "kubepods.slice/burstable.slice/memory.low",
        f"{second}/cpu.weight",
        f"{second}/memory.low",
        "kubepods.slice/memory.low",
    ]
    assert bench.protection("kubepods.slice") == (0, 16 * MIB)
    for other in ("podx.slice", "pod3.scope"):
        assert bench.protection(f"kubepods.slice/burstable.slice/{other}") == (0, 0)
    assert bench.give_back(PODS) == Drift(), "what a pattern stands for is kept"
    # A pod of the same name, with another value of its own, after the first has gone.
    shutil.rmtree(bench.files.root / second)
    bench.give_back(PODS)
    assert second not in str(bench.tier._journal.state.pre_images)
    bench.add(second)
    (bench.files.root / second / "memory.low").write_text("4096\n")
    tier.keep()
    assert bench.protection(second) == (0, 8 * MIB)
    assert bench.tier.restore() == ()
    assert [bench.protection(group)[1] for group in (first, second, "kubepods.slice")] == [0, 4096, 0]


def test_what_a_group_is_named_for_counts_before_a_pattern_and_an_earlier_pattern_before_a_later_one(
    bench: Bench,
) -> None:
    bench.add("a.slice", "a.slice/x.service", "a.slice/y.service")
    kept = [
        UnmanagedGroup(group="a.slice/?.service", memory_low_bytes=2 * MIB),
        UnmanagedGroup(group="a.slice/*", memory_low_bytes=3 * MIB),
        UnmanagedGroup(group="a.slice/x.service", memory_low_bytes=5 * MIB),
    ]
    assert bench.keep(*kept).failed == ()
    shown = [bench.protection(f"a.slice/{name}.service")[1] for name in ("x", "y")]
    assert shown == [5 * MIB, 2 * MIB]


def test_a_pattern_of_too_many_groups_changes_none_of_them_and_others_are_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colo_executor.process.unmanaged._MATCHES_MOST", 2)
    bench.add("a.slice", *(f"a.slice/{name}.service" for name in "xyz"))
    bench.files.writes.clear()
    every = UnmanagedGroup(group="a.slice/*.service", memory_low_bytes=MIB)
    drift = bench.keep(every, UnmanagedGroup(group=SERVICE.group, memory_low_bytes=MIB))
    assert drift.failed == (
        "a.slice/*.service: matches 3 groups, and 2 may be; name them more narrowly. Nothing is changed there",
    )
    assert {write.split()[0] for write in bench.files.writes} == {
        "system.slice/memory.low",
        f"{SERVICE.group}/memory.low",
    }
    # What a pattern kept before it meant too many is not given back meanwhile.
    assert "a.slice/x.service/memory.low" in bench.kept(every).managed()


def test_a_pattern_follows_no_link_and_takes_no_name_that_a_policy_could_not_write_out(
    bench: Bench, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    bench.files._fill(outside)
    bench.add("a.slice", "a.slice/.hidden", "a.slice/with space", "a.slice/real.service")
    (bench.files.root / "a.slice/link.service").symlink_to(outside)
    bench.files.writes.clear()
    assert bench.keep(UnmanagedGroup(group="a.slice/*", memory_low_bytes=MIB)).failed == ()
    assert {write.split()[0] for write in bench.files.writes} == {
        "a.slice/memory.low",
        "a.slice/real.service/memory.low",
    }
    assert (outside / "memory.low").read_text() == "0\n"


def test_cpus_of_groups_that_are_kept_clear_are_set_by_no_pattern() -> None:
    cleared = UnmanagedGroup(group="kubepods.slice/burstable.slice", clear_of_own_cpus=True)
    check_unmanaged([cleared, replace(PODS, cpus="")], "colo", "process_unmanaged")
    with pytest.raises(InvalidInput, match="must not be set within kubepods.slice/burstable.slice"):
        check_unmanaged([cleared, replace(PODS, cpus="0-1")], "colo", "process_unmanaged")
