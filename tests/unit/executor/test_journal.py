"""The journal: what a crash leaves readable, what the lines add up to, and one owner at a time."""

import errno
import os
import subprocess
import sys
from bisect import bisect_right
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from colo_common.events.enforcement import PlacementRefused, ReplicaEnded
from colo_common.model.reasons import EndCause, Reason
from colo_executor import journal as journal_module
from colo_executor.journal import JournalBusy, JournalFile
from colo_executor.journal_lines import (
    Accepted,
    Booted,
    Created,
    EndedEntry,
    JournalState,
    Launched,
    PreImage,
    RefusedEntry,
    Stopping,
    TermEntry,
    compacted,
    decode,
    encode,
)
from colo_executor.local import StopIntent
from tests.support.builders import a_placement
from tests.support.journal_steps import Death

INTENT = StopIntent(cause=EndCause.EVICTED, reason=Reason.CPU_WATERMARK, kill_at_ms=9, eviction="e1")


def launched(replica: str = "job/main/0", attempt: int = 1) -> Launched:
    return Launched(placement=a_placement(replica, attempt=attempt), pid=7, start_ticks=70, at_ms=1)


def ended(replica: str = "job/main/0") -> EndedEntry:
    return EndedEntry(
        fact=ReplicaEnded(node="n1", replica=replica, job="job", attempt=1, cause=EndCause.EXITED, exit_code=3)
    )


ENTRIES = [
    Booted(boot_id="b1"),
    Created(path="cpu/colo"),
    PreImage(path="cgroup.subtree_control", value="memory"),
    Accepted(placement=a_placement("job/main/1", attempt=2)),
    launched(),
    Stopping(replica="job/main/0", attempt=1, intent=INTENT),
    launched("job/main/2"),
    ended("job/main/2"),
    TermEntry(order="stop", generation=1_000),
    TermEntry(order="evict", generation=7),
    RefusedEntry(fact=PlacementRefused(node="n1", replica="job/x/0", job="job", attempt=1, reason=Reason.START_FAILED)),
]
TEXT = b"".join(encode(entry) for entry in ENTRIES)


def facts_of(state: JournalState) -> tuple[object, ...]:
    return (
        state.boot_id,
        state.pre_images,
        state.created,
        state.accepted,
        state.launched,
        state.stopping,
        state.ended,
        state.terms.items(),
    )


def test_of_each_kind_of_order_the_newest_term_counts_whatever_the_order_of_lines():
    state = JournalState([*ENTRIES, TermEntry(order="stop", generation=999), TermEntry(order="evict", generation=8)])
    # Not forgotten with another boot: terms are those of the control plane.
    state.add(Booted(boot_id="b2"))
    assert state.terms.items() == [("evict", 8), ("stop", 1_000)]
    assert JournalState(compacted(state)).terms.items() == state.terms.items()


def test_what_is_written_is_read_again():
    assert decode(TEXT) == (ENTRIES, 0, 0)


@pytest.mark.parametrize("cut", range(0, len(TEXT), 37))
def test_a_journal_cut_anywhere_gives_the_whole_lines_before_the_cut(cut):
    entries, left_out, damaged = decode(TEXT[:cut])
    assert entries == ENTRIES[: len(entries)]
    assert damaged == 0
    assert cut - left_out == len(b"".join(encode(entry) for entry in entries))


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line.replace(b"job/main/1", b"job/main/9"),
        lambda line: b"",
        lambda line: encode(Booted(boot_id="x")).strip().replace(b"booted", b"of a later version")[8:],
    ],
    ids=["a flipped bit", "nothing", "without its checksum"],
)
def test_a_damaged_line_takes_no_other_with_it(damage):
    lines = TEXT.splitlines()
    lines[3] = damage(lines[3])
    assert decode(b"\n".join(lines) + b"\n") == (ENTRIES[:3] + ENTRIES[4:], 0, 1)


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_takes_the_line_that_it_is_in_and_no_other(bit):
    begins = [0]
    for line in TEXT.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    for at in range(len(TEXT)):
        damaged = TEXT[:at] + bytes([TEXT[at] ^ 1 << bit]) + TEXT[at + 1 :]
        line = bisect_right(begins, at) - 1
        # The end of a line makes one of two.
        lost = {line, line + 1} if at + 1 == begins[line + 1] else {line}
        assert decode(damaged)[0] == [entry for number, entry in enumerate(ENTRIES) if number not in lost]


def test_a_damaged_journal_is_kept_aside_and_the_last_three_of_them(tmp_path):
    for turn in range(5):
        journal = JournalFile(tmp_path)
        journal.append(ended(f"job/main/{turn}"))
        journal.close()
        with (tmp_path / "journal").open("ab") as file:
            file.write(b"%d damaged\n" % turn)
        again = JournalFile(tmp_path)
        assert (again.damaged_lines, again.put_aside) == (1, f"journal.damaged-{turn + 1}")
        assert f"job/main/{turn}#1" in again.state.ended
        again.close()
    kept = sorted(path.name for path in tmp_path.glob("journal.damaged-*"))
    assert kept == ["journal.damaged-3", "journal.damaged-4", "journal.damaged-5"]
    assert (tmp_path / kept[0]).read_bytes().endswith(b"2 damaged\n")


