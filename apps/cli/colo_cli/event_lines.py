"""Prints the lines of `colo watch` and `colo history`: time, kind and words, with colour on a terminal only."""

import os
import shutil
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Final

from msgspec import structs

from colo_cli.output import print_text

if TYPE_CHECKING:
    from colo_gateway.event_line import EventLine

__all__ = ["clock_text", "date_text", "line_text", "moment", "print_clock", "print_line", "use_colour"]

_KIND_WIDTH: Final = 11
_TEXT_AT: Final = 24
"""Where the words of a line begin: after its time and kind."""
_TEXT_LEAST: Final = 20
_RESET: Final = "\x1b[0m"
_DIM: Final = "\x1b[2m"
_COLOURS: Final = {
    "dead-letter": "\x1b[31m",
    "enforcement": "\x1b[33m",
    "eviction": "\x1b[31m",
    "freshness": "\x1b[33m",
    "job": "\x1b[36m",
    "placement": "\x1b[32m",
    "pressure": "\x1b[33m",
    "restriction": "\x1b[35m",
}


def use_colour() -> bool:
    """Whether standard output is a terminal that shows colours; NO_COLOR (https://no-color.org) switches them off."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def moment(at_ms: int) -> str:
    """A time of the cluster as the local time of day, to the tenth of a second: "14:03:22.1"."""
    return time.strftime("%H:%M:%S", time.localtime(at_ms / 1000)) + f".{at_ms // 100 % 10}"


def date_text(at_ms: int) -> str:
    """A time of the cluster as a local date and time of day: "2024-05-01 14:03:22"."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))


def clock_text(speed: float) -> str:
    """What the times are, as a sentence: "" for the clock on the wall."""
    return f"times are simulated, {speed:g} times as fast as the clock on the wall" if speed != 1 else ""


def print_clock(speed: float) -> None:
    """Say on a line of its own that times are simulated, where they are."""
    text = clock_text(speed)
    if text:
        print_text(f"({text})", indent=1, colour="dim")


def print_line(line: "EventLine", *, indent: int = 0) -> None:
    """Print one fact; on a terminal a long one goes on below its words."""
    room = shutil.get_terminal_size().columns - indent
    colour, begin = use_colour(), indent + _TEXT_AT
    text = line_text(line, colour=False)
    if not sys.stdout.isatty() or len(text) <= room:
        print(" " * indent + line_text(line, colour=colour), flush=True)
        return
    words = textwrap.wrap(line.text, max(room - _TEXT_AT, _TEXT_LEAST), break_long_words=False, break_on_hyphens=False)
    first, *rest = words or [""]
    print(" " * indent + line_text(structs.replace(line, text=first), colour=colour))
    print("".join(f"{' ' * begin}{more}\n" for more in rest), end="", flush=True)


def line_text(line: "EventLine", *, colour: bool) -> str:
    """One fact: "14:03:22.1  placement   placed a/main/0 on node-01 zone 0"."""
    at, kind = moment(line.at_ms), f"{line.kind:<{_KIND_WIDTH}}"
    if colour:
        return f"{_DIM}{at}{_RESET}  {_COLOURS.get(line.kind, '')}{kind}{_RESET} {line.text}"
    return f"{at}  {kind} {line.text}"
