"""The table of a node's workloads, as `colo get node` and `colo node show` print it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from colo_cli.workload_rows import class_lines, print_workloads
from colo_common.events.node import ClassUsage, WorkloadDetail
from colo_common.model.qos import QosClass
from tests.support.builders import GIB, a_batch_workload, a_latency, an_online_workload


def test_a_workload_shows_who_fights_it_and_what_it_says_of_itself(capsys: pytest.CaptureFixture[str]) -> None:
    latency = replace(
        a_latency(15, 60), slowdown_pct=150, is_own_baseline=True, slo_milli=120_000, slo_revision=3, slo_since_ms=5_000
    )
    web = replace(
        an_online_workload("web", stall_pct=12, business=latency),
        detail=WorkloadDetail(span_ms=2_000, involuntary_switches=5, remote_pct=40),
    )
    batch = replace(a_batch_workload("job/main/0", mcpu=500, gib=1), workload="job/main/0#1")
    print_workloads((web, batch), system=(250, 2 * GIB), now_ms=65_000)
    assert capsys.readouterr().out.splitlines() == [
        "WORKLOAD      CLASS   CPU  MEM  STALL  PREEMPT/S  REMOTE  METRIC      SLOWDOWN   SLO  SLO BROKEN",
        "web           LS        1    0    12%        2.5     40%  p99_ms=150    1.50x*  120+         25%",
        "job/main/0#1  BE      0.5  1Gi      -          -       -  -                  -     -           -",
        "system        -      0.25  2Gi      -          -       -  -                  -     -           -",
        "* against the median of its own last half hour: no baseline is declared",
        "+ by revision 3 of the policy, in force on this node since 60s",
    ]
    print_workloads((batch,))
    assert capsys.readouterr().out.splitlines()[0].split() == ["WORKLOAD", "CLASS", "CPU", "MEM"]


def test_a_class_says_what_batch_work_gets_of_what_it_wants() -> None:
    be = ClassUsage(
        qos=QosClass.BE, workloads=2, cpu_used_mcpu=500, memory_used_bytes=0, stall_pct=90, satisfaction_pct=10
    )
    lsr = ClassUsage(qos=QosClass.LSR, workloads=1, cpu_used_mcpu=400, memory_used_bytes=0)
    assert class_lines((lsr, be)) == [
        "class LSR: 1 workload, 0.4 CPU, stall not known",
        "class BE: 2 workloads, 0.5 CPU, stall 90%, gets 10% of the CPU time that it wants",
    ]


def test_a_host_application_is_marked_with_what_declared_it(capsys: pytest.CaptureFixture[str]) -> None:
    own = an_online_workload("nginx", stall_pct=None)
    print_workloads((replace(own, host_revision=4, host_since_ms=5_000),), now_ms=65_000)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("nginx # ")
    assert lines[-1] == "# host application, by revision 4 of the policy, since 60s"
    print_workloads((replace(own, host_revision=0),), now_ms=65_000)
    assert capsys.readouterr().out.splitlines()[-1] == "# host application, by its agent's setting"
