"""When a machine is booted once more for one command, and the status that the lab ends with."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

from tests.kernel.lab.packages import say
from tests.kernel.lab.refused import MachineFailed

__all__ = ["FAILED", "FROZEN", "TIMED_OUT", "status_of"]

FROZEN: Final = 123
TIMED_OUT: Final = 124
FAILED: Final = 125
_LEAST_S: Final = 1.0
"""With less time left no machine is booted: it would only be ended, and the status would hide that the last one broke."""


def status_of(boot: Callable[[float], int], *, limit_s: float) -> int:
    """The status of the command, or the lab's own: FROZEN, TIMED_OUT or FAILED, each with a sentence on standard error.

    `boot` takes the seconds that are left. It is called once more, while there is time, for a machine that did not come up. A
    command that has begun is never begun again: what it had found until then would be lost. `limit_s` is the limit of all.
    """
    deadline_s = time.monotonic() + limit_s
    try:
        return boot(limit_s)
    except MachineFailed as failure:
        _tell(failure)
        left_s = round(deadline_s - time.monotonic(), 1)
        if failure.began or not failure.machine_broke or left_s < _LEAST_S:
            return _status_after(failure)
    say("booting it once more; the command had not begun")
    try:
        return boot(left_s)
    except MachineFailed as failure:
        _tell(failure)
        return _status_after(failure)


def _tell(failure: MachineFailed) -> None:
    if failure.console_tail:
        sys.stderr.write(f"---- the last lines of the console\n{failure.console_tail}\n----\n")
    say(str(failure))


def _status_after(failure: MachineFailed) -> int:
    if failure.machine_broke:
        return FROZEN
    return TIMED_OUT if failure.timed_out else FAILED
