"""The waits of groups by their threads, over files that look like /proc and the cpu controller's mount."""

from __future__ import annotations

import gc
import os
from itertools import pairwise
from pathlib import Path

import pytest

from colo_executor.process.thread_waits import ThreadWaits, has_thread_waits

MS = 1_000_000


class Machine:
    """The mount of the cpu controller and a /proc, each with files of its own."""

    def __init__(self, directory: Path, version: int = 1) -> None:
        self.cpu, self.proc, self.version = directory / "cpu", directory / "proc", version
        self._members: dict[str, set[int]] = {}
        self.cpu.mkdir()

    def thread(self, group: str, number: int, run_ms: int = 0, wait_ms: int = 0) -> None:
        """A thread in the group, and what it ran and waited so far."""
        path = self.proc / str(number)
        path.mkdir(parents=True, exist_ok=True)
        (path / "schedstat").write_text(f"{run_ms * MS} {wait_ms * MS} 7\n")
        self._members.setdefault(group, set()).add(number)
        self._list(group)

    def end(self, group: str, number: int) -> None:
        """The thread ends: its open file shows nothing any more, and the group lists it no more."""
        (self.proc / str(number) / "schedstat").write_text("")
        (self.proc / str(number) / "schedstat").unlink()
        self._members[group].remove(number)
        self._list(group)

    def move(self, number: int, group: str, to: str) -> None:
        """The thread goes on in another group."""
        self._members[group].remove(number)
        self._members[to].add(number)
        self._list(group)
        self._list(to)

    def waits(self, cpus: int = 1) -> ThreadWaits:
        """The reader of a machine whose first thread may use so many CPUs; the others have ended when they are asked."""

        def cpus_of(number: int) -> int:
            if number != 10:
                raise ProcessLookupError(number)
            return cpus

        return ThreadWaits(str(self.cpu), self.version, proc_root=str(self.proc), cpus_of=cpus_of)

    def _list(self, group: str) -> None:
        (self.cpu / group).mkdir(parents=True, exist_ok=True)
        name = "tasks" if self.version == 1 else "cgroup.threads"
        # 0 stands for a thread outside this PID namespace.
        (self.cpu / group / name).write_text("".join(f"{number}\n" for number in (0, *sorted(self._members[group]))))


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def machine(tmp_path: Path, request: pytest.FixtureRequest) -> Machine:
    return Machine(tmp_path, request.param)


def waited_ms(waits: ThreadWaits, at_ms: int) -> dict[str, float]:
    return {name: us / 1_000 for name, us in waits.read(at_ms)}


def test_the_waits_of_threads_add_up_for_the_group_and_those_in_it(machine: Machine) -> None:
    machine.thread("web", 10, 5_000, 9_000)
    machine.thread("web/pod", 11, 100, 100)
    machine.thread("db", 12, 0, 50)
    waits = machine.waits()
    waits.watch(["web", "db"], 0)
    assert waited_ms(waits, 0) == {"web": 0, "db": 0}, "what was before is nobody's"
    machine.thread("web", 10, 5_010, 9_020)
    machine.thread("web/pod", 11, 110, 130)
    assert waited_ms(waits, 100) == {"web": 50, "db": 0}
    assert waited_ms(waits, 200) == {"web": 50, "db": 0}
    waits.close()


@pytest.mark.parametrize(("cpus", "waited"), [(1, 40), (2, 20), (4, 20)])
def test_on_several_cpus_it_is_the_mean_of_those_that_the_threads_may_use(
    machine: Machine, cpus: int, waited: int
) -> None:
    for number in (10, 11):
        machine.thread("web", number)
    waits = machine.waits(cpus)
    waits.watch(["web"], 0)
    for number in (10, 11):
        machine.thread("web", number, 20, 20)
    assert waited_ms(waits, 100) == {"web": waited}


def test_threads_that_come_and_go_change_no_sum(machine: Machine) -> None:
    machine.thread("web", 10, 1_000, 1_000)
    machine.thread("web", 11, 1_000, 1_000)
    waits = machine.waits()
    waits.watch(["web"], 0)
    machine.thread("web", 10, 1_010, 1_030)
    machine.end("web", 11)
    machine.thread("web", 12, 70_000, 90_000)
    assert waited_ms(waits, 100) == {"web": 30}
    waits.watch(["web"], 1_000)
    assert waited_ms(waits, 1_000) == {"web": 30}
    machine.thread("web", 12, 70_005, 90_010)
    assert waited_ms(waits, 1_100) == {"web": 40}
    # Its number is given to a thread that has waited less than the old one.
    machine.end("web", 12)
    machine.thread("web", 12, 1, 1)
    waits.watch(["web"], 2_000)
    machine.thread("web", 12, 2, 4)
    assert waited_ms(waits, 2_100) == {"web": 43}
    machine.thread("web", 12, 1, 1)
    assert waited_ms(waits, 2_200) == {"web": 43}, "a counter that falls takes nothing away"


