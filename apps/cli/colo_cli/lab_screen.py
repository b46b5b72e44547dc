"""The live picture of a running lab: one line a node, totals, and the newest interesting facts."""

from typing import TextIO

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from colo_cli.lab_observe import LabObserver, NodeView
from colo_cli.output import span_text

__all__ = ["lab_picture", "print_address"]

_BAR = 40
_NODES_SHOWN = 16


def lab_picture(seen: LabObserver, *, wall_s: float, simulated_s: float, api: str, note: str = "") -> RenderableType:
    """The picture now. The bar of a node has online use, batch use and idle CPU."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for header, justify in (
        ("node", "left"),
        ("online + batch", "left"),
        ("used", "right"),
        ("promised", "right"),
        ("ceiling", "right"),
    ):
        table.add_column(header, justify=justify)  # type: ignore[arg-type]
    for name in sorted(seen.nodes)[:_NODES_SHOWN]:
        view = seen.nodes[name]
        if view.capacity_mcpu:
            table.add_row(*_row(name, view))
    hidden = len(seen.nodes) - _NODES_SHOWN
    parts: list[RenderableType] = [_head(seen, wall_s, simulated_s), table]
    if hidden > 0:
        parts.append(Text(f"and {hidden} more nodes", style="dim"))
    parts.append(_totals(seen))
    if seen.event_log:
        parts.append(Text("\n".join(seen.event_log), style="dim", no_wrap=True, overflow="ellipsis"))
    foot = f"ask it: COLO_API={api} colo get jobs | colo explain overcommit {min(seen.nodes, default='NODE')} | Ctrl-C ends"
    parts.append(Text(note or foot, style="italic", no_wrap=True, overflow="ellipsis"))
    return Panel(Group(*parts), title="colo lab", title_align="left", padding=(0, 1))


def print_address(api: str, stream: TextIO, *, is_json: bool) -> None:
    """Print the gateway's address once, where no terminal shows the picture. With JSON the calling program chose the port."""
    if not is_json:
        stream.write(f"colo lab runs; ask it: COLO_API={api} colo get jobs\n")
        stream.flush()


def _row(name: str, view: NodeView) -> tuple[RenderableType, ...]:
    capacity = max(view.capacity_mcpu, 1)
    online = max(view.used_mcpu - view.batch_mcpu, 0)
    online_cells = min(online * _BAR // capacity, _BAR)
    batch_cells = min((online + view.batch_mcpu) * _BAR // capacity, _BAR) - online_cells
    bar = Text()
    bar.append("█" * online_cells, style="cyan")
    bar.append("▒" * batch_cells, style="green")
    bar.append("·" * (_BAR - online_cells - batch_cells), style="dim")
    # The promises of a small machine are parts of a CPU.
    digits = 1 if capacity < 10_000 else 0
    ceiling = "-" if view.ceiling_mcpu is None else f"{view.ceiling_mcpu / 1000:.{digits}f}"
    return (
        Text(name),
        bar,
        Text(f"{view.used_mcpu * 100 // capacity}%"),
        Text(f"{view.allocatable_mcpu / 1000:.{digits}f} CPU"),
        Text(ceiling),
    )


def _head(seen: LabObserver, wall_s: float, simulated_s: float) -> Text:
    capacity = max(seen.capacity_mcpu_ms, 1)
    online = (seen.used_mcpu_ms - seen.batch_mcpu_ms) * 100 / capacity
    with_batch = seen.used_mcpu_ms * 100 / capacity
    return Text.assemble(
        (f"{span_text(int(wall_s * 1000))} here, {span_text(int(simulated_s * 1000))} simulated   ", "dim"),
        "CPU utilisation ",
        (f"{online:.1f}%", "cyan"),
        " online alone -> ",
        (f"{with_batch:.1f}%", "bold green"),
        " with batch",
    )


def _totals(seen: LabObserver) -> Text:
    states = seen.state_counts()
    parts = [
        f"jobs {len(seen.jobs)} ({states['Running']} running, {states['Completed']} completed)",
        f"placements {seen.placements}",
        f"decided in p50 {seen.latency_ms(50):.0f} ms, p99 {seen.latency_ms(99):.0f} ms",
        f"evictions {seen.counts['EvictionRequested']}",
        f"messages {seen.messages}",
    ]
    dead = seen.counts["DeadLettered"]
    if dead:
        parts.append(f"dead letters {dead}")
    return Text("   ".join(parts))
