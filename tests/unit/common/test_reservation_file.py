"""A reservation as people write it: what it means, and what is refused by field and rule."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from colo_common.model.constraints import Constraints
from colo_common.model.invalid import InvalidInput
from colo_common.model.moment import moment_text, parse_moment_ms
from colo_common.model.reservation import (
    DEFAULT_TTL_MS,
    AllocatePolicy,
    ControllerTerm,
    LabelRule,
    ObjectTerm,
    OwnerTerm,
)
from colo_common.model.reservation_file import reservation_from_mapping

EXAMPLE = Path(__file__).parents[3] / "examples" / "reservation.yaml"
LEAST: dict[str, Any] = {"name": "night", "cpu": "2", "memory": "1Gi", "owners": [{"job": "web"}]}


def test_the_least_there_is_is_for_its_owner_once_and_for_a_day() -> None:
    spec = reservation_from_mapping(LEAST)
    assert (spec.request.cpu_mcpu, spec.request.memory_bytes) == (2000, 1 << 30)
    assert (len(spec.owners), spec.allocate_once, spec.policy) == (1, True, AllocatePolicy.DEFAULT)
    assert (spec.ttl_ms, spec.expires_ms) == (DEFAULT_TTL_MS, None)


def test_owners_are_jobs_replicas_and_labels() -> None:
    owners = [{"job": "web"}, {"replica": "web/main/03"}, {"labels": {"team": "films", "tier": 1}}, {"anyone": True}]
    assert reservation_from_mapping({**LEAST, "owners": owners}).owners == (
        OwnerTerm(controller=ControllerTerm(name="web", kind="Job")),
        OwnerTerm(object=ObjectTerm(name="web/main/3")),
        OwnerTerm(labels=(LabelRule(key="team", values=("films",)), LabelRule(key="tier", values=("1",)))),
        OwnerTerm(),
    )


def test_times_policies_and_places_are_read() -> None:
    spec = reservation_from_mapping(
        {
            **LEAST,
            "allocate_once": False,
            "policy": "Restricted",
            "restricted": ["cpu"],
            "ttl": "90m",
            "expires": "2030-01-01T01:00:00+01:00",
            "order": -2,
            "place": {"node_labels": {"disk": "ssd"}},
        }
    )
    assert (spec.allocate_once, spec.policy, spec.restricted) == (False, AllocatePolicy.RESTRICTED, ("cpu",))
    assert (spec.ttl_ms, spec.expires_ms, spec.order) == (5_400_000, 1_893_456_000_000, -2)
    assert spec.constraints == Constraints(node_labels=(("disk", "ssd"),))


def test_a_moment_alone_is_the_only_limit_and_may_stand_without_quotes() -> None:
    fields = yaml.safe_load("{name: a, cpu: 1, memory: 1Gi, owners: [{job: b}], expires: 2030-01-01T00:00:00Z}")
    spec = reservation_from_mapping(fields)
    assert (spec.ttl_ms, spec.expires_ms) == (None, 1_893_456_000_000)


def test_the_example_in_the_repository_is_valid() -> None:
    assert reservation_from_mapping(yaml.safe_load(EXAMPLE.read_text())).name == "for-hello"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "UPPER"}, "name"),
        ({"cpu": None}, "cpu"),
        ({"cpu": "-1"}, "cpu"),
        ({"memory": "1.5"}, "memory"),
        ({"owners": {"job": "web"}}, "owners"),
        ({"owners": [{"job": "we/b"}]}, "owners[0].job"),
        ({"owners": [{"job": "a"}, {"replica": "web/main"}]}, "owners[1].replica"),
        ({"owners": [{"replica": "web/main/-1"}]}, "owners[0].replica"),
        ({"owners": [{"label": {}}]}, "owners[0].label"),
        ({"owners": [{"labels": {"a": [1]}}]}, "owners[0].labels.a"),
        ({"owners": [{}] * 101}, "owners"),
        ({"owners": None}, "owners"),
        ({"owners": []}, "owners"),
        ({"owners": [{"job": "a"}, {}]}, "owners[1]"),
        ({"owners": [{"labels": {}}]}, "owners[0]"),
        ({"owners": [{"anyone": False}]}, "owners[0]"),
        ({"owners": [{"anyone": "yes"}]}, "owners[0].anyone"),
        ({"owners": [{"anyone": True, "job": "a"}]}, "owners[0].anyone"),
        ({"allocate_once": "yes"}, "allocate_once"),
        ({"policy": "strict"}, "policy"),
        ({"restricted": ["cpu"]}, "restricted"),
        ({"policy": "restricted", "restricted": ["disk"]}, "restricted"),
        ({"ttl": "-1s"}, "ttl"),
        ({"ttl": 0, "expires": "2030-01-01T00:00:00Z"}, "expires"),
        ({"expires": "2030-02-30T00:00:00Z"}, "expires"),
        ({"expires": "2030-01-01T00:00:00"}, "expires"),
        ({"order": 1.5}, "order"),
        ({"qos": "LSE", "cpu": "1500m"}, "cpu"),
        ({"band": "prod"}, "band"),
        ({"place": {"reservation": "other"}}, "place.reservation"),
        ({"place": {"numa": 1}}, "place.numa"),
        ({"ttls": 1}, "ttls"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        reservation_from_mapping({**LEAST, **changes})
    assert caught.value.field == field


@pytest.mark.parametrize("missing", sorted(LEAST))
def test_what_is_needed_is_named(missing: str) -> None:
    with pytest.raises(InvalidInput, match="is needed") as caught:
        reservation_from_mapping({key: value for key, value in LEAST.items() if key != missing})
    assert caught.value.field == missing


@pytest.mark.parametrize(
    "text",
    [
        "1970-01-01T00:00:00Z",
        "2000-02-29T23:59:59Z",
        "2024-12-31 12:30Z",
        "2026-11-22T08:00:00-05:30",
        "2100-03-01T00:00:00Z",
    ],
)
def test_moments_are_those_of_the_calendar(text: str) -> None:
    expected = datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)
    at_ms = round(expected.timestamp() * 1000)
    assert parse_moment_ms(text, "at") == at_ms
    assert datetime.fromisoformat(moment_text(at_ms)) == expected
    assert parse_moment_ms(moment_text(at_ms), "at") == at_ms


def test_a_moment_is_formatted_to_the_millisecond() -> None:
    assert moment_text(1_893_456_000_000) == "2030-01-01T00:00:00Z"
    assert moment_text(1_893_456_000_007) == "2030-01-01T00:00:00.007Z"


def test_a_refused_end_is_shown_as_a_moment() -> None:
    now_ms = parse_moment_ms("2026-11-22T08:00:00Z", "now")
    with pytest.raises(InvalidInput, match=r'expires: must not be in the past.*\(got "2019-12-31T23:00:00Z"\)'):
        reservation_from_mapping({**LEAST, "expires": "2020-01-01T00:00:00+01:00"}, now_ms)
    with pytest.raises(InvalidInput, match=r'expires: must be absent when ttl is 0.*\(got "2030-01-01T00:00:00Z"\)'):
        reservation_from_mapping({**LEAST, "ttl": 0, "expires": "2030-01-01T00:00:00Z"})
