"""The kernel of this machine tells of pressure by itself, at once, beside whoever reads the same file."""

from __future__ import annotations

import os
import queue
import subprocess
import sys

import pytest

from colo_collector.kernel_triggers import KernelTriggers, may_set_triggers


def _has_pressure() -> bool:
    """Whether the kernel answers: with psi=0 the file is there and cannot be opened."""
    try:
        with open("/proc/pressure/cpu", encoding="ascii") as file:
            return file.read(4) == "some"
    except OSError:
        return False


pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(
        not _has_pressure() or not may_set_triggers(),
        reason="the kernel has no pressure files, or this process may not set triggers",
    ),
]

_BUSY = "while True: pass"


def test_a_crowded_machine_is_told_although_its_file_is_read_all_the_time() -> None:
    named: queue.SimpleQueue[tuple[str, ...]] = queue.SimpleQueue()
    triggers = KernelTriggers(
        "/", named.put, always={"pressure cpu_some": ("/proc/pressure/cpu", "some 20000 1000000")}
    )
    crowd = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(2 * len(os.sched_getaffinity(0)) + 1)]
    try:
        triggers.watch({})
        assert triggers.watched == ("pressure cpu_some",)
        names: tuple[str, ...] = ()
        for _ in range(1_000):
            with open("/proc/pressure/cpu", encoding="ascii") as file:
                file.read()
            try:
                names = named.get(timeout=0.06)
                break
            except queue.Empty:
                continue
        assert names == ("pressure cpu_some",)
    finally:
        for one in crowd:
            one.kill()
            one.wait()
        triggers.close()


def test_what_the_kernel_refuses_is_left_out_and_files_that_are_gone_are_dropped() -> None:
    triggers = KernelTriggers("/", lambda names: None)
    try:
        triggers.watch({"pressure a": ("/proc/pressure/cpu", "nonsense"), "memory b": ("/proc/no-such-file", "")})
        assert triggers.watched == ()
        triggers.watch({"pressure cpu": ("/proc/pressure/cpu", "some 900000 1000000")})
        assert triggers.watched == ("pressure cpu",)
        triggers.watch({})
        assert triggers.watched == ()
    finally:
        triggers.close()
