"""The live picture of a running lab: one line a node, totals, what online work feels, the newest facts, and where to ask."""

from typing import TextIO

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from colo_cli.lab_observe import LabObserver, NodeView
from colo_cli.output import span_text
from colo_common.model.printable import printable
from colo_sim.report import Verdict

__all__ = ["LabState", "lab_picture", "print_addresses"]

_BAR_MOST = 60
_OTHER_COLUMNS = 38
_EVENTS_LEAST = 2


class LabState(Struct, frozen=True, kw_only=True):
    """What the picture shows beside the facts of the bus. `machines`: the account so far, None before the first one.

    `starting`: services that are not ready yet.
    """

    wall_s: float
    simulated_s: float
    speed: float
    asked_speed: int
    api: str
    nats_url: str
    starting: tuple[str, ...] = ()
    machines: Verdict | None = None
    notes: tuple[str, ...] = ()


def lab_picture(seen: LabObserver, state: LabState, *, width: int, height: int) -> RenderableType:
    """The picture now, at most `width` x `height`: nodes and facts are left out before totals and hints."""
    totals = _totals(seen, state.machines)
    foot = _foot(seen, state)
    names = sorted(name for name, view in seen.nodes.items() if view.capacity_mcpu)
    room = max(height - 2 - len(totals) - len(foot), 1)
    shown = len(names) if len(names) + _EVENTS_LEAST <= room else max(room - _EVENTS_LEAST - 1, 1)
    parts: list[RenderableType] = [_head(seen, state), _nodes(seen, names[:shown], width)]
    left = room - shown
    if shown < len(names):
        parts.append(Text(f"and {len(names) - shown} more nodes: colo get nodes", style="dim"))
        left -= 1
    parts += totals
    events = list(seen.event_log)[-left:] if left > 0 else []
    parts += [Text(printable(line), style="dim") for line in events]
    parts += foot
    for part in parts:
        if isinstance(part, Text):
            part.no_wrap, part.overflow = True, "ellipsis"
    return Group(*parts)


def print_addresses(state: LabState, stream: TextIO, *, is_json: bool) -> None:
    """Print once where to ask, where no terminal shows the picture. With JSON the calling program chose the ports."""
    if not is_json:
        stream.write(f"colo lab runs; ask it: COLO_API={state.api} colo get jobs\n")
        stream.write(
            f"events: NATS {state.nats_url}, subject colo.v1.evt.>; the API is described at {state.api}/v1/openapi.json\n"
        )
        stream.writelines(f"{note}\n" for note in state.notes)
        stream.flush()


def _nodes(seen: LabObserver, names: list[str], width: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("node", no_wrap=True)
    table.add_column("online + batch", no_wrap=True)
    for header in ("used", "promised", "ceiling"):
        table.add_column(header, justify="right", no_wrap=True)
    cells = min(max(width - _OTHER_COLUMNS - max(map(len, names), default=7) + 7, 10), _BAR_MOST)
    for name in names:
        table.add_row(*_row(name, seen.nodes[name], cells))
    return table


def _row(name: str, view: NodeView, cells: int) -> tuple[RenderableType, ...]:
    capacity = max(view.capacity_mcpu, 1)
    online = max(view.used_mcpu - view.batch_mcpu, 0)
    online_cells = min(online * cells // capacity, cells)
    batch_cells = min((online + view.batch_mcpu) * cells // capacity, cells) - online_cells
    bar = Text()
    bar.append("█" * online_cells, style="cyan")
    bar.append("▒" * batch_cells, style="green")
    bar.append("·" * (cells - online_cells - batch_cells), style="dim")
    # The promises of a small machine are parts of a CPU.
    digits = 1 if capacity < 10_000 else 0
    ceiling = "-" if view.ceiling_mcpu is None else f"{view.ceiling_mcpu / 1000:.{digits}f}"
    return (
        Text(printable(name)),
        bar,
        Text(f"{view.used_mcpu * 100 // capacity}%"),
        Text(f"{view.allocatable_mcpu / 1000:.{digits}f} CPU"),
        Text(ceiling),
    )


def _head(seen: LabObserver, state: LabState) -> Text:
    if state.starting:
        return Text(
            f"colo lab: {span_text(int(state.wall_s * 1000))}, waits for {', '.join(state.starting)}", style="bold"
        )
    capacity = max(seen.capacity_mcpu_ms, 1)
    online = (seen.used_mcpu_ms - seen.batch_mcpu_ms) * 100 / capacity
    with_batch = seen.used_mcpu_ms * 100 / capacity
    pace = f"x{state.speed:.0f}" if state.speed >= state.asked_speed else f"slow: x{state.speed:.0f}"
    return Text.assemble(
        (
            f"{span_text(int(state.wall_s * 1000))}, simulated {span_text(int(state.simulated_s * 1000))} ({pace})  ",
            "dim",
        ),
        "CPU ",
        (f"{online:.1f}%", "cyan"),
        " online -> ",
        (f"{with_batch:.1f}%", "bold green"),
        " with batch",
    )


def _totals(seen: LabObserver, machines: Verdict | None) -> list[Text]:
    states = seen.state_counts()
    counts = (
        f"jobs {len(seen.jobs)} ({states['Running']} run, {states['Completed']} done)  placements {seen.placements}"
    )
    dead = seen.counts["DeadLettered"]
    evictions = seen.counts["EvictionRequested"]
    lines = [
        Text(f"{counts}  evictions {evictions}" + (f"  dead letters {dead}" if dead else "")),
        Text(
            f"decided in {seen.latency_ms(50):.0f} / {seen.latency_ms(99):.0f} ms of wall time (p50 / p99)  "
            f"messages {seen.messages}"
        ),
    ]
    if machines is not None:
        felt, alone = machines.with_batch, machines.without_batch
        lines.append(
            Text(
                f"online harm {felt.harm_ratio * 100:.2f}% of the time, {alone.harm_ratio * 100:.2f}% without batch;  "
                f"delay p99 {felt.delay_p99_pct}%, {alone.delay_p99_pct}% without"
            )
        )
    return lines


def _foot(seen: LabObserver, state: LabState) -> list[Text]:
    node = min(seen.nodes, default="NODE")
    lines = [
        f"ask it: export COLO_API={state.api}; colo get jobs    Ctrl-C ends",
        f"        colo get nodes; colo explain overcommit {node}; times are simulated",
        f"events: NATS {state.nats_url}, subject colo.v1.evt.>",
    ]
    return [Text(line, style="italic") for line in (*state.notes, *lines)]
