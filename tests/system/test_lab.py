"""`colo lab` as people run it: what it prints, how it ends, and what it refuses with one sentence."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from colo_cli.server_process import tied_command
from colo_cli.servers import find_nats_server
from tests.support.lab import lab
from tests.support.servers import nats_server, redis_server
from tests.support.waiting import eventually_blocking

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(400)]

KEYS = {
    "ok", "nodes", "duration_s", "speed", "simulated_s", "claimed_s", "submitted", "placements", "rejections", "evictions",
    "needless_evictions", "completed", "online_cpu_util_pct", "cpu_util_pct", "reclaimed_core_hours", "plain_gain_ratio",
    "with_batch", "without_batch", "without_reflex", "plain_requests", "added_harm_ratio", "harm", "assumptions",
    "submit_to_decided_ms", "messages", "dead_letters", "errors",
}  # fmt: skip


def a_directory() -> Path:
    """Short, because the path of a socket in it must be."""
    return Path(tempfile.mkdtemp(prefix="ct-"))


def test_it_runs_for_the_duration_and_prints_one_object() -> None:
    with lab(a_directory(), "--nodes", "2", "--duration", "6s", "--json") as running:
        running.wait_for_log("service-started")
        eventually_blocking(lambda: _noted(running), "its processes")
        ended = running.end()
        left = running.left_behind()
    assert (ended.code, ended.stderr) == (0, "")
    verdict = ended.verdict
    assert verdict.keys() >= KEYS
    assert verdict["nodes"] == 2
    assert verdict["placements"] > 0
    assert (verdict["errors"], verdict["dead_letters"], verdict["placed_twice"]) == ([], 0, 0)
    assert verdict["redelivered"] == 0
    assert "real" not in verdict
    assert verdict["ok"] is True, verdict["broken_bounds"]
    assert verdict["simulated_s"] >= 0.9 * verdict["claimed_s"] > 60
    assert verdict["with_batch"]["harm_ratio"] >= verdict["without_batch"]["harm_ratio"]
    assert verdict["reclaimed_core_hours"] > 0 < verdict["plain_requests"]["batch_core_hours"]
    assert left == []


def _noted(running) -> bool:
    running.note_children()
    return len(running.children) >= 8


@pytest.mark.parametrize(
    ("event", "number"),
    [("http-listening", signal.SIGINT), ("service-started", signal.SIGINT), ("service-started", signal.SIGHUP)],
    ids=["Ctrl-C at once", "Ctrl-C", "the terminal is closed"],
)
def test_an_interrupt_while_it_starts_ends_it_and_leaves_nothing(event: str, number: int) -> None:
    with lab(a_directory(), "--nodes", "2", "--json") as running:
        running.wait_for_log(event)
        running.note_children()
        ended = running.interrupt(number=number)
        left = running.left_behind()
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.took_s < 60
    assert ended.verdict.keys() >= KEYS
    assert left == []


def test_at_the_highest_speed_the_clock_slows_down_rather_than_lies() -> None:
    with lab(a_directory(), "--nodes", "6", "--speed", "600", "--duration", "8s", "--json") as running:
        verdict = running.end().verdict
    assert verdict["simulated_s"] >= 0.95 * (verdict["claimed_s"] - 600)
    assert verdict["slowest_speed"] <= verdict["speed"] == 600
    assert (verdict["lost"], verdict["placed_twice"], verdict["errors"]) == (0, 0, [])


def test_a_terminal_shows_at_once_that_it_starts_and_then_a_picture_that_fits() -> None:
    shown, code = on_a_terminal("--nodes", "12", "--duration", "4s", columns=80, rows=24)
    assert code in (0, 1)
    assert shown.startswith("\r\x1b[Kcolo lab: starts")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", shown)
    assert max(len(line) for line in re.split(r"[\r\n]+", plain) if not line.startswith("note: ")) <= 80
    for text in ("node-12", "ask it: export COLO_API=http://127.0.0.1:", "events: NATS nats://127.0.0.1:", "VERDICT: "):
        assert text in plain


def on_a_terminal(*arguments: str, columns: int, rows: int) -> tuple[str, int]:
    """What `colo lab` writes to a terminal of that size until it ends, and its exit code."""
    pid, terminal = pty.fork()
    if pid == 0:
        # By the child: it must not ask for the size before there is one.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.execv(sys.executable, [sys.executable, "-m", "colo_cli", "lab", *arguments])
    shown = b""
    with contextlib.suppress(OSError):
        while piece := os.read(terminal, 65_536):
            shown += piece
    os.close(terminal)
    return shown.decode(errors="replace"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_two_labs_at_a_time_have_gateways_of_their_own() -> None:
    with lab(a_directory(), "--nodes", "1", "--json") as first:
        eventually_blocking(lambda: _noted(first), "the first one's processes")
        first.wait_for_log("http-listening")
        with lab(a_directory(), "--nodes", "1", "--duration", "3s", "--json") as second:
            ended = second.end()
            left = second.left_behind()
        assert (ended.code, left) == (0, [])
        ended = first.interrupt()
        assert (ended.code, first.left_behind()) == (0, [])
    assert ended.verdict["errors"] == []


# ---------------------------------------------------------------- what it refuses


def refused(*arguments: str) -> str:
    """The one sentence with which the lab refuses; nothing is printed beside it and nothing is left behind."""
    with lab(a_directory(), *arguments) as running:
        ended = running.end()
        left = running.left_behind()
    assert (ended.code, ended.stdout, left) == (2, "", [])
    sentence = ended.stderr
    assert sentence.startswith("colo: ")
    assert sentence.count("\n") == 1
    assert "Traceback" not in sentence
    return sentence


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "port: must be a port this program may listen on" in refused("--port", str(port))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "bad.csv"),
        ("time,node,cpu\n", "bad.csv"),
        ("time,node,cpu_pct,mem_pct\n0,a,many,1\n", "bad.csv line 2 cpu_pct"),
    ],
    ids=["empty", "wrong header", "no number"],
)
def test_a_trace_that_is_none_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    sentence = refused("--nodes", "1", "--trace", str(path))
    assert says in sentence
    assert sentence.startswith("colo: sim: ")
    assert "ended while" not in sentence
    assert "got None" not in sentence


def test_jobs_that_are_none_are_refused_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("a,b\n1,2\n")
    assert "bad.csv line 1: the header must name the columns" in refused("--nodes", "1", "--jobs", str(path))


def test_servers_that_nobody_runs_are_refused() -> None:
    assert "nats_url: " in refused("--nats-url", "nats://127.0.0.1:1")
    assert "redis_url: " in refused("--redis-url", "redis://127.0.0.1:1/0")


def test_a_nats_without_jetstream_is_refused() -> None:
    with _nats_without_jetstream() as url:
        sentence = refused("--nats-url", url)
    assert "nats_url: " in sentence
    assert "JetStream" in sentence


@contextlib.contextmanager
def _nats_without_jetstream() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="ct-") as directory:
        command = tied_command([str(find_nats_server()), "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", directory])
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield eventually_blocking(lambda: _url_in(Path(directory)), "the server's address")
        finally:
            process.terminate()
            process.wait(60)


def _url_in(directory: Path) -> str:
    for path in directory.glob("*.ports"):
        with contextlib.suppress(ValueError):
            return str(json.loads(path.read_text())["nats"][0])
    return ""


# ---------------------------------------------------------------- servers of somebody else


def test_servers_that_are_given_are_used_and_emptied() -> None:
    with nats_server(streams=False) as nats, redis_server() as redis:
        own = ("--nats-url", nats.url, "--redis-url", redis.url, "--nodes", "1", "--json")
        for _ in range(2):
            # The second one finds them as if there had been no first.
            with lab(a_directory(), *own, "--duration", "3s") as running:
                ended = running.end()
                left = running.left_behind()
            assert (ended.code, ended.stderr, left) == (0, "", [])
            assert ended.verdict["placements"] > 0
            assert not {"nats-server", "redis-server"} & ended.verdict["cpu_s"].keys()


def test_servers_that_hold_data_of_a_colo_are_refused_and_keep_it() -> None:
    with nats_server(streams=False) as nats, redis_server() as redis:
        own = ("--nats-url", nats.url, "--redis-url", redis.url, "--nodes", "1")
        with lab(a_directory(), *own, "--json") as running:
            running.wait_for_log("service-started")
            assert "of another colo" in refused(*own)
            ended = running.interrupt()
        assert ended.code == 0
        assert ended.verdict["errors"] == []
