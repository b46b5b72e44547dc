"""The picture at the top of README: a lab is run, commands are typed, and what they print is drawn: `just picture`."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.support.lab import lab
from tests.support.ports import free_ports
from tests.support.waiting import eventually_blocking

TARGET: Final = Path(__file__).parents[1] / "docs" / "lab.svg"
COLUMNS: Final = 110
LINES_MOST: Final = 19
#: What is typed while the lab runs, in this order; the lab's own verdict comes last.
COMMANDS: Final = ("colo status", "colo fits --cpu 2 --memory 4Gi")
LAB_S: Final = 60
READY_S: Final = 35
_CHARACTER: Final = 7.3
_LINE: Final = 17
_STYLE: Final = """
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328; white-space: pre }
rect { fill: #f6f8fa; stroke: #d1d9e0 } .typed { font-weight: bold; fill: #0550ae }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } rect { fill: #161b22; stroke: #30363d } .typed { fill: #79c0ff } }
"""


def record() -> list[tuple[str, list[str]]]:
    """Run a lab and return each command with the lines that it printed."""
    port, nats_port = free_ports(2)
    reported = []
    with tempfile.TemporaryDirectory() as directory:
        below = Path(directory) / "lab"
        below.mkdir()
        words = ["--duration", f"{LAB_S}s", "--port", str(port), "--nats-port", str(nats_port)]
        with lab(below, *words, settings={"COLUMNS": str(COLUMNS)}) as running:
            environment = {**os.environ, "COLO_API": f"http://127.0.0.1:{port}", "COLUMNS": str(COLUMNS)}

            def typed(command: str) -> subprocess.CompletedProcess[str]:
                line = [sys.executable, "-m", "colo_cli", *command.split()[1:]]
                return subprocess.run(line, capture_output=True, text=True, env=environment, check=False)

            def has_lived() -> bool:
                placed = re.search(r"(\d+) running", typed("colo status").stdout)
                return placed is not None and int(placed[1]) > 60

            eventually_blocking(has_lived, "batch work fills the valleys", limit_s=READY_S)
            reported += [(command, typed(command).stdout.splitlines()) for command in COMMANDS]
            end = running.end(limit_s=LAB_S + 60)
            reported.insert(0, (f"colo lab --duration {LAB_S}s", end.stdout.splitlines()))
    return reported


def shortened(lines: list[str]) -> list[str]:
    """The first lines and the last one, with dots where some are left out."""
    return lines if len(lines) <= LINES_MOST else [*lines[: LINES_MOST - 2], "...", lines[-1]]


def drawn(reported: list[tuple[str, list[str]]]) -> str:
    """The picture as SVG, readable on a light and on a dark page, without anything from elsewhere."""
    rows: list[tuple[str, str]] = []
    for command, lines in reported:
        rows += [(" class='typed'", f"$ {command}"), *(("", line[:COLUMNS]) for line in shortened(lines)), ("", "")]
    rows.pop()
    width, height = int(COLUMNS * _CHARACTER) + 24, len(rows) * _LINE + 24
    texts = "\n".join(
        f"<text x='12' y='{26 + number * _LINE}'{kind} xml:space='preserve'>{html.escape(line)}</text>"
        for number, (kind, line) in enumerate(rows)
        if line
    )
    box = f"<rect x='.5' y='.5' width='{width - 1}' height='{height - 1}' rx='6'/>"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>"
    return f"{head}\n<style>{_STYLE}</style>\n{box}\n{texts}\n</svg>\n"


if __name__ == "__main__":
    TARGET.write_text(drawn(record()))