def test_a_thread_that_moves_to_another_group_brings_nothing_along(machine: Machine) -> None:
    machine.thread("web", 10, 1_000, 1_000)
    machine.thread("db", 11, 0, 0)
    waits = machine.waits()
    waits.watch(["web", "db"], 0)
    machine.move(10, "web", "db")
    waits.watch(["web", "db"], 1_000)
    machine.thread("db", 10, 1_000, 1_020)
    assert waited_ms(waits, 1_100) == {"web": 0, "db": 20}


def test_a_clock_that_steps_back_counts_nothing(machine: Machine) -> None:
    machine.thread("web", 10)
    waits = machine.waits()
    waits.watch(["web"], 5_000)
    machine.thread("web", 10, 10, 10)
    assert waited_ms(waits, 1_000) == {"web": 0}
    machine.thread("web", 10, 20, 25)
    assert waited_ms(waits, 1_100) == {"web": 15}


def test_it_tells_how_much_of_the_cpu_time_the_known_threads_ran(machine: Machine) -> None:
    machine.thread("web", 10, 700_000)
    waits = machine.waits()
    assert waits.ran_ns("web") == 0, "a group that is not watched"
    waits.watch(["web"], 0)
    assert waits.ran_ns("web") is None, "nothing can be told yet"
    machine.thread("web", 10, 700_300)
    machine.thread("web", 11, 200)
    machine.thread("web", 12, 900_000)
    waits.watch(["web"], 1_000)
    assert waits.ran_ns("web") == (300 + 200 + 1_000) * MS, "no thread ran for longer than the time that passed"
    waits.watch(["web"], 2_000)
    assert waits.ran_ns("web") == 0


def test_of_a_crowded_group_the_threads_that_run_are_found_and_kept(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for number in range(1, 301):
        machine.thread("web", number)
    open_before = len(os.listdir("/proc/self/fd"))
    waits = machine.waits()
    run_ms = 0
    for turn in range(8):
        waits.watch(["web"], turn * 1_000)
        run_ms += 100
        for number in (290, 295):
            machine.thread("web", number, run_ms, run_ms)
    waits.watch(["web"], 8_000)
    assert waits.ran_ns("web") == 200 * MS
    assert len(os.listdir("/proc/self/fd")) - open_before <= 128
    before = waited_ms(waits, 8_000)["web"]
    for number in (290, 295):
        machine.thread("web", number, run_ms, run_ms + 10)
    assert waited_ms(waits, 8_100)["web"] - before == 20


def test_sixty_four_groups_and_512_threads_are_read_and_their_files_closed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    names = [f"g{number:02}" for number in range(70)]
    for place, name in enumerate(names):
        for number in range(9):
            machine.thread(name, 1 + place * 10 + number)
    open_before = len(os.listdir("/proc/self/fd"))
    waits = machine.waits()
    for second in range(5):
        waits.watch(names, second * 1_000)
    assert [name for name, _ in waits.read(5_000)] == names[:64]
    assert len(os.listdir("/proc/self/fd")) - open_before == 512
    waits.watch(names[:1], 5_000)
    waits.watch(names[:2], 6_000)
    assert len(os.listdir("/proc/self/fd")) - open_before == 18
    del waits
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_files_are_opened_little_by_little_and_nobody_is_judged_before_or_waits_for_ever(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    names = ["a", "b", "c", "d"]
    for place, name in enumerate(names):
        for number in range(120):
            machine.thread(name, 1 + place * 200 + number)
    open_before = len(os.listdir("/proc/self/fd"))
    waits = machine.waits()
    opened, judged = [], []
    for second in range(6):
        waits.watch(names, second * 1_000)
        opened.append(len(os.listdir("/proc/self/fd")) - open_before)
        judged.append([name for name in names if waits.ran_ns(name) is not None])
    assert opened == [128, 256, 384, 480, 480, 480]
    assert judged[0] == []
    assert judged[-1] == names
    assert all(set(before) <= set(after) for before, after in pairwise(judged))


def test_with_many_threads_a_reading_leaves_groups_to_the_next_and_loses_no_wait(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    names = ["a", "b", "c", "d", "e"]
    for place, name in enumerate(names):
        for number in range(100):
            machine.thread(name, 1 + place * 100 + number)
    waits = machine.waits()
    for second in range(6):
        waits.watch(names, second * 1_000)
    for place in range(len(names)):
        machine.thread(names[place], 1 + place * 100, 10, 10)
    first, second = waited_ms(waits, 5_100), waited_ms(waits, 5_200)
    assert sorted(first.values()) == [0, 0, 10, 10, 10]
    assert second == dict.fromkeys(names, 10)


@pytest.mark.parametrize(
    ("text", "is_shown"), [("1 2 3\n", True), ("0 0 0\n", False), ("", False), ("many\n", False), (None, False)]
)
def test_a_kernel_without_the_numbers_shows_zeros_or_no_file(tmp_path: Path, text: str | None, is_shown: bool) -> None:
    (tmp_path / "self").mkdir()
    if text is not None:
        (tmp_path / "self/schedstat").write_text(text)
    assert has_thread_waits(str(tmp_path)) is is_shown
