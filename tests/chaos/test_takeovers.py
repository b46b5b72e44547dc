"""A takeover is over when each partition had another owner, and is late when one never has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from colo_common.model.invalid import InvalidInput
from tests.chaos import takeovers
from tests.chaos.older import OLDER, OLDER_SHARED, older_tree
from tests.chaos.takeovers import Holding, Takeover, holding_of, taken_over

HELD = Holding(service="jobs", owner="one", partitions=frozenset({0, 1}))


async def seen(answers: Sequence[Mapping[int, str]]) -> tuple[Takeover, int]:
    """The takeover of what `HELD` says, and how many answers that took; the last one is given again and again."""
    asked = 0

    async def leases() -> dict[int, tuple[str, int]]:
        nonlocal asked
        asked += 1
        return {partition: (owner, asked) for partition, owner in answers[min(asked, len(answers)) - 1].items()}

    return await taken_over(HELD, leases, look_s=0.0), asked


@pytest.mark.parametrize(
    ("reported", "is_known"),
    [
        ({"held": [0, 1], "fence": 7}, True),
        # It has lost its leases and does not know that yet.
        ({"held": [0, 1], "fence": 5}, False),
        ({"held": [1, 2], "fence": 7}, False),
        ({"held": [0, 3], "fence": 7}, False),
        ({"held": [], "fence": 0}, False),
        ({}, False),
    ],
)
def test_what_an_instance_holds_is_known_where_the_leases_say_the_same(
    reported: dict[str, Any], is_known: bool
) -> None:
    leases = {0: ("one", 7), 1: ("one", 6), 2: ("two", 8)}
    assert holding_of({"service": "jobs", **reported}, leases) == (HELD if is_known else None)


async def test_it_is_over_when_each_partition_had_another_owner() -> None:
    takeover, asked = await seen(
        [
            {0: "one", 1: "one", 2: "two"},
            {0: "two", 1: "one"},
            # Nobody has it, and the store does not answer: that is no owner.
            {0: "two"},
            {},
            # What another one had comes back.
            {0: "one", 1: "three"},
        ]
    )
    assert takeover.is_done
    assert not takeover.is_late
    assert asked == 5


async def test_what_nobody_takes_over_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeovers, "TAKEN_WITHIN_S", 0.01)
    takeover, _ = await seen([{0: "two", 1: "one"}])
    assert not takeover.is_done
    assert takeover.is_late


@pytest.mark.parametrize("took_s", [0.0, 20.0])
def test_within_the_bound_it_is_not_late(took_s: float) -> None:
    assert not Takeover(service="jobs", took_s=took_s).is_late
    assert Takeover(service="jobs", took_s=20.1).is_late


def test_the_older_versions_are_there_and_are_what_they_are_said_to_be(tmp_path: Path) -> None:
    try:
        older_tree(tmp_path / "older", OLDER.revision, is_shared=False)
        older_tree(tmp_path / "shared", OLDER_SHARED.revision, is_shared=True)
    except InvalidInput as error:
        if "shallow" not in error.rule:
            raise
        pytest.skip("a shallow clone has not the older version")
    with pytest.raises(InvalidInput, match="must be a version that knows partitions of the jobs"):
        older_tree(tmp_path / "not shared", OLDER.revision, is_shared=True)
    turn = "libs/common/colo_common/events/waiting.py"
    assert "turn" not in (tmp_path / "older" / turn).read_text("utf-8")
    assert "turn" in (tmp_path / "shared" / turn).read_text("utf-8")
    for tree in ("older", "shared"):
        assert "loss_id" not in (tmp_path / tree / "services/jobs/colo_jobs/records.py").read_text("utf-8")


def test_a_revision_that_is_not_here_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="must be a revision of this checkout, which may not be a shallow one"):
        older_tree(tmp_path / "older", "0123456789abcdef", is_shared=False)
