"""Which nodes may take a workload at all."""

import pytest
from msgspec import structs

from colo_common.model.constraints import Taint, Toleration
from colo_common.model.cpuset import CpuSet
from colo_common.model.freshness import Freshness
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import NodeRules
from colo_common.model.node_selector import Operator, Requirement
from colo_common.model.qos import QosClass
from colo_scheduler.eligibility.colocation import (
    NO_LIMIT,
    ColocationRule,
    check_rules,
    offline_limit,
    rule_of,
    takes_offline,
)
from colo_scheduler.eligibility.selector import LABEL_KEYS_MAX, LabelColumns, Selector, selects
from colo_scheduler.eligibility.standing import ALL_CLASSES, may_grow, served_bits, serves
from colo_scheduler.eligibility.taints import TAINTS_MAX, TaintColumn, refusing_taint, soft_taints
from colo_scheduler.eligibility.withheld import available_cpus, withheld_amounts, withheld_cpus, zone_capacity_mcpu

LABELS = {"disk": "ssd", "cores": "64", "empty": ""}


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        ("disk", "In", ("hdd", "ssd"), True),
        ("disk", "In", ("hdd",), False),
        ("gpu", "In", ("",), False),
        ("empty", "In", ("",), True),
        ("disk", "NotIn", ("ssd",), False),
        ("gpu", "NotIn", ("a",), True),
        ("disk", "Exists", (), True),
        ("gpu", "Exists", (), False),
        ("gpu", "DoesNotExist", (), True),
        ("disk", "DoesNotExist", (), False),
        ("cores", "Gt", ("63",), True),
        ("cores", "Gt", ("64",), False),
        ("cores", "Lt", ("65",), True),
        ("cores", "Lt", ("-1",), False),
        ("disk", "Gt", ("1",), False),
        ("gpu", "Lt", ("1",), False),
    ],
)
def test_labels_are_compared_as_node_affinity_does(
    key: str, operator: str, values: tuple[str, ...], expected: bool
) -> None:
    selector = Selector(requirements=(Requirement(key=key, operator=Operator(operator), values=values),))
    selector.validate()
    assert selects(selector, LABELS) is expected


def test_all_of_a_selector_must_hold_and_an_empty_one_selects_everything() -> None:
    assert selects(Selector(), {})
    assert selects(Selector(labels={"disk": "ssd"}), LABELS)
    other = Requirement(key="gpu", operator=Operator.EXISTS)
    assert not selects(Selector(labels={"disk": "ssd"}, requirements=(other,)), LABELS)


@pytest.mark.parametrize(
    ("requirement", "field"),
    [
        (Requirement(key="", operator=Operator.EXISTS), "selector.requirements[0].key"),
        (Requirement(key="a", operator=Operator.IN), "selector.requirements[0].values"),
        (Requirement(key="a", operator=Operator.EXISTS, values=("b",)), "selector.requirements[0].values"),
        (Requirement(key="a", operator=Operator.GT, values=("b",)), "selector.requirements[0].values"),
        (Requirement(key="a", operator=Operator.LT, values=("1", "2")), "selector.requirements[0].values"),
    ],
)
def test_a_requirement_that_makes_no_sense_is_named(requirement: Requirement, field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        Selector(requirements=(requirement,)).validate()
    assert refusal.value.field == field


def test_labels_that_a_node_lost_select_it_no_more() -> None:
    columns = LabelColumns(size=1)
    columns.write(0, {"a": "1"})
    columns.write(2, {"a": "1", "b": "2"})
    assert columns.selected(Selector(labels={"a": "1"}), 4).tolist() == [True, False, True, False]
    columns.write(2, {"b": "2"})
    assert columns.selected(Selector(labels={"a": "1"}), 4).tolist() == [True, False, False, False]
    absent = Selector(requirements=(Requirement(key="a", operator=Operator.DOES_NOT_EXIST),))
    assert columns.selected(absent, 4).tolist() == [False, True, True, True]


def test_more_label_keys_than_are_kept_are_refused_and_change_nothing() -> None:
    columns = LabelColumns()
    columns.write(0, {f"k{number}": "" for number in range(LABEL_KEYS_MAX)})
    with pytest.raises(InvalidInput):
        columns.write(1, {"k0": "", "one-more": ""})
    assert columns.selected(Selector(labels={"k0": ""}), 2).tolist() == [True, False]


HARD = Taint(key="dedicated", value="db", effect="NoSchedule")
NOW = Taint(key="broken", effect="NoExecute")
SOFT = Taint(key="slow", effect="PreferNoSchedule")


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ((), HARD),
        ((Toleration(key="dedicated", value="db"),), NOW),
        ((Toleration(key="dedicated", value="web"),), HARD),
        ((Toleration(key="dedicated", value=""),), HARD),
        ((Toleration(key="dedicated", effect="NoExecute"),), HARD),
        ((Toleration(key="dedicated"), Toleration(key="broken", value="")), None),
        ((Toleration(),), None),
        ((Toleration(effect="NoSchedule"),), NOW),
        ((Toleration(value="db"),), NOW),
    ],
)
def test_a_taint_refuses_what_does_not_tolerate_it(tolerations: tuple[Toleration, ...], expected: Taint | None) -> None:
    assert refusing_taint((SOFT, HARD, NOW), tolerations) == expected
    column = TaintColumn(size=1)
    column.write(1, (SOFT, HARD, NOW))
    assert column.tolerated(tolerations, 3).tolist() == [True, expected is None, True]


def test_a_soft_taint_only_counts() -> None:
    assert refusing_taint((SOFT,), ()) is None
    assert soft_taints((SOFT, HARD), ()) == 1
    assert soft_taints((SOFT, HARD), (Toleration(key="slow"),)) == 0
    column = TaintColumn()
    column.write(0, (SOFT, HARD))
    assert column.soft((), 2).tolist() == [1, 0]


