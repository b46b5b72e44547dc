"""`--watch`: prints an answer again and again, in place on a terminal and one after the other in a pipe."""

import io
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Annotated, Final

from cyclopts import Parameter

__all__ = ["Watch", "watched"]

Watch = Annotated[bool, Parameter(name=["--watch", "-w"], negative=())]
_EVERY_S: Final = 2.0
_CLEAR: Final = "\x1b[H\x1b[2J\x1b[3J"


class _Screen(io.StringIO):
    """Collects what a terminal will show, so that it is painted at once and is no longer than the terminal."""

    def isatty(self) -> bool:
        """True: what is written looks as on the terminal itself."""
        return True


def watched(is_watched: bool, show: Callable[[], int]) -> int:
    """Call `show` once, or every two seconds until Ctrl-C when `is_watched`. Returns its exit code."""
    while is_watched:
        if sys.stdout.isatty():
            _paint(show)
        else:
            show()
        sys.stdout.flush()
        time.sleep(_EVERY_S)
    return show()


def _paint(show: Callable[[], int]) -> None:
    """Replace what the terminal shows; lines that have no room are counted in the last one."""
    with redirect_stdout(_Screen()) as screen:
        show()
    lines = screen.getvalue().splitlines()
    room = shutil.get_terminal_size().lines - 1
    if len(lines) > room:
        lines[room - 1 :] = [f"and {len(lines) - room + 1} lines more: a taller terminal shows them"]
    sys.stdout.write(_CLEAR + "\n".join(lines) + "\n")
