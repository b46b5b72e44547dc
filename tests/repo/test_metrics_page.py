"""docs/metrics.md is what the code registers, and what alerts and dashboards ask for exists."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.repo.metrics_page import PAGE, metrics, page
from tests.repo.tree import ROOT, SERVICES

FILES = ROOT / "k8s" / "colo" / "files"
ASKING = sorted((*FILES.glob("rules/*.yaml"), *FILES.glob("dashboards/*.json")))
SUFFIXES = ("_bucket", "_count", "_sum")


@cache
def known() -> set[str]:
    names = {each.name for each in metrics()}
    return {
        each.replace("<service>", service)
        for each in names
        for service in (*SERVICES, "restrictions", "policy", "feed", "sim")
    }


def test_the_page_of_metrics_is_up_to_date():
    assert PAGE.read_text() == page(), "run `just metrics`"


def test_a_metric_says_what_it_is_and_names_its_unit():
    for each in metrics():
        assert each.says, each.name
        assert each.kind != "counter" or each.name.endswith("_total"), each.name


@pytest.mark.parametrize("path", ASKING, ids=lambda path: path.name)
def test_alerts_and_dashboards_ask_for_metrics_that_exist(path: Path):
    text = re.sub(r"https?://\S+", "", path.read_text())
    asked = set(re.findall(r"\bcolo_[a-z0-9_]+", text))
    assert asked
    assert not {each for each in asked if each not in known() and each.removesuffix(_suffix(each)) not in known()}


def test_the_dashboards_are_what_their_program_writes():
    program = "import runpy,sys; d=runpy.run_path(sys.argv[1]); print([*map(d['text'], d['BOARDS']), d['base']()])"
    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT / "k8s" / "dashboards.py")], capture_output=True, text=True, check=True
    )
    written = [
        (FILES / "dashboards" / f"{name}.json").read_text() for name in ("fleet", "node", "scheduler", "services")
    ]
    # And what kubectl applies has them, which only Helm writes otherwise.
    applied = (ROOT / "k8s" / "base" / "colo.yaml").read_text()
    assert done.stdout.strip() == repr([*written, applied]), "run `just dashboards`"
    for text in written:
        queries = [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
        assert queries
        assert len(set(queries)) == len(queries)


def _suffix(name: str) -> str:
    return next((each for each in SUFFIXES if name.endswith(each)), "")