def test_more_taints_than_are_kept_are_refused() -> None:
    with pytest.raises(InvalidInput):
        TaintColumn().write(0, tuple(Taint(key=f"k{number}") for number in range(TAINTS_MAX + 1)))


RULES = (
    ColocationRule(selector=Selector(labels={"workload.type": "mixed"}), offline_max=2, reserved_cpu_mcpu=2000),
    ColocationRule(selector=Selector(labels={"critical": "true"}), is_enabled=False),
)


def test_offline_work_comes_while_the_node_holds_fewer_than_its_rule_says() -> None:
    mixed = rule_of({"workload.type": "mixed"}, RULES)
    assert mixed.reserved_cpu_mcpu == 2000
    assert [takes_offline(QosClass.BE, held, mixed.offline_limit) for held in (0, 1, 2, 3)] == [
        True,
        True,
        False,
        False,
    ]
    assert takes_offline(QosClass.LS, 99, mixed.offline_limit)


def test_a_node_that_is_not_shared_takes_no_offline_work_and_the_last_rule_counts() -> None:
    rule = rule_of({"workload.type": "mixed", "critical": "true"}, RULES)
    assert not takes_offline(QosClass.BE, 0, rule.offline_limit)
    assert takes_offline(QosClass.LSR, 0, rule.offline_limit)


def test_a_node_without_a_rule_is_open() -> None:
    assert takes_offline(QosClass.BE, 10_000, rule_of({}, RULES).offline_limit)


def test_a_colocation_rule_that_makes_no_sense_is_named() -> None:
    check_rules(RULES)
    for rule, field in (
        (ColocationRule(offline_max=-1), "colocation[0].offline_max"),
        (ColocationRule(reserved_memory_bytes=-1), "colocation[0].reserved_memory_bytes"),
    ):
        with pytest.raises(InvalidInput) as refusal:
            check_rules((rule,))
        assert refusal.value.field == field


def test_only_a_fresh_node_whose_facts_are_young_may_grow() -> None:
    assert may_grow(Freshness.FRESH, 0, 100, 100)
    assert not may_grow(Freshness.FRESH, 0, 101, 100)
    assert may_grow(Freshness.FRESH, 0, 10**9, 0)
    for freshness in set(Freshness) - {Freshness.FRESH}:
        assert not may_grow(freshness, 0, 0, 0)


def test_a_node_serves_the_classes_in_its_set() -> None:
    served = served_bits((QosClass.BE, QosClass.LS))
    assert [qos for qos in QosClass if serves(served, qos)] == [QosClass.LS, QosClass.BE]
    assert all(serves(ALL_CLASSES, qos) for qos in QosClass)


def test_allocatable_cpus_are_total_less_allocated_kubelet_reserved_and_annotated() -> None:
    total = CpuSet.parse("0-15")
    withheld = withheld_cpus(
        CpuSet.parse("0"), CpuSet.parse("1-2"), kubelet_pods=[CpuSet.parse("4-5")], system_exclusive=CpuSet.parse("6")
    )
    assert withheld.format() == "0-2,4-6"
    assert available_cpus(total, {8: 1, 9: 2}, withheld).format() == "3,7,10-15"
    assert available_cpus(total, {8: 1, 9: 2}, withheld, holders_max=2).format() == "3,7-8,10-15"


def test_what_is_preferred_loses_one_holder_before_it_is_counted() -> None:
    total, nothing = CpuSet.parse("0-3"), CpuSet()
    kept = CpuSet.parse("0-1")
    assert available_cpus(total, {0: 1, 1: 2}, nothing, preferred=[kept]).format() == "0,2-3"
    assert available_cpus(total, {0: 1, 1: 2}, nothing, preferred=[kept, kept]).format() == "0-3"
    assert available_cpus(total, {3: 1}, CpuSet.parse("0"), preferred=[kept]).format() == "1-2"
    with pytest.raises(InvalidInput):
        available_cpus(total, {}, nothing, holders_max=0)


def test_a_list_of_cpus_wins_over_a_quantity_and_may_leave_allocatable_alone() -> None:
    listed = NodeRules(reserved_cpus="0-3", reserved_mcpu=9000, reserved_memory_bytes=5)
    assert withheld_amounts(listed) == (4000, 5)
    assert withheld_amounts(NodeRules(reserved_mcpu=5500)) == (5500, 0)
    assert withheld_amounts(structs.replace(listed, reserved_cpus_only=True)) == (0, 0)


@pytest.mark.parametrize(
    ("rules", "rule", "expected"),
    [
        (NodeRules(), None, NO_LIMIT),
        (NodeRules(batch_replicas_most=7), None, 7),
        (NodeRules(batch_replicas_most=7), ColocationRule(offline_max=3), 3),
        (NodeRules(batch_replicas_most=2), ColocationRule(offline_max=3), 2),
        (NodeRules(is_colocated=False, batch_replicas_most=2), None, 0),
        (NodeRules(), ColocationRule(is_enabled=False), 0),
    ],
)
def test_the_lower_of_a_node_s_own_limit_and_its_rule_s_counts(
    rules: NodeRules, rule: ColocationRule | None, expected: int
) -> None:
    assert offline_limit(rules, rule) == expected


@pytest.mark.parametrize(("capacity", "count", "expected"), [(8000, 2, 6000), (1000, 2, 0), (0, 2, 0), (8000, 0, 8000)])
def test_a_zone_loses_1000_for_each_withheld_cpu(capacity: int, count: int, expected: int) -> None:
    assert zone_capacity_mcpu(capacity, count) == expected
