"""Core-scheduling cookies: who gets which, over a kernel that is a table, and over this machine's."""

import errno
import os
import subprocess

import pytest

from colo_common.adapters import core_scheduling
from colo_executor.process.core_cookies import CoreCookies


class Kernel:
    """Cookies by process; `exited` have ended."""

    def __init__(self, lacks: str = "", exited: tuple[int, ...] = (), refuses: int = 0) -> None:
        self.cookies: dict[int, int] = {}
        self._lacks, self._exited, self._refuses = lacks, exited, refuses
        self._made = 0

    def lacking(self) -> str:
        return self._lacks

    def cookie_of(self, pid: int) -> int:
        self._there(pid)
        return self.cookies.get(pid, 0)

    def give_own(self, pid: int) -> None:
        if self._refuses:
            raise OSError(self._refuses, os.strerror(self._refuses))
        self._made += 1
        self.cookies[pid] = self._made

    def give_same(self, pid: int, like: int) -> None:
        self._there(like)
        self.cookies[pid] = self.cookies[like]

    def _there(self, pid: int) -> None:
        if pid in self._exited:
            raise ProcessLookupError(errno.ESRCH, "exited")


def test_each_replica_has_a_cookie_of_its_own():
    cookies = CoreCookies("replica", kernel := Kernel())
    assert [cookies.give(pid, (1,)) for pid in (1, 2)] == ["", ""]
    assert kernel.cookies == {1: 1, 2: 2}


def test_replicas_of_a_tenant_share_one_also_when_the_first_has_ended_or_began_without_one():
    cookies = CoreCookies("tenant", kernel := Kernel(exited=(7,)))
    given = [cookies.give(pid, alike) for pid, alike in ((1, ()), (2, (7, 8, 1)), (3, (1, 2)), (4, ()), (5, (7,)))]
    assert given == [""] * 5
    assert kernel.cookies == {1: 1, 2: 1, 3: 1, 4: 2, 5: 3}


def test_who_has_none_is_counted_but_for_those_that_ended():
    kernel = Kernel(exited=(3,))
    cookies = CoreCookies("replica", kernel)
    assert cookies.give(1, ()) == ""
    assert cookies.counts((1, 2, 3)) == (1, 1)
    assert CoreCookies("no", kernel).counts((1, 2)) == (0, 0)
    assert CoreCookies("tenant", Kernel(lacks="no SMT")).counts((1, 2)) == (0, 2)


@pytest.mark.parametrize(
    ("wanted", "kernel", "refusal", "given"),
    [
        ("no", Kernel(lacks="no SMT"), "", ""),
        ("tenant", Kernel(lacks="no SMT"), "no SMT", ""),
        ("replica", Kernel(refuses=errno.EPERM), "", "process 1: Operation not permitted"),
    ],
)
def test_what_is_not_wanted_absent_or_refused_ends_nothing(wanted, kernel, refusal, given):
    cookies = CoreCookies(wanted, kernel)
    assert cookies.refusal == refusal
    assert cookies.give(1, ()) == given
    assert kernel.cookies == {}


def test_this_kernel_gives_cookies_or_says_why_it_has_none():
    lacks = core_scheduling.lacking()
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    try:
        first, second, third = (each.pid for each in sleepers)
        cookies = CoreCookies("tenant")
        assert cookies.refusal == lacks
        given = [cookies.give(pid, alike) for pid, alike in ((first, ()), (second, (first,)), (third, ()))]
        assert given == ["", "", ""]
        if lacks:
            assert "CONFIG_SCHED_CORE" in lacks or "hardware thread" in lacks or "refuses" in lacks
            with pytest.raises(OSError, match="."):
                core_scheduling.give_own(first)
        else:
            shown = [core_scheduling.cookie_of(pid) for pid in (first, second, third)]
            assert shown[0] == shown[1] != shown[2]
            assert all(shown)
            assert core_scheduling.cookie_of(0) == 0, "the executor itself keeps none"
    finally:
        for each in sleepers:
            each.kill()
            each.wait()
