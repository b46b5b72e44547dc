"""The rules of the gateway's door as tables: rights of routes, tokens, limits of addresses, foreign sites."""

from __future__ import annotations

import pytest

from colo_common.model.invalid import InvalidInput
from colo_common.model.loopback import is_loopback_url
from colo_gateway.door.origin import is_cross_origin, is_own_host
from colo_gateway.door.principal import ALL, Principal, Right, Role
from colo_gateway.door.rate import AddressLimits
from colo_gateway.door.rights import RIGHTS, is_change, right_of
from colo_gateway.door.tokens import BadToken, TokenBook, TokenRow, check_row, digest_of, token_text
from colo_gateway.openapi import ROUTES
from colo_gateway.settings import GatewaySettings

HEALTH = {("GET", "/livez"), ("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/metrics")}
NOW_MS = 1_000_000
TOKEN = token_text("0a1b2c3d", "s" * 43)
OTHER = token_text("0a1b2c3d", "t" * 43)


def row(**given: object) -> TokenRow:
    kept = {"id": "0a1b2c3d", "name": "alice", "role": Role.SUBMITTER, "sha256": digest_of(TOKEN)}
    return TokenRow(**{**kept, **given})  # type: ignore[arg-type]


def test_every_route_has_a_right_and_no_right_is_for_a_route_that_is_gone() -> None:
    assert {(route.method.upper(), route.path) for route in ROUTES} | HEALTH == set(RIGHTS)


def test_only_operators_change_what_is_not_a_job() -> None:
    changes = {key for key in RIGHTS if is_change(*key)}
    assert {key for key in changes if RIGHTS[key] is not Right.OPERATE} == {
        ("POST", "/v1/jobs"),
        ("DELETE", "/v1/jobs/{job}"),
    }
    assert right_of("POST", "/v1/new") is Right.OPERATE


@pytest.mark.parametrize(
    ("role", "may"),
    [
        (Role.VIEWER, {Right.PUBLIC, Right.VIEW, Right.VIEW_ALL}),
        (Role.SUBMITTER, {Right.PUBLIC, Right.VIEW, Right.VIEW_ALL, Right.SUBMIT}),
        (Role.OPERATOR, set(Right)),
    ],
)
def test_what_each_role_may(role: Role, may: set[Right]) -> None:
    of_all = Principal(name="x", role=role)
    of_one = Principal(name="x", role=role, tenants=("a",))
    assert {right for right in Right if of_all.refusal(right) is None} == may
    assert {right for right in Right if of_one.refusal(right) is None} == may - {Right.VIEW_ALL, Right.OPERATE}


def test_a_token_is_for_its_tenants_and_queues() -> None:
    one = Principal(name="x", role=Role.SUBMITTER, tenants=("a", "b"), queues=("night",))
    assert one.refusal_of_job("a", "night") is None
    refused = one.refusal_of_job("c", "night")
    assert refused is not None
    assert (refused.code, refused.field, refused.got) == (403, "tenant", "c")
    assert refused.rule == "is another one: the token is for tenants a, b and for queue night"
    assert one.refusal_of_job("a", "day") is not None
    assert not one.is_for_all


@pytest.mark.parametrize(
    ("kept", "given", "kind"),
    [
        (row(), OTHER, "unknown"),
        (row(id="ffffffff"), TOKEN, "unknown"),
        (row(revoked_at_ms=5), TOKEN, "revoked"),
        (row(expires_at_ms=NOW_MS), TOKEN, "expired"),
        (row(), "colo_0a1b2c3d_short", "malformed"),
        (row(), "x" * 100_000, "malformed"),
    ],
)
def test_why_a_token_is_not_taken(kept: TokenRow, given: str, kind: str) -> None:
    with pytest.raises(BadToken) as refused:
        TokenBook([kept]).principal(given, NOW_MS)
    assert refused.value.kind == kind


