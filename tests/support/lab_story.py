"""A lab whose facts and accounts are typed in, and what it shows of them. An empty line is shown as "~"."""

from __future__ import annotations

import io

from msgspec.structs import fields, replace
from rich.console import Console

from colo_cli.lab_observe import LabObserver, NodeView
from colo_cli.lab_pace import next_speed
from colo_cli.lab_screen import LabState, lab_picture, print_addresses
from colo_cli.lab_table import verdict_lines
from colo_cli.lab_verdict import LabFigures, verdict_of
from colo_sim.machine_account import OnlineAccount
from colo_sim.machine_reading import MachineLedger, MachineReport
from colo_sim.report import verdict_from_ledgers
from tests.support.scripts import Args

__all__ = ["LabStory"]

_HOUR_MS = 3_600_000
_CAPACITY_MCPU = 64_000
_ZERO = MachineLedger(**{field.name: 0 for field in fields(MachineLedger) if field.type is int})


class LabStory:
    """`nodes`, `event` and `hour` fill the lab; `screen`, `piped` and `verdict` show it; `pace` is the rule of its clock."""

    def __init__(self) -> None:
        self._seen = LabObserver()
        self._ledger = MachineLedger(
            node_ms=_HOUR_MS,
            cpu_capacity_mcpu=_CAPACITY_MCPU,
            online_demand_mcpu_ms=24_000 * _HOUR_MS,
            online_used_mcpu_ms=24_000 * _HOUR_MS,
            batch_used_mcpu_ms=16_000 * _HOUR_MS,
            completed_mcpu_ms=12_000 * _HOUR_MS,
            wasted_mcpu_ms=100 * _HOUR_MS,
            running_mcpu_ms=3_900 * _HOUR_MS,
            replicas_started=40,
            replicas_completed=30,
            replicas_stopped=1,
            replicas_killed=0,
            oom_kills=0,
            with_batch=OnlineAccount(harm_ms=7_200, longest_harm_ms=2_000, delay_ms={33: 3_500_000, 48: 100_000}),
            alone=OnlineAccount(harm_ms=3_600, longest_harm_ms=1_000, delay_ms={21: 3_500_000, 44: 100_000}),
            unreflexed=OnlineAccount(
                harm_ms=72_000, longest_harm_ms=30_000, batch_mcpu_ms=17_000 * _HOUR_MS, delay_ms={50: _HOUR_MS}
            ),
            plain=OnlineAccount(
                harm_ms=180_000, longest_harm_ms=90_000, batch_mcpu_ms=10_000 * _HOUR_MS, delay_ms={52: _HOUR_MS}
            ),
            added_harm_ms=3_600,
            longest_added_harm_ms=2_000,
            evictions=1,
        )

    def answer(self, command: str, args: Args) -> str:
        match command:
            case "nodes":
                return self._nodes(args)
            case "event":
                self._seen.event_log.append(" ".join(args.words))
                return "ok"
            case "screen":
                return self._screen(args)
            case "piped":
                stream = io.StringIO()
                print_addresses(self._state(args), stream, is_json="json" in args.words)
                return _shown(stream.getvalue())
            case "verdict":
                return self._verdict(args)
            case "pace":
                late = float(args.text("late"))
                return f"{next_speed(float(args.text('speed')), asked=float(args.text('asked')), late_periods=late):g}"
            case _:
                return f"no such command: {command}"

    def _nodes(self, args: Args) -> str:
        args.only("count", "used", "batch", "promised", "ceiling")
        count = args.number("count")
        for index in range(1, count + 1):
            self._seen.nodes[f"node-{index:02d}"] = NodeView(
                capacity_mcpu=_CAPACITY_MCPU,
                used_mcpu=args.number("used") - 100 * index,
                batch_mcpu=args.number("batch"),
                allocatable_mcpu=args.number("promised"),
                ceiling_mcpu=args.number("ceiling"),
            )
        self._seen.capacity_mcpu_ms = count * _CAPACITY_MCPU
        self._seen.used_mcpu_ms = count * args.number("used")
        self._seen.batch_mcpu_ms = count * args.number("batch")
        return "ok"

    def _state(self, args: Args) -> LabState:
        return LabState(
            wall_s=75,
            simulated_s=4_500,
            speed=float(args.text("speed", "60")),
            asked_speed=60,
            api="http://127.0.0.1:8088",
            nats_url="nats://127.0.0.1:41941",
            starting=tuple(name for name in args.text("starting", "").split(",") if name),
            machines=verdict_from_ledgers([self._ledger]),
            notes=tuple(note for note in args.text("note", "").split("|") if note),
        )

    def _screen(self, args: Args) -> str:
        args.only("width", "height", "speed", "starting", "note")
        width, height = args.number("width"), args.number("height")
        stream = io.StringIO()
        console = Console(file=stream, width=width, height=height, color_system=None)
        console.print(lab_picture(self._seen, self._state(args), width=width, height=height))
        lines = stream.getvalue().splitlines()
        assert len(lines) <= height, f"{len(lines)} lines"
        assert max(map(len, lines)) <= width
        return _shown(stream.getvalue())

    def _verdict(self, args: Args) -> str:
        args.only("added_ms", "lived_ms", "claimed_ms", "error", "notice", "slowest", "ends", "lost")
        lived_ms = args.number("lived_ms", _HOUR_MS)
        full = self._ledger if lived_ms >= _HOUR_MS else replace(_ZERO, cpu_capacity_mcpu=_CAPACITY_MCPU)
        ledger = replace(full, node_ms=lived_ms, added_harm_ms=args.number("added_ms", 3_600))
        self._seen.lost = args.number("lost", 0)
        report = MachineReport(
            claimed_ms=args.number("claimed_ms", lived_ms), delay_bound_pct=57.8, ledgers={"node-01": ledger}
        )
        figures = LabFigures(
            nodes=1,
            speed=60,
            duration_s=60.0,
            speed_reached=60.0,
            slowest_speed=float(args.text("slowest", "60")),
            speed_at_end=float(args.text("ends", "60")),
            submitted=20,
            errors=[one for one in (args.text("error", ""),) if one],
            notices=[one for one in (args.text("notice", ""),) if one],
        )
        verdict = verdict_of(figures, self._seen, report)
        return _shown("\n".join(verdict_lines(verdict)))


def _shown(text: str) -> str:
    return "\n".join(line.rstrip() or "~" for line in text.splitlines()) or "ok"
