"""`--watch`: prints an answer again and again, in place on a terminal and one after the other in a pipe."""

import sys
import time
from collections.abc import Callable
from typing import Annotated, Final

from cyclopts import Parameter

__all__ = ["Watch", "watched"]

Watch = Annotated[bool, Parameter(name=["--watch", "-w"], negative=())]
_EVERY_S: Final = 2.0
_CLEAR: Final = "\x1b[H\x1b[2J\x1b[3J"


def watched(is_watched: bool, show: Callable[[], int]) -> int:
    """Call `show` once, or every two seconds until Ctrl-C when `is_watched`. Returns its exit code."""
    while is_watched:
        if sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        show()
        sys.stdout.flush()
        time.sleep(_EVERY_S)
    return show()