@pytest.fixture
def disk(tmp_path):
    """A disk of 96 KiB, or skip where this process may not mount one."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", path], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this process may not mount")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


@pytest.mark.kernel
def test_a_full_disk_loses_nothing_that_it_had_and_gets_the_rest_later(disk):
    journal = JournalFile(disk)
    journal.append(*ENTRIES)
    filler = disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(1 << 20))
    facts = [ended(f"job/late/{index}") for index in range(200)]
    with pytest.raises(OSError, match="No space left"):
        journal.append(*[launched(f"job/refused/{index}") for index in range(200)])
    assert not any("refused" in key for key in journal.state.launched)
    journal.note(*facts)
    assert journal.is_behind
    assert not journal.catch_up()
    # A crash now: what the disk had is there, whole.
    assert decode((disk / "journal").read_bytes())[0][: len(ENTRIES)] != []
    assert facts_of(JournalState(decode((disk / "journal").read_bytes())[0])) == facts_of(JournalState(ENTRIES))
    journal.close()
    # A start on the full disk.
    again = JournalFile(disk)
    assert facts_of(again.state) == facts_of(JournalState(ENTRIES))
    again.note(*facts)
    assert again.is_behind
    filler.unlink()
    assert again.catch_up()
    again.append(launched("job/main/5"))
    again.close()
    third = JournalFile(disk)
    assert "job/late/199#1" in third.state.ended
    assert "job/main/5#1" in third.state.launched
    third.close()


def test_a_disk_that_takes_nothing_is_said_once_and_once_more_when_it_takes_all(tmp_path, monkeypatch):
    journal = JournalFile(tmp_path)
    write, refuses = journal_module._write_all, True

    def refused(fd: int, data: bytes) -> None:
        if refuses:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "journal.new")
        write(fd, data)

    monkeypatch.setattr(journal_module, "_write_all", refused)
    with capture_logs() as logs:
        assert not journal.trouble()
        for entry in ENTRIES:
            journal.note(entry)
            assert not journal.catch_up()
        (behind,) = logs
        assert (behind["event"], behind["log_level"], behind["path"]) == (
            "journal-behind",
            "warning",
            str(tmp_path / "journal"),
        )
        assert behind["refusal"] == "No space left on device"
        assert "lost if that ends before the disk takes it again" in behind["at_risk"]
        sentence = (
            f"the journal cannot be written: No space left on device ({tmp_path / 'journal'}); {behind['at_risk']}"
        )
        assert (journal.trouble(), journal.remarks()) == (sentence, [sentence])
        refuses = False
        assert journal.catch_up()
        assert journal.catch_up()
        assert [line["event"] for line in logs] == ["journal-behind", "journal-caught-up"]
        assert not journal.trouble()
    journal.close()


def test_the_shortest_form_adds_up_to_the_same():
    state = JournalState(ENTRIES)
    assert set(state.launched) == {"job/main/0#1"}
    assert state.stopping == {"job/main/0#1": INTENT}
    assert facts_of(JournalState(compacted(state))) == facts_of(state)


def test_the_first_old_value_of_a_file_stays_and_another_boot_forgets_it():
    state = JournalState([Booted(boot_id="b1"), PreImage(path="x", value="1"), PreImage(path="x", value="2")])
    assert state.pre_images == {"x": "1"}
    state.add(Booted(boot_id="b2"))
    assert state.pre_images == {}


def test_only_so_many_ends_are_kept():
    state = JournalState([ended(f"job/main/{index}") for index in range(10)], kept=3)
    assert list(state.ended) == ["job/main/7#1", "job/main/8#1", "job/main/9#1"]


def test_a_file_is_read_again_and_repairs_a_torn_end(tmp_path):
    journal = JournalFile(tmp_path)
    journal.append(*ENTRIES)
    before = facts_of(journal.state)
    journal.close()
    with (tmp_path / "journal").open("ab") as file:
        file.write(b"0badc0de {torn")
    again = JournalFile(tmp_path)
    assert facts_of(again.state) == before
    assert again.torn_bytes == 14
    again.append(ended())
    again.close()
    third = JournalFile(tmp_path)
    assert third.torn_bytes == 0
    assert third.state.launched == {}
    third.close()


def test_a_directory_has_one_owner(tmp_path):
    first = JournalFile(tmp_path)
    with pytest.raises(JournalBusy, match="another executor uses"):
        JournalFile(tmp_path)
    first.close()
    JournalFile(tmp_path).close()


def test_a_link_in_the_journals_place_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "journal.new").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        JournalFile(tmp_path / "state")
    assert (tmp_path / "elsewhere").read_text() == ""


def test_whatever_call_its_process_is_killed_at_a_journal_has_all_of_a_step_or_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.journal_steps", str(tmp_path)],
        capture_output=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr.decode()[-4_000:]
    deaths = [msgspec.json.decode(line, type=Death) for line in done.stdout.splitlines()]
    assert {death.call for death in deaths} >= {"open", "write", "fdatasync", "fsync", "rename", "close", ""}
    assert {death.step for death in deaths} == set(range(deaths[-1].step + 1))
    for death in deaths:
        assert death.state in (death.before, death.after), death
        assert not death.damaged_lines, death
        assert death.takes_more, death
    assert {death.state == death.after for death in deaths if death.before != death.after} == {True, False}
