"""What a body may be, and what is refused before it can do harm."""

import pytest

from colo_common.model.invalid import InvalidInput
from colo_gateway.body import plain_mapping


@pytest.mark.parametrize("is_yaml", [False, True])
def test_json_is_read_as_json_and_as_yaml(is_yaml: bool) -> None:
    assert plain_mapping(b'{"name": "a", "tasks": [{"replicas": 3}]}', is_yaml=is_yaml) == {
        "name": "a",
        "tasks": [{"replicas": 3}],
    }


@pytest.mark.parametrize(
    ("data", "is_yaml", "rule"),
    [
        pytest.param(b'{"name":', False, "must be JSON: Input data was truncated", id="cut-json"),
        pytest.param(b"", False, "must be JSON: Input data was truncated", id="empty"),
        pytest.param(b"[" * 100_000, False, "must be JSON: maximum recursion depth", id="deep-json"),
        pytest.param(b"a: [", True, "must be YAML: while parsing a flow node", id="cut-yaml"),
        pytest.param(b"\xff\xfe\x00", True, "must be YAML: unacceptable character", id="no-text"),
        pytest.param(b"[" * 50_000, True, "must not be nested deeper than 32 levels", id="deep-yaml-list"),
        pytest.param(b"{a: " * 50_000, True, "must not be nested deeper than 32 levels", id="deep-yaml-mapping"),
        pytest.param(b"- " * 50_000, True, "must not be nested deeper than 32 levels", id="deep-yaml-block"),
        pytest.param(b"a: &x [*x]", True, "must not use YAML aliases", id="value-that-holds-itself"),
        pytest.param(b"a: &x [1]\nb: [*x, *x]", True, "must not use YAML aliases", id="repeated-value"),
        pytest.param(b"a: [" + b"1," * 200_000 + b"]", True, "must have at most 100000 values", id="many-values"),
        pytest.param(b"[1]", False, "must be a mapping of the job's fields", id="list"),
        pytest.param(b"", True, "must be a mapping of the job's fields", id="empty-yaml"),
    ],
)
def test_anything_else_is_refused_with_its_rule(data: bytes, is_yaml: bool, rule: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        plain_mapping(data, is_yaml=is_yaml)
    assert refused.value.field == "body"
    assert refused.value.rule.startswith(rule)
    assert "\n" not in refused.value.rule


@pytest.mark.parametrize(
    ("data", "is_yaml"),
    [
        (b'{"name": "a", "cpu": "1", "name": "b"}', False),
        (b'{"tasks": [{"name": "a", "name": "a"}]}', False),
        (b"name: a\ncpu: 1\nname: b\n", True),
        (b"tasks:\n  - {name: a, name: a}\n", True),
    ],
)
def test_a_key_that_is_written_twice_is_named(data: bytes, is_yaml: bool) -> None:
    with pytest.raises(InvalidInput) as refused:
        plain_mapping(data, is_yaml=is_yaml)
    assert (refused.value.field, refused.value.rule) == ("name", "is written twice in one mapping")


def test_a_key_that_is_no_key_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must be YAML"):
        plain_mapping(b"{[1]: 2}", is_yaml=True)
