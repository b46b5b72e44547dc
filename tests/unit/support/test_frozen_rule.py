"""When the kernel lab takes a machine for frozen: a stall that its kernel reports, and silence after it."""

from __future__ import annotations

import pytest

from tests.kernel.lab.frozen import FrozenRule, stalls_in

STALL = "[  100.1] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n"


@pytest.mark.parametrize(
    ("console", "count"),
    [
        ("", 0),
        (STALL + "[  100.2] rcu: \t12-...!: (3 ticks this GP) idle=ad5c/1/0x4000000000000000\n", 1),
        (STALL + "[  163.1] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n", 2),
        ("rcu: INFO: rcu_preempt self-detected stall on CPU\n", 1),
        ("rcu: INFO: rcu_sched detected stalls on CPUs/tasks:\n", 1),
        ("rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 3-...D } 21 jiffies\n", 1),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [python:99]\n", 1),
        (STALL + "rcu: INFO: Stall ended before state dump start\n", 0),
        ("INFO: task sh:17 blocked for more than 120 seconds.\n", 0),
        ("rcu: rcu_preempt kthread starved for 21006 jiffies! g7437 f0x2\n", 0),
        ("rcu: Hierarchical RCU implementation.\n", 0),
    ],
    ids=[
        "nothing said",
        "stall",
        "reported again",
        "by the CPU itself",
        "another flavour",
        "expedited",
        "soft lockup",
        "over at once",
        "hung task",
        "what follows a report",
        "booting",
    ],
)
def test_reports_of_stalls_are_counted(console: str, count: int) -> None:
    assert stalls_in(console) == count


@pytest.mark.parametrize(
    ("looks", "frozen_at_s"),
    [
        # Seconds, stalls reported so far, bytes heard so far.
        ([(0, 0, 3), (30, 0, 3), (300, 0, 3)], None),
        ([(0, 0, 3), (10, 1, 3), (29, 1, 3), (30, 1, 3)], 30),
        ([(0, 0, 3), (10, 1, 3), (25, 1, 4), (44, 1, 4), (300, 1, 4)], None),
        ([(0, 0, 3), (10, 1, 3), (25, 1, 4), (50, 2, 4), (69, 2, 4), (70, 2, 4)], 70),
        ([(0, 0, 3), (10, 1, 4), (29, 1, 4), (30, 1, 4)], 30),
        ([(0, 0, 3), (10, 1, 3), (20, 2, 3), (29, 2, 3), (30, 2, 3)], 30),
        ([(0, 0, 3), (10, 1, 3), (11, 0, 3), (300, 0, 3)], None),
        ([(0, 0, 3), (10, 1, 3), (11, 0, 3), (50, 1, 3), (69, 1, 3), (70, 1, 3)], 70),
        ([(0, 0, 3), (10, 1, 3), (15, 1, 4), (16, 0, 4), (50, 1, 4), (69, 1, 4), (70, 1, 4)], 70),
    ],
    ids=[
        "silence alone",
        "stall and silence",
        "a stall that passed",
        "a stall that passed and one that stayed",
        "stall and word between two looks",
        "a stall that is reported again",
        "a report that was taken back",
        "a report that was taken back and one that stayed",
        "a report that was taken back after it had passed and one that stayed",
    ],
)
def test_frozen_is_who_reports_a_stall_and_then_says_nothing(
    looks: list[tuple[float, int, int]], frozen_at_s: float | None
) -> None:
    rule = FrozenRule(20.0)
    found = [now_s for now_s, stalls, received in looks if rule.look(now_s, stalls=stalls, received=received)]
    assert found == ([] if frozen_at_s is None else [frozen_at_s])
