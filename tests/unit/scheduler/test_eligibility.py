"""Which nodes may take a workload at all."""

import pytest

from colo_common.model.colocation_rules import ColocationRule, check_rules, rule_of, ruled
from colo_common.model.constraints import Taint, Toleration
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import NodeRules
from colo_common.model.node_selector import Operator, Requirement, Selector, selects
from colo_scheduler.cluster.labels import LABEL_KEYS_MAX, LabelColumns
from colo_scheduler.cluster.node import TAINTS_MAX, TaintColumn, refusing_taint, soft_taints

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
    ColocationRule(selector=Selector(labels={"workload.type": "mixed"}), batch_replicas_most=2),
    ColocationRule(selector=Selector(labels={"critical": "true"}), is_colocated=False),
)


def test_the_last_rule_that_selects_a_node_counts_and_a_node_without_one_is_open() -> None:
    assert rule_of({"workload.type": "mixed"}, RULES) == RULES[0]
    assert rule_of({"workload.type": "mixed", "critical": "true"}, RULES) == RULES[1]
    assert rule_of({}, RULES) == ColocationRule()


@pytest.mark.parametrize(
    ("own", "labels", "is_colocated", "most"),
    [
        (NodeRules(), {}, True, None),
        (NodeRules(), {"workload.type": "mixed"}, True, 2),
        (NodeRules(batch_replicas_most=1), {"workload.type": "mixed"}, True, 1),
        (NodeRules(batch_replicas_most=7), {"workload.type": "mixed"}, True, 2),
        (NodeRules(batch_replicas_most=7), {"critical": "true"}, False, 7),
        (NodeRules(is_colocated=False), {"workload.type": "mixed"}, False, 2),
    ],
)
def test_of_a_node_s_own_rule_and_the_cluster_s_the_stricter_holds(
    own: NodeRules, labels: dict[str, str], is_colocated: bool, most: int | None
) -> None:
    found = ruled(own, labels, RULES)
    assert (found.is_colocated, found.batch_replicas_most) == (is_colocated, most)


def test_without_rules_a_node_is_what_it_says() -> None:
    own = NodeRules(batch_replicas_most=1)
    assert ruled(own, {"critical": "true"}, ()) is own


def test_a_colocation_rule_that_makes_no_sense_is_named() -> None:
    check_rules(RULES)
    nameless = Selector(requirements=(Requirement(key="", operator=Operator.EXISTS),))
    for rule, field in (
        (ColocationRule(batch_replicas_most=-1), "colocation[0].batch_replicas_most"),
        (ColocationRule(selector=nameless), "colocation[0].selector.requirements[0].key"),
    ):
        with pytest.raises(InvalidInput) as refusal:
            check_rules((rule,))
        assert refusal.value.field == field
    with pytest.raises(InvalidInput):
        check_rules((ColocationRule(),) * 1_001)
