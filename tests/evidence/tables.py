"""Text tables: one row a scheduler, columns as wide as what is in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["table"]


def table(title: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]], note: str = "") -> str:
    """Names to the left, cells to the right under their columns; the title above, the note below."""
    lines = [("", *columns), *((name, *cells) for name, cells in rows.items())]
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    text = [
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    ]
    return "\n".join([title, *text, *([note] if note else [])])
