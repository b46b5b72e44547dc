"""What `colo doctor --cluster` says of sentinels: who stood still takes part in no failover for half a minute (TILT)."""

from __future__ import annotations

import pytest

from colo_common.adapters.redis_check import is_tilted, sentinels_check


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
