"""Prints answers: a table for people, JSON or YAML for programs."""

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter

from colo_common.model.duration import span_text
from colo_common.model.printable import printable
from colo_common.model.quantity import bytes_text, cpu_text

__all__ = [
    "Format",
    "ListFormat",
    "ListOutput",
    "SettingWords",
    "Output",
    "ago",
    "bytes_text",
    "counted",
    "cpu_text",
    "fitted",
    "painted",
    "print_data",
    "print_list",
    "print_table",
    "print_text",
    "share_text",
    "span_text",
]

Format = Literal["table", "json", "yaml"]
#: Of a list: `wide` shows every column, `name` only the first one, a name a line.
ListFormat = Literal["table", "wide", "name", "json", "yaml"]
Output = Annotated[Format, Parameter(name=["--output", "-o"])]
#: Settings as every service takes them: `--nats-url X`, `--config FILE`; the environment counts as for a service.
SettingWords = Annotated[str, Parameter(allow_leading_hyphen=True, show_default=False)]
ListOutput = Annotated[ListFormat, Parameter(name=["--output", "-o"])]

_GAP: Final = "  "
_TEXT_LEAST: Final = 8
"""A column of text is cut to no fewer characters."""
_CODES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_COLOURS: Final = {
    "lost": "red",
    "stale": "yellow",
    "warming": "yellow",
    "unknown": "yellow",
    "Failed": "red",
    "no": "red",
}
"""The colours of cells that are exactly these words."""


def print_data(value: Any, form: str) -> None:
    """Print the value as JSON or YAML on standard output. What a terminal would obey is escaped; a program reads it as it was."""
    if form == "yaml":
        import yaml

        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
        if printable(text, keeps="\n") != text:
            text = yaml.safe_dump(value, sort_keys=False)
    else:
        text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        if printable(text, keeps="\n") != text:
            text = json.dumps(value, indent=2) + "\n"
    sys.stdout.write(text)


def print_list(
    answer: Any, output: ListFormat, columns: Sequence[str], rows: Callable[[], Sequence[Sequence[str]]], empty: str
) -> bool:
    """Print a list in the requested format; returns whether it was a table, so that a caller may add lines for people.

    `rows` makes the rows of the table, whose first column is the name.
    """
    if output in ("json", "yaml"):
        print_data(answer, output)
        return False
    if output == "name":
        sys.stdout.writelines(f"{printable(row[0])}\n" for row in rows())
        return False
    print_table(columns, rows(), empty, is_wide=output == "wide")
    return True


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], empty: str, *, is_wide: bool = False) -> None:
    """Print aligned columns. Without rows `empty` is printed.

    A header that ends with ">" aligns right, for numbers; one that begins with "+" is shown only when `is_wide`. On a terminal
    that is too narrow the longest sentences are cut, then columns are left out from the right, and a line says so; a number or a
    name, which is one word, is never cut. In a pipe, and when `is_wide`, everything is printed.
    """
    if not rows:
        print(empty)
        return
    chosen = [number for number, column in enumerate(columns) if is_wide or not column.startswith("+")]
    headers = [columns[number].lstrip("+") for number in chosen]
    cells = [[printable(row[number]) for number in chosen] for row in rows]
    widths = [max(len(header.rstrip(">")), *(len(row[at]) for row in cells)) for at, header in enumerate(headers)]
    left_out = 0
    if sys.stdout.isatty() and not is_wide:
        sentences = {at for at in range(1, len(headers)) if any(" " in row[at] for row in cells)}
        left_out = _narrow(headers, widths, sentences, shutil.get_terminal_size().columns)
    print(painted(_line([header.rstrip(">") for header in headers], headers, widths), "bold"))
    for row in cells:
        print(_line(row, headers, widths, with_colours=True))
    if left_out:
        print(painted(f"({counted(left_out, 'column')} more: -o wide, or a wider terminal)", "dim"))


def _narrow(headers: list[str], widths: list[int], sentences: set[int], width: int) -> int:
    """Make the columns fit into the width: cut sentences, then drop columns from the right. Returns how many were dropped."""
    dropped = 0
    while len(widths) > 1 and (over := sum(widths) + len(_GAP) * (len(widths) - 1) - width) > 0:
        texts = [
            at for at in sentences if at < len(widths) and not headers[at].endswith(">") and widths[at] > _TEXT_LEAST
        ]
        longest = max(texts, key=lambda at: widths[at], default=None)
        if longest is not None:
            widths[longest] = max(widths[longest] - over, _TEXT_LEAST)
            continue
        widths.pop()
        headers.pop()
        dropped += 1
    return dropped


def _line(row: Sequence[str], headers: Sequence[str], widths: Sequence[int], *, with_colours: bool = False) -> str:
    parts = []
    for at, (text, header, width) in enumerate(zip(row, headers, widths, strict=False)):
        is_number = header.endswith(">")
        shown = text if is_number or at == 0 else fitted(text, width)
        padded = shown.rjust(width) if is_number else shown.ljust(width)
        parts.append(painted(padded, _COLOURS[text]) if with_colours and text in _COLOURS else padded)
    return _GAP.join(parts).rstrip()


def print_text(text: str, *, indent: int = 2, colour: str = "") -> None:
    """Print a line. On a terminal that is too narrow it goes on in further lines, indented; a word is never broken."""
    text = printable(text, keeps="\n")
    lines = [text]
    if sys.stdout.isatty():
        width, hanging = shutil.get_terminal_size().columns, " " * indent
        if len(text) > width:
            own = text[: len(text) - len(text.lstrip())]
            lines = textwrap.wrap(
                text.lstrip(), width, initial_indent=own, subsequent_indent=hanging, break_long_words=False,
                break_on_hyphens=False,
            )  # fmt: skip
    for line in lines:
        print(painted(line, colour) if colour else line)


def painted(text: str, colour: str) -> str:
    """The text in a colour or weight on a terminal; as it is in a pipe, with NO_COLOR, and on a dumb terminal."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"


def fitted(text: str, width: int) -> str:
    """The text, cut to `width` characters with "…" as the last one where it is longer."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def counted(number: int, what: str) -> str:
    """A count with its noun: "1 replica", "2 replicas"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def share_text(part: int, whole: int) -> str:
    """The part in percent of the whole, rounded down: "37%"; "-" without a whole."""
    return f"{part * 100 // whole}%" if whole > 0 else "-"


def ago(then_ms: int, now_ms: int) -> str:
    """The span from `then_ms` to `now_ms`, at least 0, as text."""
    return span_text(max(now_ms - then_ms, 0))
