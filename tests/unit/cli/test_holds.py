"""The text of a place in one line: everything of it that is the own of the replica."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from colo_cli import explain
from colo_cli.client import Client
from colo_cli.holds import holds_text
from colo_common.events.requests import ReservationHolds
from colo_common.model.placement import DeviceShare, ZoneHugePages
from colo_gateway.replies import ReplicaExplained
from tests.support.builders import GIB, a_placement
from tests.support.explained_job import a_decision, an_explanation

MIB = 1 << 20
ZONE = "zone 0: 1 CPU, 1Gi"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, ZONE),
        ({"cpus": "4-7"}, f"{ZONE}; CPUs 4-7"),
        ({"devices": (DeviceShare(kind="gpu", device=1, zone=0, memory_bytes=80 * GIB),)}, f"{ZONE}; gpu 1"),
        (
            {"devices": (DeviceShare(kind="gpu", device=0, zone=0, core_pct=50, memory_bytes=8 * GIB),)},
            f"{ZONE}; gpu 0 (50 %, 8Gi)",
        ),
        ({"devices": (DeviceShare(kind="nic", device=0, zone=0, core_pct=25),)}, f"{ZONE}; nic 0 (25 %)"),
        (
            {"huge_pages": (ZoneHugePages(zone=1, page_bytes=2 * MIB, total_bytes=512 * MIB),)},
            f"{ZONE}; 512Mi in pages of 2Mi of zone 1",
        ),
    ],
    ids=["a shared pool", "CPUs of its own", "a whole device", "a share", "a share without memory", "huge pages"],
)
def test_every_part_of_a_place_is_in_its_text(changes: dict[str, Any], text: str) -> None:
    assert holds_text(replace(a_placement(), **changes)) == text


def test_nothing_is_nothing() -> None:
    assert holds_text(ReservationHolds()) == "nothing"


@pytest.mark.parametrize(("state", "is_printed"), [("Running", True), ("Pending", False), ("Succeeded", False)])
def test_explain_tells_what_a_replica_holds_while_it_holds_it(
    state: str, is_printed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    placement = replace(a_placement(), cpus="2-3")
    decision = a_decision("job/main/0", placement=placement)
    replica = ReplicaExplained(replica="job/main/0", state=state, sentence="on n1", decision=decision)
    answer = an_explanation([replica])
    monkeypatch.setattr(Client, "get", lambda *_args, **_given: answer)
    assert explain.job("job") == 0
    assert (f"  holds {ZONE}; CPUs 2-3\n" in capsys.readouterr().out) is is_printed


def test_a_replica_without_a_decision_is_explained_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replica = ReplicaExplained(replica="job/main/0", state="Running", sentence="running")
    answer = an_explanation([replica], partial="no answer")
    monkeypatch.setattr(Client, "get", lambda *_args, **_given: answer)
    assert explain.job("job") == 0
    assert "holds" not in capsys.readouterr().out
