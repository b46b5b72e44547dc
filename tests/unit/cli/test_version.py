"""`colo version --check` says which versions run beside each other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from colo_cli import version
from colo_cli.client import Client
from tests.support.builders import a_status

OWN = version.colo_version()


def service(name: str, *versions: str) -> dict[str, Any]:
    instances = [
        msgspec.to_builtins(a_status(name, boot_id=f"b{number}", version=each)) for number, each in enumerate(versions)
    ]
    return {
        "service": name,
        "is_ready": bool(versions),
        "why": "" if versions else "nobody answers",
        "instances": instances,
    }


@pytest.mark.parametrize(
    ("services", "status", "says"),
    [
        ([service("jobs", OWN), service("scheduler", OWN, OWN)], 0, [f"{OWN}: this command line, jobs, scheduler (2)"]),
        (
            [service("jobs", OWN), service("scheduler", OWN, "9.9.9", "9.9.9")],
            1,
            [
                f"{OWN}: this command line, jobs, scheduler",
                "9.9.9: scheduler (2)",
                "2 versions run beside each other, which they may while you upgrade: docs/install.md, Upgrade",
            ],
        ),
        (
            [service("jobs", OWN), service("scheduler")],
            1,
            [f"{OWN}: this command line, jobs", "not known: scheduler: nobody answers"],
        ),
    ],
    ids=["one", "two", "one that is away"],
)
def test_versions_that_run_beside_each_other_are_named(
    services: list[dict[str, Any]],
    status: int,
    says: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    answer = {"services": services, "at_ms": 2, "clock_speed": 1.0}
    monkeypatch.setattr(Client, "get", lambda *_args, **_given: answer)
    assert version.version(check=True) == status
    assert capsys.readouterr().out.splitlines()[1:] == says


def test_without_the_check_nobody_is_asked(capsys: pytest.CaptureFixture[str]):
    assert version.version() == 0
    assert capsys.readouterr().out.startswith(f"colo {OWN}, python ")
