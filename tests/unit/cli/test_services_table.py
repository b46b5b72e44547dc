"""What `colo get services` shows: who holds what, since when, and how far behind."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec
import pytest
from msgspec import structs

from colo_cli import services
from colo_cli.client import Client
from colo_cli.services import ranges_text
from colo_common.events.status import ServiceStatus
from colo_common.ports import Backlog
from colo_gateway.state_replies import ServiceEntry, ServicesReply

HOUR_MS = 3_600_000
ONE = ServiceStatus(
    service="jobs",
    boot_id="b1",
    host="h1",
    pid=1,
    version="0.1.0",
    started_at_ms=0,
    now_ms=HOUR_MS,
    problems={},
    inbox_items=5,
    outgoing_messages=0,
    handled=7,
    dead_letters=0,
    refusals=0,
    held=(3, 0, 2),
    partitions=4,
    held_for_ms=60_000,
)
OTHER = structs.replace(ONE, boot_id="b2", host="h2", held=(1,), held_for_ms=2_000)
STANDS_BY = structs.replace(ONE, boot_id="b3", host="h3", held=(), held_for_ms=0)
CONSUMERS = (
    Backlog(stream="COLO_EVT", consumer="colo-jobs-0-of-4-evt", pending=10, unacknowledged=0),
    Backlog(stream="COLO_RUN", consumer="colo-jobs-0-of-4-evt-enforcement-ended", pending=2, unacknowledged=0),
    Backlog(stream="COLO_EVT", consumer="colo-jobs-1-of-4-evt", pending=1, unacknowledged=0),
    Backlog(stream="COLO_EVT", consumer="colo-jobs-3-of-4-evt", pending=0, unacknowledged=0),
)
JOBS = ServiceEntry(
    service="jobs",
    is_ready=True,
    why="",
    instances=(ONE, OTHER, STANDS_BY),
    pending=13,
    unacknowledged=0,
    consumers=CONSUMERS,
)
SCHEDULER = ServiceEntry(
    service="scheduler",
    is_ready=True,
    why="",
    instances=(structs.replace(ONE, service="scheduler", held=tuple(range(16)), partitions=16),),
    pending=0,
    unacknowledged=0,
    consumers=(Backlog(stream="COLO_ASK", consumer="colo-scheduler-ask", pending=0, unacknowledged=0),),
)
GATEWAY = ServiceEntry(
    service="gateway",
    is_ready=True,
    why="",
    instances=(structs.replace(ONE, service="gateway", held=(), partitions=0, held_for_ms=0),),
)
AWAY = ServiceEntry(
    service="overcommit", is_ready=False, instances=(), why="nobody answers: it is stopped, still starting, or stuck"
)


def shown(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *entries: ServiceEntry,
    output: Any = "table",
    clock_speed: float = 1.0,
) -> list[list[str]]:
    """The cells of what is printed, by line."""
    reply = ServicesReply(services=entries, at_ms=0, clock_speed=clock_speed)
    answer = msgspec.json.decode(msgspec.json.encode(reply))
    monkeypatch.setattr(Client, "get", lambda *_args, **_query: answer)
    services.services(output=output, api="http://127.0.0.1:9")
    lines = capsys.readouterr().out.splitlines()
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), "-"), ((0,), "0"), ((3, 0, 2), "0,2-3"), (range(16), "0-15"), ((1, 2, 4, 6, 7, 8), "1-2,4,6-8")],
)
def test_numbers_are_said_in_short(numbers: tuple[int, ...], text: str) -> None:
    assert ranges_text(numbers) == text


def test_the_table_says_how_much_each_holds_and_since_when_by_the_services_clock(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    header, *rows = shown(monkeypatch, capsys, GATEWAY, JOBS, clock_speed=30.0)
    assert header == ["SERVICE", "READY", "UP FOR", "BEHIND", "DEAD LETTERS", "HOLDS", "HELD FOR", "WHY NOT"]
    assert [row[-2:] for row in rows[:4]] == [["-", "-"], ["3/4", "30m00s"], ["1/4", "60s"], ["0/4", "-"]]


def test_the_wide_table_names_the_partitions_and_says_how_far_behind_each_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    header, *rows = shown(monkeypatch, capsys, GATEWAY, JOBS, SCHEDULER, AWAY, output="wide")
    found = [dict(zip(header, row, strict=False)) for row in rows]
    assert [(one["PARTITIONS"], one["BEHIND BY PARTITION"], one["HOST"]) for one in found] == [
        ("-", "-", "h1"),
        ("0,2-3", "0: 12, 3: 0", "h1"),
        ("1", "1: 1", "h2"),
        ("-", "-", "h3"),
        # Its consumers are those of all partitions together.
        ("0-15", "-", "h1"),
        ("-", "-", "-"),
    ]
    assert found[-1]["WHY NOT"] == AWAY.why


def test_eighty_columns_show_since_when_and_why_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((80, 24)))
    monkeypatch.setenv("NO_COLOR", "1")
    header, *rows = shown(monkeypatch, capsys, JOBS, SCHEDULER, AWAY)
    assert header[-2:] == ["HELD FOR", "WHY NOT"]
    assert rows[-1][-1].startswith("nobody answer")
