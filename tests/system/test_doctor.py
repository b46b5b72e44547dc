"""`colo doctor` says of this machine what its own files show, and what it means that something is missing."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from colo_cli.doctor import summary
from colo_cli.main import main

Rows = dict[str, dict[str, Any]]

PRESSURE: Final = Path("/proc/pressure")
CONTROLLERS: Final = ("cpu", "cpuset", "memory")


def diagnosed(capsys: pytest.CaptureFixture[str]) -> Rows:
    """The rows of `colo doctor -o json` by name."""
    assert main(["doctor", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len({row["name"] for row in rows}) == len(rows)
    return {row["name"]: row for row in rows}


def mounts() -> Iterator[tuple[str, str, list[str]]]:
    """Path, type and options of every mount of this process."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, path, kind, options, *_ = line.split()
        yield path, kind, options.split(",")


def controllers() -> dict[str, list[str]]:
    """Controller -> where it is mounted, under either version."""
    found: dict[str, list[str]] = {name: [] for name in CONTROLLERS}
    for path, kind, options in mounts():
        listed = options if kind == "cgroup" else []
        if kind == "cgroup2":
            listed = Path(path, "cgroup.controllers").read_text().split()
        for name in set(listed) & set(found):
            found[name].append(path)
    return found


def test_the_machine_is_as_its_files_show(capsys: pytest.CaptureFixture[str]) -> None:
    rows = diagnosed(capsys)
    assert rows["python"]["detail"] == platform.python_version()
    known = [name for name in ("cpu", "memory", "io") if (PRESSURE / name).exists()]
    assert rows["psi"]["present"] is bool(known)
    assert not known or rows["psi"]["detail"].split() == known
    for name, paths in controllers().items():
        row = rows[f"cgroup-{name}"]
        assert row["present"] is bool(paths), row
        assert not paths or any(row["detail"].endswith(f" at {path}") for path in paths), row
    assert rows["cgroup"]["present"] is any(kind in ("cgroup", "cgroup2") for _, kind, _ in mounts())
    zones = [path for path in Path("/sys/devices/system/node").glob("node*") if path.name[4:].isdigit()]
    assert rows["numa"]["present"] is (len(zones) > 1)
    assert rows["root"]["present"] is (os.geteuid() == 0)
    assert rows["resctrl-l3"]["present"] is any(Path("/sys/fs/resctrl/info").glob("L3*/cbm_mask"))
    for name in ("cpu-idle", "cpu-burst"):
        assert not rows[name]["present"] or Path(rows[name]["detail"]).is_file(), rows[name]


def test_a_server_is_a_program_that_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    rows = diagnosed(capsys)
    for name in ("nats-server", "redis-server"):
        assert not rows[name]["present"] or os.access(rows[name]["detail"], os.X_OK), rows[name]


def test_only_what_is_missing_has_a_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    for row in diagnosed(capsys).values():
        if row["present"]:
            assert row["means"] == "", row
        else:
            assert row["detail"], row
            assert row["means"], row


def test_the_last_lines_say_what_the_machine_is_good_for() -> None:
    names = (
        "cgroup-cpu",
        "cgroup-memory",
        "cgroup-write",
        "root",
        "online",
        "schedstat",
        "nats-server",
        "redis-server",
    )
    rows = [{"name": name, "present": name not in ("root", "redis-server")} for name in names]
    assert summary(rows) == [
        "runs batch work: no, it lacks root",
        "runs online work beside it: no, it lacks cgroup-cpuset, root",
        "shows who stalls: yes",
        "runs a lab (`colo lab`): no, it lacks redis-server",
    ]


def test_the_table_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    rows = diagnosed(capsys)
    lines = table(capsys)
    end = lines.index("")
    shown = [line.split()[:2] for line in lines[1:end]]
    assert shown == [[name, "yes" if row["present"] else "no"] for name, row in rows.items()]
    assert lines[end + 1 :] == summary(list(rows.values()))


def table(capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["doctor"]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_user_without_rights_and_servers_is_told_what_will_not_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    monkeypatch.setattr(os, "access", lambda *_args, **_named: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("colo_cli.servers._scripts_directory", lambda: tmp_path)
    rows = diagnosed(capsys)
    means = {name: row["means"] for name, row in rows.items() if not row["present"]}
    assert means["root"] == "`colo lab --real` and the executor need root"
    assert means["cgroup-write"] == "the executor cannot enforce anything here; simulated nodes work"
    assert means["nats-server"] == "the lab needs one: install the lab extra or give its URL"
    assert rows["nats-server"]["detail"].startswith("must be on the PATH")
