"""Groups of others that replicas are attached to: whose word counts, what is measured, and under which name."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from colo_collector.attached_groups import SetAttachedGroups
from colo_collector.business import BusinessWatch
from colo_collector.core import CollectorCore
from colo_collector.policy import CollectorPolicy
from colo_common.events.enforcement import AttachedGroup, AttachedGroupsChanged
from colo_common.model.qos import QosClass
from tests.support.machine_tree import FakeWorkload
from tests.unit.collector.test_business import WEB_RULE
from tests.unit.collector.test_machine import Bench, sample

WEB = AttachedGroup(replica="shop/main/0", attempt=1, qos=QosClass.LSR, group="web")


def test_the_executor_of_this_node_is_believed_and_the_same_word_changes_nothing() -> None:
    core = CollectorCore("n1", CollectorPolicy())
    reported = AttachedGroupsChanged(node="n1", groups=(WEB,))
    assert core.handle(replace(reported, node="n2"), 1) == []
    assert core.handle(reported, 1) == [SetAttachedGroups(groups=(WEB,))]
    assert core.handle(reported, 2) == []
    assert core.handle(replace(reported, groups=()), 3) == [SetAttachedGroups()]


def test_a_listed_group_is_measured_as_the_replica_with_the_metric_of_its_listed_name(tmp_path: Path) -> None:
    bench = Bench(tmp_path, online=("web=/web:LS",), workloads=(FakeWorkload("web", "/web"),))
    bench.observe()
    bench.machine.set_attached_groups(SetAttachedGroups(groups=(WEB,)))
    watch = BusinessWatch((WEB_RULE,))
    watch.take("web", (30.0,), 500)
    bench.machine.set_business(watch.metrics(500), 500)
    bench.second()
    observation = bench.second()
    (one,) = sample(observation).workloads
    assert (one.workload, one.replica, one.attempt, one.qos) == ("shop/main/0#1", "shop/main/0", 1, QosClass.LSR)
    assert one.business is not None
    assert observation.faults == ()
    bench.machine.set_attached_groups(SetAttachedGroups())
    bench.second()
    assert [each.workload for each in sample(bench.second()).workloads] == ["web"]


def test_a_group_of_colo_or_one_that_can_be_none_is_left_out_and_reported(tmp_path: Path) -> None:
    bench = Bench(tmp_path, workloads=(FakeWorkload("web", "/web"),))
    bench.observe()
    groups = (WEB, *(replace(WEB, attempt=2, group=path) for path in ("colo/batch/j.main.0@1", "../web", "web/inner")))
    bench.machine.set_attached_groups(SetAttachedGroups(groups=groups))
    bench.second()
    observation = bench.second()
    assert [one.workload for one in sample(observation).workloads] == ["shop/main/0#1"]
    assert [fault.partition(": ")[0] for fault in observation.faults] == ["shop/main/0#2"] * 3
