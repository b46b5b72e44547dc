"""`colo admin credentials`: users are made, given new keys, let in no longer and made again; two commands at once lose nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from colo_cli.bus_rights import ROLES
from colo_cli.main import main


def command(folder: Path, *words: str) -> int:
    return main(["admin", "credentials", *words, "-d", str(folder)])


def users_of(folder: Path) -> dict[str, list[str]]:
    return {user["name"]: user["keys"] for user in json.loads((folder / "users.json").read_text())}


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    found = tmp_path / "credentials"
    assert command(found, "init") == 0
    capsys.readouterr()
    return found


def test_only_its_owner_can_read_a_key(folder: Path):
    assert folder.stat().st_mode & 0o077 == 0
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.nkey")} == {0o400}
    assert users_of(folder).keys() == set(ROLES)


def test_the_folder_is_the_one_of_the_command_or_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLO_CREDENTIALS", str(tmp_path / "elsewhere"))
    assert main(["admin", "credentials", "init"]) == 0
    assert users_of(tmp_path / "elsewhere").keys() == set(ROLES)
    assert command(tmp_path / "named", "init") == 0
    assert users_of(tmp_path / "named") != users_of(tmp_path / "elsewhere")


def test_a_role_that_was_revoked_gets_a_new_user(folder: Path, capsys: pytest.CaptureFixture[str]):
    before = users_of(folder)
    assert command(folder, "revoke", "evictor") == 0
    assert not (folder / "evictor.nkey").exists()
    assert "evictor" not in (folder / "nats-users.conf").read_text() + (folder / "redis-users.acl").read_text()
    assert command(folder, "add-role", "evictor") == 0
    after = users_of(folder)
    assert after.keys() == before.keys()
    assert after["evictor"] != before["evictor"]
    assert (folder / "evictor.redis-password").exists()
    assert {name: keys for name, keys in after.items() if name != "evictor"} == {
        name: keys for name, keys in before.items() if name != "evictor"
    }
    capsys.readouterr()
    assert command(folder, "add-role", "evictor") == 1
    assert "has its user already, and nothing was changed" in capsys.readouterr().err
    assert users_of(folder) == after


def test_the_roles_of_a_later_version_get_their_users(folder: Path, capsys: pytest.CaptureFixture[str]):
    whole = users_of(folder)
    assert command(folder, "revoke", "workload", "feed") == 0
    assert command(folder, "add-role") == 0
    assert users_of(folder).keys() == whole.keys()
    capsys.readouterr()
    assert command(folder, "add-role") == 0
    assert capsys.readouterr().out == "every role has its user\n"


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("init",), 2, "has users already"),
        (("add-role", "collector"), 2, "role: must be one of"),
        (("add-node", "a b"), 2, "node"),
        (("revoke", "nobody"), 1, "there is none of this name, and nothing was changed"),
        (("rotate", "nobody"), 1, "there is none of this name, and nothing was changed"),
    ],
)
def test_what_is_wrong_is_said_and_changes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], status: int, says: str
):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert command(folder, *words) == status
    assert says in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_that_is_not_there_is_not_made_by_who_changes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for words in (("rotate",), ("revoke", "jobs"), ("add-role",), ("add-node", "n")):
        assert command(tmp_path / "nowhere", *words) == 2
        assert "directory: must be" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_a_rotation_has_two_steps(folder: Path, capsys: pytest.CaptureFixture[str]):
    (old,) = users_of(folder)["jobs"]
    assert command(folder, "rotate", "jobs") == 0
    assert capsys.readouterr().out == "1 user has a new and an old key\n"
    assert users_of(folder)["jobs"][0] == old
    assert command(folder, "rotate", "jobs") == 1
    assert "is being rotated" in capsys.readouterr().err
    assert command(folder, "rotate", "--finish") == 0
    (new,) = users_of(folder)["jobs"]
    assert new != old


def at_once(*commands: tuple[str, ...]) -> None:
    """Run commands as processes of their own, all at the same time."""

    def run(words: tuple[str, ...]) -> None:
        line = [sys.executable, "-m", "colo_cli", "admin", *words]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr

    with ThreadPoolExecutor(len(commands)) as pool:
        list(pool.map(run, commands))


def test_commands_at_the_same_time_lose_nothing(folder: Path, tmp_path: Path):
    tokens = tmp_path / "tokens.json"
    names = [f"n{number}" for number in range(4)]
    at_once(
        *(("credentials", "add-node", name, "-d", str(folder)) for name in names),
        *(("tokens", "add", name, "--role", "viewer", "--file", str(tokens)) for name in names),
    )
    assert {f"collector-{name}" for name in names} <= users_of(folder).keys()
    assert sorted(row["name"] for row in json.loads(tokens.read_text())) == names
