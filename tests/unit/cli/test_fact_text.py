"""The text of a fact in one line."""

from __future__ import annotations

from typing import Any

import pytest

from colo_cli.fact_text import fact_text

MISS = {"node": "n1", "reason": "batch-cpu-short", "need": 2000, "have": 500, "unit": "mcpu", "zone": None}
HEAD = {"at_ms": 5, "producer": "jobs", "boot_id": "b", "seq": 1, "sent_us": 7, "traceparent": "00-ab-cd-01"}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"job": "j", "state": "Running", "reason": ""}, "job=j state=Running"),
        (
            {
                "placements": [
                    {"replica": f"j/main/{n}", "node": "n1", "zones": [{"zone": 0}, {"zone": 1}]} for n in range(5)
                ]
            },
            "placements: j/main/0 on n1 zone 0,1, j/main/1 on n1 zone 0,1, j/main/2 on n1 zone 0,1 and 2 more",
        ),
        (
            {
                "job": "j",
                "changes": [
                    {"replica": "j/main/0", "previous": "Pending", "state": "Assigned"},
                    {"replica": "j/main/1", "previous": "Running", "state": "Failed"},
                    {"replica": "j/main/0", "previous": "Assigned", "state": "Running"},
                ],
            },
            "job=j changes: main/0 Pending -> Assigned -> Running, main/1 Running -> Failed",
        ),
        ({"replica": "j/main/0", "job": "j", "exit_code": 0, "eviction": ""}, "replica=j/main/0 exit_code=0"),
        (
            {"nodes": [{"node": "n1", "attempts": [["j/main/0", 1], ["j/main/1", 2]]}]},
            "nodes: j/main/0, j/main/1 on n1",
        ),
        (
            {"nodes": 6, "counts": [{"reason": "batch-cpu-short", "nodes": 6}], "nearest": MISS, "never": False},
            "nodes=6 counts: 6 batch-cpu-short nearest: 1.5 CPU short in n1 (0.5 of 2)",
        ),
        (
            {"nearest": MISS, "never": True},
            "nearest: no node could hold one even when empty: a machine has 0.5 CPU at most (n1), it needs 2",
        ),
        (
            {"proposal": {"node": "n1", "victims": [{"replica": "k/main/0"}], "revision": 1, "at_ms": 2}},
            "would fit on n1 if k/main/0 left",
        ),
        (
            {"placement_requests": [{"replica": "j/main/0"}], "zones": [{}, {}], "spec": {"a": 1}},
            "placement_requests: j/main/0 zones: 2 spec[1]",
        ),
        ({"detail": "x" * 400}, f"detail={'x' * 290}..."),
    ],
    ids=[
        "fields",
        "placements",
        "changes",
        "an end",
        "releases",
        "a refusal",
        "never",
        "a preemption",
        "other lists",
        "long",
    ],
)
def test_a_fact_names_its_subject(body: dict[str, Any], text: str) -> None:
    assert fact_text({**HEAD, **body}) == text
