"""A machine is quiet when it was so for several windows in a row, and one that never is fails with what was seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.quiet import BusyShare, CpuTime, NeverQuiet, cpu_time, wait_until_quiet


class Machine:
    """A clock and the counters of one CPU with 100 ticks a second."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.busy = 0.0

    def read(self) -> CpuTime:
        return CpuTime(busy=round(self.busy), total=round(100 * self.now_s))

    def goes_on(self, span_s: float, share: float) -> None:
        self.now_s += span_s
        self.busy += 100 * span_s * share


def quiet_after(*windows: float) -> list[bool]:
    """What each look says at the end of a window of a second with this share."""
    machine = Machine()
    share = BusyShare(0.5, window_s=1.0, read=machine.read, now_s=lambda: machine.now_s)
    reported = []
    for window in windows:
        machine.goes_on(1.0, window)
        reported.append(share.look())
    return reported


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ((0.1, 0.1, 0.1), [False, False, True]),
        ((0.5, 0.5, 0.5), [False, False, True]),
        ((1.0, 1.0, 1.0, 1.0), [False] * 4),
        ((0.1, 0.1, 1.0, 0.1, 0.1, 0.1), [False] * 5 + [True]),
    ],
    ids=["idle", "at the limit", "busy", "a pause between two processes"],
)
def test_three_windows_in_a_row_must_be_quiet(windows: tuple[float, ...], expected: list[bool]) -> None:
    assert quiet_after(*windows) == expected


def test_a_window_that_is_not_over_says_nothing_new() -> None:
    machine = Machine()
    share = BusyShare(0.5, window_s=1.0, read=machine.read, now_s=lambda: machine.now_s)
    for _ in range(20):
        machine.goes_on(0.04, 0.0)
        assert not share.look()
    assert share.shares == []


def test_waiting_for_a_disk_is_idle_and_what_the_hypervisor_takes_is_busy(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 1 20 300 40 2 3 50 7 8\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    assert cpu_time(stat) == CpuTime(busy=86, total=426)


def test_this_machine_counts_its_cpu_time() -> None:
    assert 0 < cpu_time().busy < cpu_time().total


def test_a_machine_that_is_never_quiet_fails_with_what_was_seen() -> None:
    with pytest.raises(NeverQuiet, match=r"other work keeps this machine busy: .* at most -100 % may be"):
        wait_until_quiet(-1.0, limit_s=0.01)
