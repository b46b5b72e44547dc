"""How answers about plans and reservations are printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from colo_cli import plan, reserve
from colo_cli.client import Client
from colo_cli.job_files import JobInFile

HOUR_MS = 3_600_000
RESERVATION: dict[str, Any] = {
    "spec": {
        "name": "night",
        "request": {"cpu_mcpu": 2000, "memory_bytes": 1 << 30},
        "owners": [{"controller": {"name": "web"}}],
        "policy": "default",
        "allocate_once": True,
    },
    "phase": "Available",
    "created_at_ms": 1,
    "reason": "",
    "node": "n1",
    # The cluster's clock, which is far from this machine's.
    "now_ms": 1_000,
    "expires_at_ms": 1_000 + 3 * HOUR_MS,
    "place": {"zones": [{"zone": 0, "cpu_mcpu": 2000, "memory_bytes": 1 << 30}], "cpus": "", "devices": []},
    "left": {"zones": [], "cpus": "", "devices": [], "cpu_mcpu": 0, "memory_bytes": 0},
    "owners": [],
    "counts": [],
    "nearest": None,
    "never": False,
}


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **changes: Any) -> tuple[str, str]:
    """What `explain reservation` and `get reservations` print of one reservation."""
    answer = {**RESERVATION, **changes}
    monkeypatch.setattr(Client, "get", lambda *_args, **_given: answer)
    assert reserve.reservation("night") == 0
    one = capsys.readouterr().out
    monkeypatch.setattr(Client, "get", lambda *_args, **_given: {"reservations": [answer], "total": 1})
    assert reserve.reservations() == 0
    return one, capsys.readouterr().out.splitlines()[1]


def test_what_is_left_of_its_time_is_printed_by_the_clock_of_the_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, row = printed(monkeypatch, capsys)
    assert one.startswith("night: Available on n1, ends in 3h00m\n")
    assert "  reserved: zone 0: 2 CPU" in one
    assert row.endswith("3h00m")
    one, row = printed(monkeypatch, capsys, expires_at_ms=None)
    assert one.startswith("night: Available on n1, never ends\n")
    assert row.endswith("never")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_reservation_neither_ends_nor_holds_anything(
    phase: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, row = printed(monkeypatch, capsys, phase=phase, reason="expired")
    assert one.startswith(f"night: {phase} (expired) on n1\n")
    assert "ends" not in one
    assert "reserved" not in one
    assert row.endswith("-")


def test_a_reservation_that_no_node_could_hold_is_printed_by_what_machines_have(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nearest = {"node": "n1", "zone": None, "need": 60_000, "have": 16_000, "unit": "mcpu", "reason": "batch-cpu-short"}
    one, _ = printed(monkeypatch, capsys, phase="Pending", node="", nearest=nearest, never=True)
    assert "  no node could hold one even when empty: a machine has 16 CPU at most (n1), it needs 60\n" in one
    one, _ = printed(monkeypatch, capsys, phase="Pending", node="", nearest=nearest)
    assert "  nearest: 44 CPU short in n1 (16 of 60)\n" in one


def a_task(**changes: Any) -> dict[str, Any]:
    nearest = {
        "node": "n1", "zone": None, "need": 60_000, "have": 16_000, "unit": "mcpu", "reason": "batch-cpu-short"
    }  # fmt: skip
    task = {
        "task": "main",
        "replicas": 2,
        "placed": 0,
        "nodes": [],
        "counts": [{"reason": "batch-cpu-short", "nodes": 3}],
        "nearest": nearest,
        "scores": [{"node": "n1", "total": 77, "scores": {"fewest-zones": 77}}],
        "never": False,
    }
    return {**task, **changes}


def planned(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    task: dict[str, Any],
    places: Sequence[dict[str, Any]] = (),
) -> str:
    answer = {
        "fits": False, "at_ms": 1, "placed": task["placed"], "replicas": 2, "nodes": 3, "waiting": 0, "tasks": [task],
        "victims": [], "by_preempting": 0, "places": list(places), "running": None, "check_index": "0f0f0f0f-0-0", "notes": [],
    }  # fmt: skip
    monkeypatch.setattr(plan, "read_job_files", lambda _file: (JobInFile({}, "", "job"),))
    monkeypatch.setattr(Client, "call", lambda *_args, **_given: answer)
    assert plan.plan(file="job.yaml") == 1
    return capsys.readouterr().out


def test_scores_are_printed_where_something_was_placed_by_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "fewest-zones" not in planned(monkeypatch, capsys, a_task())
    assert "fewest-zones" in planned(monkeypatch, capsys, a_task(placed=1, nodes=(("n1", 1),)))


def test_the_devices_of_a_place_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    devices = [{"kind": "gpu", "device": 3, "zone": 0}, {"kind": "nic", "device": 1, "zone": 0, "core_pct": 50}]
    places = [{"replica": f"main/{n}", "node": "n1", "zones": [], "devices": devices} for n in range(12)]
    places += [
        {"replica": "other/0", "node": "n9", "zones": [], "devices": devices},
        {"replica": "main/99", "node": "n1", "zones": []},
    ]
    out = planned(monkeypatch, capsys, a_task(placed=1, nodes=[["n1", 12]]), places)
    assert "  main/0 on n1: gpu 3, nic 1 (50 %)\n" in out
    assert "  main/9 on n1" in out
    assert "main/10 on" not in out
    assert "  and 2 more with devices\n" in out
    assert "n9" not in out


def test_what_no_node_could_ever_hold_is_printed_by_what_machines_have(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = planned(monkeypatch, capsys, a_task(never=True))
    assert "  no node could hold one even when empty: a machine has 16 CPU at most (n1), it needs 60" in out
    assert "nearest" not in out
    assert "allocatable" not in out
    assert "  nearest: 44 CPU short in n1" in planned(monkeypatch, capsys, a_task())
    # Work of the machine itself is placed nowhere, empty or not.
    counts = [{"reason": "qos-not-admitted", "nodes": 3}]
    out = planned(monkeypatch, capsys, a_task(never=True, nearest=None, counts=counts))
    assert "empty" not in out
    assert "  3 nodes: the node admits no work of this QoS class (qos-not-admitted)\n" in out


def test_quantities_are_printed_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    request = {"cpu_mcpu": 50, "memory_bytes": 64 << 20}
    left = {**RESERVATION["left"], "cpu_mcpu": 12, "memory_bytes": 512 << 10}
    place = {"zones": [{"zone": 0, **request}], "cpus": "", "devices": []}
    spec = {**RESERVATION["spec"], "request": request}
    one, row = printed(monkeypatch, capsys, spec=spec, place=place, left=left)
    assert "  reserved: zone 0: 0.05 CPU, 64Mi\n" in one
    assert row.split()[3:7] == ["0.05", "64Mi", "0.012", "512Ki"]


def test_a_refusal_is_printed_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    nearest = {"node": "n1", "zone": None, "need": 1, "have": 0, "unit": "condition", "reason": "labels-differ"}
    counts = [{"reason": "labels-differ", "nodes": 1}]
    waits = {"phase": "Pending", "node": "", "nearest": nearest, "counts": counts}
    one, _ = printed(monkeypatch, capsys, **waits)
    sentence = "the node's labels are not those that the request asks for"
    assert one.endswith(f"\n  1 node: {sentence} (labels-differ)\n")
    assert one.count(sentence) == 1
    # A refusal for good names the capacity of machines, not what each machine lacks now.
    one, _ = printed(monkeypatch, capsys, **waits, never=True)
    assert one.endswith(f"\n  no node could hold one even when empty: {sentence} (n1, and all others)\n")
    assert "1 node:" not in one
