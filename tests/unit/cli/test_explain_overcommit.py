"""How `colo explain overcommit` prints the formula."""

from __future__ import annotations

from typing import Any

import pytest

from colo_cli import explain
from colo_cli.client import Client

GIB = 1 << 30


def a_term(name: str, zone: int, value: int, unit: str = "mcpu") -> dict[str, Any]:
    return {"name": name, "zone": zone, "value": value, "unit": unit, "source": f"source of {name}"}


def a_zone(zone: int, cpu: int) -> dict[str, Any]:
    return {
        "zone": zone,
        "batch_cpu_mcpu": cpu,
        "headroom_cpu_mcpu": -cpu,
        "batch_memory_bytes": 3 * GIB // 2,
        "headroom_memory_bytes": 64 << 20,
    }


def test_a_term_that_only_some_zones_have_is_printed_for_those(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terms = [a_term("cpu_capacity", zone, 16_000) for zone in (0, 1)]
    terms += [a_term("cpu_reclaim_pct", zone, 75, "pct") | {"age_ms": 65_000 + zone * 1_000} for zone in (0, 1)]
    terms += [a_term("cpu_lse_requested", 1, 4_250), a_term("memory_held", 0, 512 << 10, "bytes")]
    published = {
        "node": "n1",
        "sampled_at_ms": 1,
        **{name: 2 * value for name, value in a_zone(0, 1_064).items() if name != "zone"},
        "sample_seq": 7,
        "freshness": "fresh",
        "zones": [a_zone(0, 1_064), a_zone(1, 50)],
        "explanation": {"formula": "the formula", "terms": terms},
    }
    answer = {"published": published, "newest": published["explanation"], "age_ms": 1_000}
    monkeypatch.setattr(Client, "get", lambda *_args, **_given: answer)
    assert explain.overcommit("n1") == 0
    bar = ["█" * 18 + "▒" * 6]
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    for row in (
        ["cpu_capacity", "16", "16", "source", "of", "cpu_capacity"],
        ["cpu_reclaim_pct", "75%", "75%", "66s", "source", "of", "cpu_reclaim_pct"],
        ["-", "margin", "8", "24", "66s", *bar],
        ["cpu_lse_requested", "-", "4.25", "source", "of", "cpu_lse_requested"],
        ["=", "allocatable", "1.064", "0.05", "formula"],
        ["=", "headroom", "-1.064", "-0.05", "formula"],
        ["memory_held", "512Ki", "-", "source", "of", "memory_held"],
        ["=", "allocatable", "1.5Gi", "1.5Gi", "formula"],
        ["=", "headroom", "64Mi", "64Mi", "formula"],
    ):
        assert row in rows
