"""Every alert has its page, its severity and its sentence, and fires in promtool's own test where promtool is there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.repo.tree import ROOT

RULES = ROOT / "k8s" / "colo" / "files" / "rules" / "colo.yaml"
CASES = Path(__file__).parent / "alert_cases.yaml"
ALERTS = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_runbook_that_says_what_it_means_and_what_to_do(name: str):
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
    page = ROOT / rule["annotations"]["runbook"]
    assert page == ROOT / "docs" / "runbooks" / f"{name}.md"
    text = page.read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["What it means", "Look", "Do"]


def test_a_runbook_is_that_of_an_alert_or_one_to_which_such_a_page_leads():
    texts = {page.stem: page.read_text() for page in (ROOT / "docs" / "runbooks").glob("*.md")}
    assert texts.keys() >= ALERTS.keys()
    for name in texts.keys() - ALERTS.keys():
        assert any(f"]({name}.md)" in texts[alert] for alert in ALERTS), name
        assert re.findall(r"^## (.+)$", texts[name], re.MULTILINE) == ["What it means", "Look", "Do"]


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not():
    found: dict[str, set[bool]] = {}
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for each in case["alert_rule_test"]:
            found.setdefault(each["alertname"], set()).add(bool(each.get("exp_alerts")))
    assert found == {name: {True, False} for name in ALERTS}


def test_every_alert_fires_when_its_figures_say_so(tmp_path: Path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("NOT PROVED: there is no promtool (Debian: prometheus)")
    (tmp_path / "colo.yaml").write_text(RULES.read_text())
    (tmp_path / "cases.yaml").write_text(CASES.read_text())
    for words in (("check", "rules", "colo.yaml"), ("test", "rules", "cases.yaml")):
        done = subprocess.run([promtool, *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=50)
        assert done.returncode == 0, done.stdout + done.stderr
