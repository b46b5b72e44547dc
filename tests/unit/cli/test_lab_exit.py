"""The verdict of a lab is one: its exit code, its JSON and its last line say the same."""

import json
from typing import Any

import pytest
from msgspec.structs import fields, replace

from colo_cli import lab_run
from colo_cli.lab_observe import LabObserver
from colo_cli.lab_options import LabOptions
from colo_cli.lab_processes import LabFailed
from colo_cli.lab_verdict import LabFigures, LabVerdict, verdict_of
from colo_cli.main import main
from colo_sim.machine_reading import MachineLedger, MachineReport

LIVED_MS = 600_000
NOTHING = MachineLedger(**{field.name: 0 for field in fields(MachineLedger) if field.type is int})


def a_verdict(*, lived_ms: int = LIVED_MS, added_ms: int = 0, errors: tuple[str, ...] = ()) -> LabVerdict:
    ledger = replace(NOTHING, node_ms=lived_ms, cpu_capacity_mcpu=64_000, added_harm_ms=added_ms)
    figures = LabFigures(
        nodes=1, speed=60, duration_s=10.0, speed_reached=60.0, slowest_speed=60.0, submitted=1, errors=list(errors)
    )
    report = MachineReport(claimed_ms=lived_ms, delay_bound_pct=57.8, ledgers={"node-01": ledger})
    return verdict_of(figures, LabObserver(), report)


@pytest.mark.parametrize(
    ("verdict", "ok", "code", "line"),
    [
        (a_verdict(), True, 0, "VERDICT: OK"),
        (a_verdict(added_ms=LIVED_MS // 200), True, 0, "VERDICT: OK"),
        (a_verdict(added_ms=LIVED_MS // 200 + 1_000), False, 1, "VERDICT: NOT OK"),
        (a_verdict(errors=("placed twice: j/main/0#1",)), False, 1, "VERDICT: NOT OK"),
        (a_verdict(lived_ms=30_000), None, 0, "VERDICT: none, because the machines lived less than a simulated minute"),
    ],
    ids=["no harm", "harm at the bound", "harm above the bound", "an error", "too short"],
)
def test_exit_code_json_and_screen_say_the_same(
    verdict: LabVerdict,
    ok: bool | None,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seeds = []

    async def lived(options: LabOptions, _progress: Any) -> LabVerdict:
        seeds.append(options.seed)
        return verdict

    monkeypatch.setattr(lab_run, "run_lab", lived)
    assert main(["lab", "--seed", "3", "--duration", "10s"]) == code
    *before, last = capsys.readouterr().out.splitlines()
    assert last == line
    broken = [one.removeprefix("broken: ") for one in before if one.startswith("broken: ")]
    assert bool(broken) == (ok is False)
    assert main(["lab", "--seed", "3", "--duration", "10s", "--json"]) == code
    reported = json.loads(capsys.readouterr().out)
    assert reported["ok"] is ok
    assert reported["broken_bounds"] == broken
    assert seeds == [3, 3]


def test_a_lab_that_failed_has_no_verdict(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def failed(_options: LabOptions, _progress: Any) -> LabVerdict:
        raise LabFailed("jobs ended too often")

    monkeypatch.setattr(lab_run, "run_lab", failed)
    assert main(["lab", "--json"]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "colo: the lab failed: jobs ended too often\n")
