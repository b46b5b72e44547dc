"""What `colo doctor --cluster` says of sentinels, and of the replicas that they make primaries.

A sentinel that stood still takes part in no failover for half a minute (TILT).
"""

from __future__ import annotations

import pytest

from colo_common.adapters.redis_check import is_tilted, replicas_check, role_check, sentinels_check


@pytest.mark.parametrize(("role", "ok"), [("master", True), ("slave", False)])
def test_a_replica_takes_no_writes(role: str, ok: bool) -> None:
    found = role_check({"redis_version": "7.2.0", "role": role}, "redis://h:6379")
    assert (found.ok, found.detail) == (ok, f"7.2.0, {role} at redis://h:6379")
    assert ("must name the primary" in found.means) is not ok


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"sentinel_masters": 1, "sentinel_tilt": 0, "sentinel_tilt_since_seconds": -1}, False),
        ({"sentinel_masters": 1, "sentinel_tilt": 1, "sentinel_tilt_since_seconds": 12}, True),
        ({"sentinel_masters": 1}, False),
    ],
    ids=["plain", "in TILT", "an older version"],
)
def test_info_of_a_sentinel_says_whether_it_is_in_tilt(info: dict[str, int], expected: bool) -> None:
    assert is_tilted(info) is expected


@pytest.mark.parametrize(
    ("answering", "tilted", "ok", "detail"),
    [
        (3, [], True, "3 of 3 answer for primary"),
        (3, ["s1:26379"], True, "3 of 3 answer for primary, in TILT: s1:26379"),
        (3, ["s1:26379", "s2:26379"], False, "3 of 3 answer for primary, in TILT: s1:26379, s2:26379"),
        (2, ["s1:26379"], False, "2 of 3 answer for primary, in TILT: s1:26379"),
        (1, [], False, "1 of 3 answer for primary"),
    ],
)
def test_most_of_the_sentinels_must_be_able_to_act(answering: int, tilted: list[str], ok: bool, detail: str) -> None:
    check = sentinels_check("primary", 3, answering, tilted)
    assert (check.ok, check.detail) == (ok, detail)
    assert bool(check.means) is not ok


@pytest.mark.parametrize(
    ("online", "min_replicas", "fails_over", "means"),
    [
        (0, 0, False, ""),
        (1, 1, True, ""),
        (1, 0, True, "what it acknowledged alone"),
        (0, 1, True, "no write counts"),
        (1, 0, False, ""),
    ],
)
def test_where_sentinels_fail_over_some_replica_must_have_a_write(
    online: int, min_replicas: int, fails_over: bool, means: str
) -> None:
    info = {f"slave{number}": {"state": "online"} for number in range(online)}
    check = replicas_check(info, {}, min_replicas, fails_over=fails_over)
    assert check.ok is (not means)
    assert means in check.means