def test_a_good_token_is_somebody() -> None:
    found = TokenBook([row(expires_at_ms=NOW_MS + 1)]).principal(TOKEN, NOW_MS)
    assert (found.name, found.role, found.token) == ("alice", Role.SUBMITTER, "0a1b2c3d")
    assert TOKEN not in repr(found)
    assert "s" * 43 not in repr(row())


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": "-x"}, "name"),
        ({"name": "a b"}, "name"),
        ({"tenants": ("A",)}, "tenant"),
        ({"queues": ()}, "queue"),
        ({"role": Role.OPERATOR, "tenants": ("a",)}, "tenant"),
    ],
)
def test_a_row_that_cannot_be_one_is_refused(given: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_row(row(**given))
    assert refused.value.field == field


def test_an_address_at_its_limit_does_not_slow_another() -> None:
    limits = AddressLimits(2.0, 3.0)
    assert [limits.take("a", 0.0) for _ in range(5)] == [0.0, 0.0, 0.0, 0.5, 0.5]
    assert limits.take("b", 0.0) == 0.0
    assert limits.wait_s("a", 0.25) == 0.25
    assert limits.take("a", 0.5) == 0.0
    assert limits.take("a", 0.5) == 0.5
    assert not any(AddressLimits(0, 0).take("a", 0.0) for _ in range(10_000))


def test_addresses_beyond_a_limit_are_forgotten() -> None:
    limits = AddressLimits(1.0, 1.0)
    for number in range(20_000):
        limits.take(str(number), 0.0)
    assert limits.wait_s("19999", 0.0) == 1.0
    assert limits.wait_s("0", 0.0) == 0.0


@pytest.mark.parametrize(
    ("origin", "host", "is_cross"),
    [
        ("", "127.0.0.1:8088", False),
        ("http://127.0.0.1:8088", "127.0.0.1:8088", False),
        ("https://Colo.example", "colo.example", False),
        ("http://evil.example", "127.0.0.1:8088", True),
        ("null", "127.0.0.1:8088", True),
    ],
)
def test_pages_of_other_sites_are_foreign(origin: str, host: str, is_cross: bool) -> None:
    assert is_cross_origin(origin, host) is is_cross


@pytest.mark.parametrize(
    ("host", "is_own"),
    [("localhost:8088", True), ("127.0.0.1", True), ("[::1]:8088", True), ("evil.example:8088", False), ("", False)],
)
def test_only_names_of_this_machine_are_its_own(host: str, is_own: bool) -> None:
    assert is_own_host(host) is is_own


@pytest.mark.parametrize(
    ("url", "is_local"),
    [
        ("nats://127.0.0.1:4222", True),
        ("nats://user:p@ss@localhost:4222", True),
        ("redis://[::1]:6379/0", True),
        ("unix:///run/redis.sock?db=0", True),
        ("nats://10.0.0.1:4222", False),
        ("rediss://127.0.0.1.evil.example:6379/0", False),
        ("redis://127.0.0.1@evil.example/0", False),
    ],
)
def test_which_addresses_are_this_machine(url: str, is_local: bool) -> None:
    assert is_loopback_url(url) is is_local


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"http_host": "0.0.0.0"}, "http_host"),
        ({"http_host": "::"}, "http_host"),
        ({"http_host": ""}, "http_host"),
        ({"requests_per_s": -1}, "requests_per_s"),
        ({"failed_logins_per_min": 0}, "failed_logins_per_min"),
        ({"health_port": 8088}, "health_port"),
        ({"health_port": 65_536}, "health_port"),
    ],
)
def test_a_door_that_would_be_open_to_others_is_refused(given: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        GatewaySettings(**given).validate()  # type: ignore[arg-type]
    assert refused.value.field == field


@pytest.mark.parametrize("given", [{"tokens_file": "x"}, {"allow_anonymous": True}])
def test_a_door_that_asks_or_was_opened_on_purpose_may_be_anywhere(given: dict[str, object]) -> None:
    settings = GatewaySettings(http_host="0.0.0.0", **given)  # type: ignore[arg-type]
    settings.validate()
    assert not settings.is_local


def test_all_is_no_name_of_a_tenant() -> None:
    assert Principal(name="x", role=Role.VIEWER, tenants=(ALL,)).only_tenant == ""
    assert Principal(name="x", role=Role.VIEWER, tenants=("a",)).only_tenant == "a"
