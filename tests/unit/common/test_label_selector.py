"""Label selectors as kubectl takes them."""

from __future__ import annotations

import pytest

from colo_common.model.invalid import InvalidInput
from colo_common.model.label_selector import parse_selector
from colo_common.model.node_selector import meets

NODES = {
    "a": {"disk": "ssd", "zone": "b", "cores": "32"},
    "b": {"disk": "hdd", "gpu": "", "rack": "r1", "cores": "16"},
    "c": {"spot": "true", "rack": "r2", "colo.io/tier": "edge"},
}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", "abc"),
        ("  ", "abc"),
        ("disk=ssd", "a"),
        ("disk==ssd", "a"),
        ("disk!=ssd", "bc"),
        ("gpu", "b"),
        ("gpu=", "b"),
        ("!spot", "ab"),
        ("rack in (r1, r2)", "bc"),
        ("rack notin (r1)", "ac"),
        ("cores>16", "a"),
        ("cores<17", "b"),
        ("colo.io/tier=edge", "c"),
        ("disk, cores>8 , !spot", "ab"),
    ],
)
def test_a_selector_selects(text: str, selected: str) -> None:
    requirements = parse_selector(text, "selector")
    assert "".join(
        name for name, labels in NODES.items() if all(meets(one, labels.get(one.key)) for one in requirements)
    ) == (selected)


@pytest.mark.parametrize(
    "text",
    [
        "=ssd",
        "disk=ssd,",
        ",disk",
        "disk ssd",
        "disk in r1",
        "rack in (",
        "cores>many",
        "!",
        "disk===ssd",
        "x" * 5_000,
        "rack in ()",
    ],
)
def test_what_is_no_selector_is_refused_by_its_field(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_selector(text, "selector")
    assert refused.value.field.startswith("selector")
