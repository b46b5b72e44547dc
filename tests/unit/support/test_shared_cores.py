"""Threads of an emulated core on one CPU of the host: which, and that they are bound."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from msgspec.structs import replace

from tests.kernel.lab.shared_cores import SharedCores, host_cpu_of
from tests.kernel.lab.variants import Variant, variant_named

TWO_CORES = replace(variant_named("numa2"), offline=(*range(2, 8), *range(10, 16)))
NAMED = 'import sys; open("/proc/self/comm", "w").write("CPU 8/TCG"); print("named", flush=True); sys.stdin.read()'


@pytest.mark.parametrize(
    ("variant", "host", "says"),
    [
        (TWO_CORES, (0, 1), {0: 0, 1: 0, 8: 1, 9: 1}),
        (TWO_CORES, (5,), {0: 5, 1: 5, 8: 5, 9: 5}),
        (TWO_CORES, (0, 1, 2, 3), {0: 0, 1: 0, 8: 2, 9: 2}),
        (variant_named("numa2"), (0, 1), {cpu: cpu // 8 for cpu in range(16)}),
    ],
    ids=["a CPU for each core", "one CPU", "more CPUs than cores", "more cores than CPUs: by zone"],
)
def test_threads_of_a_core_have_one_cpu(variant: Variant, host: tuple[int, ...], says: dict[int, int]) -> None:
    assert host_cpu_of(variant, host) == says


def test_a_thread_of_the_emulator_is_bound_by_its_name() -> None:
    command = [sys.executable, "-c", NAMED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        SharedCores(process.pid, TWO_CORES).look()
        host = sorted(os.sched_getaffinity(0))
        assert os.sched_getaffinity(process.pid) == {host_cpu_of(TWO_CORES, host)[8]}
