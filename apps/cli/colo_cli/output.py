"""Prints answers: a table for people, JSON or YAML for programs."""

import json
import sys
from collections.abc import Sequence
from typing import Any, Literal

from colo_common.model.duration import span_text
from colo_common.model.quantity import bytes_text, cpu_text

__all__ = ["Format", "ago", "bytes_text", "counted", "cpu_text", "print_data", "print_table", "span_text"]

Format = Literal["table", "json", "yaml"]


def print_data(value: Any, form: Format) -> None:
    """Print the value as JSON or YAML on standard output."""
    if form == "yaml":
        import yaml

        sys.stdout.write(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))
    else:
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> None:
    """Print aligned columns; a header that ends with ">" aligns right, for numbers. Without rows `empty` is printed."""
    from rich.console import Console
    from rich.table import Table

    # Piped output is for programs, so it is not wrapped to the width of a terminal.
    console = Console(width=None if sys.stdout.isatty() else 400)
    if not rows:
        console.print(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.rstrip(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def counted(number: int, what: str) -> str:
    """A count with its noun: "1 replica", "2 replicas"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def ago(then_ms: int, now_ms: int) -> str:
    """The span from `then_ms` to `now_ms`, at least 0, as text."""
    return span_text(max(now_ms - then_ms, 0))
