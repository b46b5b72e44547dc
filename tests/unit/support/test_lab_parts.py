"""Parts of the kernel lab that need no machine: the archive, the table of machines, the emulator's arguments, refusals."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.kernel.lab import machine, packages
from tests.kernel.lab.archive import directory, file, link, write_archive
from tests.kernel.lab.boots import FAILED, FROZEN, TIMED_OUT, status_of
from tests.kernel.lab.machine import Server, boot, emulator_command
from tests.kernel.lab.refused import LabRefused, MachineFailed
from tests.kernel.lab.variants import VARIANTS, Variant, variant_named
from tests.support.waiting import LIMIT_S


def names_in(archive: bytes) -> list[tuple[str, int, bytes]]:
    """Name, mode and content of every record of a newc archive."""
    found, at = [], 0
    while at < len(archive):
        assert archive[at : at + 6] == b"070701"
        mode, size, name_size = (int(archive[at + begin : at + begin + 8], 16) for begin in (14, 54, 94))
        name = archive[at + 110 : at + 110 + name_size - 1].decode()
        begin = at + 110 + name_size + -(110 + name_size) % 4
        found.append((name, mode, archive[begin : begin + size]))
        at = begin + size + -size % 4
    return found


def test_an_archive_has_its_entries_in_order_with_the_directories_above_them() -> None:
    out = io.BytesIO()
    entries = [
        file("/a/b/c", b"text"),
        link("/z", "a/b"),
        directory("/tmp", 0o777),
        file("/a/b/c", b"newer", program=True),
    ]
    written = write_archive(out, entries)
    assert written == len(out.getvalue())
    assert written % 4 == 0
    assert names_in(out.getvalue()) == [
        ("a", 0o040755, b""),
        ("a/b", 0o040755, b""),
        ("a/b/c", 0o100755, b"newer"),
        ("tmp", 0o040777, b""),
        ("z", 0o120777, b"a/b"),
        ("TRAILER!!!", 0, b""),
    ]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.name)
def test_every_machine_has_each_of_its_cpus_in_one_zone(variant: Variant) -> None:
    listed: list[int] = []
    for cpus in variant.zones:
        first, _, last = cpus.partition("-")
        listed += range(int(first), int(last) + 1)
    assert listed == list(range(variant.cpus))
    assert set(variant.offline) < set(listed)
    assert len(variant.zones) % variant.zones_per_socket == 0


def test_the_emulator_is_asked_for_the_zones_and_for_no_network_but_the_servers() -> None:
    server = Server(guest_port=4222, host="127.0.0.1", port=5)
    command = emulator_command(
        Path("/e"),
        Path("/k"),
        Path("/i"),
        variant_named("numa2"),
        servers=[server],
        console=Path("/c"),
        status=Path("/s"),
    )
    assert "16,sockets=2,cores=4,threads=2" in command
    assert [word for word in command if word.startswith("node,")] == [
        "node,nodeid=0,cpus=0-7,memdev=zone0",
        "node,nodeid=1,cpus=8-15,memdev=zone1",
    ]
    (network,) = (word for word in command if word.startswith("user,"))
    assert network.startswith("user,id=net,restrict=on,guestfwd=tcp:10.0.2.100:4222-cmd:")
    assert network.endswith("relay.py 127.0.0.1 5")


@pytest.mark.parametrize(
    ("programs", "root", "says"),
    [
        ({"apt-get": "/usr/bin/apt-get"}, False, "only root may install it: apt-get install qemu-system-x86"),
        ({}, True, "is missing and so is apt-get"),
    ],
    ids=["no root", "no Debian"],
)
def test_a_missing_emulator_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, programs: dict[str, str], root: bool, says: str
) -> None:
    monkeypatch.setattr(shutil, "which", programs.get)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    with pytest.raises(LabRefused, match=says):
        packages.need_emulator()


def emulator(directory: Path, does: str) -> Path:
    """A program in the emulator's place, which does this with the files for status and console."""
    path = directory / "emulator"
    path.write_text(
        "#!/bin/sh\n"
        'for word in "$@"; do case "$word" in\n'
        "file,id=status,path=*) status=${word##*=} ;; file,id=console,path=*) console=${word##*=} ;;\n"
        "esac; done\n"
        f"{does}\n"
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def late_when_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still until the machine has written what it writes, and is at an hour then."""

    def now_s() -> float:
        status = tmp_path / "status"
        return 3_600.0 if status.exists() and status.read_text().endswith("\n") else 0.0

    monkeypatch.setattr(machine, "time", SimpleNamespace(monotonic=now_s))


def booted(directory: Path, does: str, limit_s: float, out: io.BytesIO | None = None) -> int:
    return boot(
        emulator(directory, does),
        directory,
        directory,
        variant_named("numa1"),
        servers=(),
        limit_s=limit_s,
        scratch=directory,
        out=out or io.BytesIO(),
        frozen_after_s=1.0,
    )


@pytest.mark.parametrize(
    ("does", "status"), [('printf "up\\n0\\n" > "$status"', 0), ('printf "up\\n7\\n" > "$status"', 7)]
)
def test_the_status_is_what_follows_the_word_that_the_command_begins(tmp_path: Path, does: str, status: int) -> None:
    assert booted(tmp_path, does, LIMIT_S) == status


@pytest.mark.parametrize(
    ("does", "limit_s", "says", "began"),
    [
        ("exec sleep 60", 0.5, "the machine did not come up within 0.5 s; it was ended", False),
        (
            'echo "kernel-lab: the ports to the host did not appear" > "$console"',
            LIMIT_S,
            "the machine did not come up: the emulator gave it no ports to the host",
            False,
        ),
        ('echo up > "$status"', LIMIT_S, "the machine went off before the command had ended", True),
        ("echo no such CPU >&2; exit 1", LIMIT_S, "the emulator ended with 1: no such CPU", True),
    ],
    ids=["never up", "no ports", "goes off", "does not start"],
)
def test_a_machine_without_a_status_says_how_far_it_came(
    tmp_path: Path, does: str, limit_s: float, says: str, began: bool
) -> None:
    with pytest.raises(MachineFailed) as failed:
        booted(tmp_path, does, limit_s)
    assert str(failed.value) == says
    assert failed.value.began is began
    assert failed.value.machine_broke is ("no ports" in says)


def test_init_says_that_there_are_no_ports_in_the_words_that_are_looked_for() -> None:
    init = Path(machine.__file__).with_name("init").read_text()
    assert '|| end "the ports to the host did not appear"' in init
    assert 'echo "kernel-lab: $1" > /dev/console' in init


@pytest.mark.usefixtures("late_when_up")
def test_a_command_that_hangs_is_ended_at_the_limit(tmp_path: Path) -> None:
    with pytest.raises(MachineFailed, match="^the command did not end within 2 s; the machine was ended$") as failed:
        booted(tmp_path, 'echo up > "$status"; exec sleep 60', 2)
    assert failed.value.began


@pytest.mark.usefixtures("late_when_up")
def test_a_machine_that_does_not_go_off_takes_no_status_away(tmp_path: Path) -> None:
    assert booted(tmp_path, 'printf "up\\n7\\n" > "$status"; exec sleep 60', 3) == 7


STALLS = 'echo "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:" > "$console"'


def test_a_machine_that_reports_a_stall_and_goes_silent_is_ended_long_before_the_limit(tmp_path: Path) -> None:
    with pytest.raises(MachineFailed, match="the emulated machine froze: its own kernel reported a stall") as failed:
        booted(tmp_path, f'echo up > "$status"; {STALLS}; exec sleep 60', LIMIT_S)
    assert failed.value.machine_broke
    assert not failed.value.timed_out
    assert "detected stalls" in failed.value.console_tail


def test_a_second_machine_in_the_same_place_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    out = io.BytesIO()
    mark = tmp_path / "booted"
    does = (
        f"if [ -e {mark} ]; then echo second; printf 'up\\n5\\n' > \"$status\"; exit; fi\n"
        f'touch {mark}; echo first; echo up > "$status"; {STALLS}; exec sleep 60'
    )
    with pytest.raises(MachineFailed, match="froze"):
        booted(tmp_path, does, LIMIT_S, out)
    assert booted(tmp_path, does, LIMIT_S, out) == 5
    assert out.getvalue() == b"first\nsecond\n"


FROZE = MachineFailed("it froze", "", machine_broke=True)
NEVER_UP = MachineFailed("it did not come up", "", machine_broke=True, began=False)
LATE = MachineFailed("too late", "", timed_out=True)
PANICKED = MachineFailed("it panicked", "")


@pytest.mark.parametrize(
    ("happens", "status"),
    [
        ((0,), 0),
        ((NEVER_UP, 7), 7),
        ((NEVER_UP, NEVER_UP), FROZEN),
        ((NEVER_UP, FROZE), FROZEN),
        ((NEVER_UP, LATE), TIMED_OUT),
        ((NEVER_UP, PANICKED), FAILED),
        ((FROZE,), FROZEN),
        ((LATE,), TIMED_OUT),
        ((PANICKED,), FAILED),
    ],
    ids=[
        "well",
        "up late",
        "never up",
        "up late and froze",
        "up late and then late",
        "up late and then panic",
        "froze",
        "late",
        "panic",
    ],
)
def test_only_a_machine_in_which_nothing_had_begun_is_booted_once_more(
    happens: tuple[int | MachineFailed, ...], status: int
) -> None:
    coming = iter(happens)

    def boot_once(left_s: float) -> int:
        assert 0 < left_s <= 60
        outcome = next(coming)
        if isinstance(outcome, MachineFailed):
            raise outcome
        return outcome

    assert status_of(boot_once, limit_s=60) == status
    assert next(coming, None) is None


@pytest.mark.parametrize("limit_s", [0, 0.9])
def test_no_machine_is_booted_when_no_time_is_left(limit_s: float) -> None:
    asked = []

    def boot_once(left_s: float) -> int:
        asked.append(left_s)
        raise FROZE

    assert status_of(boot_once, limit_s=limit_s) == FROZEN
    assert len(asked) == 1
