"""What a task may demand of its node's labels: what is read, what is refused and how."""

import pytest

from colo_common.model.constraints import Constraints
from colo_common.model.invalid import InvalidInput
from colo_common.model.job_file import job_from_mapping
from colo_common.model.node_selector import Operator, Requirement
from colo_common.model.place_rules import check_constraints
from colo_common.model.qos import QosClass
from colo_common.model.workload import ResourceRequest


def demanded(selector: object) -> tuple[Requirement, ...]:
    job = job_from_mapping(
        {"name": "a", "cpu": "2", "memory": "1Gi", "command": ["run"], "place": {"node_selector": selector}}
    )
    return job.tasks[0].constraints.node_requirements


def test_every_operator_is_read_as_kubernetes_spells_it() -> None:
    assert demanded(
        [
            {"key": "disk", "operator": "In", "values": ["ssd", "nvme"]},
            {"key": "team", "operator": "NotIn", "values": ["films"]},
            {"key": "gpu", "operator": "Exists"},
            {"key": "spot", "operator": "DoesNotExist"},
            {"key": "cores", "operator": "Gt", "values": [16]},
            {"key": "age", "operator": "Lt", "values": ["-3"]},
        ]
    ) == (
        Requirement(key="disk", operator=Operator.IN, values=("ssd", "nvme")),
        Requirement(key="team", operator=Operator.NOT_IN, values=("films",)),
        Requirement(key="gpu", operator=Operator.EXISTS),
        Requirement(key="spot", operator=Operator.DOES_NOT_EXIST),
        Requirement(key="cores", operator=Operator.GT, values=("16",)),
        Requirement(key="age", operator=Operator.LT, values=("-3",)),
    )
    assert demanded(None) == ()


WHERE = "place.node_selector"
IN = {"key": "a", "operator": "In"}


@pytest.mark.parametrize(
    ("selector", "field", "rule"),
    [
        ({"disk": "ssd"}, "", "must be a list of {key, operator, values}"),
        ("disk=ssd", "", "must be a list"),
        ([IN] * 65, "", "must be at most 64"),
        (["disk"], "[0]", "must be a mapping of keys to values"),
        ([{"operator": "In", "values": ["x"]}], "[0].key", "is missing"),
        ([{"key": "", "operator": "Exists"}], "[0].key", "must be 1 to 253 characters"),
        ([{"key": "a" * 254, "operator": "Exists"}], "[0].key", "must be 1 to 253 characters"),
        ([{"key": "a", "values": ["x"]}], "[0].operator", "must be one of In NotIn Exists DoesNotExist Gt Lt"),
        ([{"key": "a", "operator": "in", "values": ["x"]}], "[0].operator", "must be one of In NotIn"),
        ([{"key": "a", "operator": [], "values": ["x"]}], "[0].operator", "must be one of In NotIn"),
        ([IN], "[0].values", "In needs at least one"),
        ([{**IN, "values": "x"}], "[0].values", "must be a list"),
        ([{**IN, "values": ["x"] * 101}], "[0].values", "must be at most 100"),
        ([{**IN, "values": ["x", True]}], "[0].values[1]", "must be text; put it in quotes"),
        ([{**IN, "values": ["x" * 254]}], "[0].values", "must be at most 253 characters each"),
        ([{**IN, "value": "x"}], "[0].value", "is not a key here; did you mean `values`?"),
        ([{"key": "a", "operator": "Exists", "values": ["x"]}], "[0].values", "Exists takes none"),
        ([{"key": "a", "operator": "Gt", "values": ["x"]}], "[0].values", "Gt takes one whole number"),
        ([{"key": "a", "operator": "Lt", "values": [1, 2]}], "[0].values", "Lt takes one whole number"),
        ([{"key": "a", "operator": "Gt", "values": ["9" * 19]}], "[0].values", "Gt takes one whole number"),
    ],
)
def test_a_demand_that_makes_no_sense_is_named_by_its_path(selector: object, field: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        demanded(selector)
    assert refusal.value.field == WHERE + field
    assert rule in refusal.value.rule


@pytest.mark.parametrize(
    ("requirements", "field"),
    [
        ((Requirement(key="a", values=("b",)),) * 65, "place.node_selector"),
        ((Requirement(key="a", operator=Operator.GT),), "place.node_selector[0].values"),
    ],
)
def test_what_comes_over_the_wire_is_held_to_the_same_rules(requirements: tuple[Requirement, ...], field: str) -> None:
    place = Constraints(node_requirements=requirements)
    with pytest.raises(InvalidInput) as refusal:
        check_constraints(place, QosClass.BE, ResourceRequest(cpu_mcpu=1_000, memory_bytes=1))
    assert refusal.value.field == field
