"""How often a machine is booted for one command, and the status that the lab ends with."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

from tests.kernel.lab.packages import say
from tests.kernel.lab.refused import MachineFailed

__all__ = ["BOOTS", "FAILED", "FROZEN", "TIMED_OUT", "status_of"]

FROZEN: Final = 123
TIMED_OUT: Final = 124
FAILED: Final = 125
BOOTS: Final = 2
"""One more for a machine that the emulator broke: that is no fault of the command. Twice in a row is no accident."""
_LEAST_S: Final = 1.0
"""With less time left no machine is booted: it would only be ended, and the status would hide that the last one broke."""


def status_of(boot: Callable[[float], int], *, limit_s: float, boots: int = BOOTS) -> int:
    """The status of the command, or the lab's own: FROZEN, TIMED_OUT or FAILED, each with a sentence on standard error.

    `boot` takes the seconds that are left. It is called again, `boots` times in all, while there is time and the machine itself was
    what failed: it froze, or it did not come up. `limit_s` is the limit of everything together.
    """
    deadline_s = time.monotonic() + limit_s
    for left in reversed(range(boots)):
        try:
            return boot(round(deadline_s - time.monotonic(), 1))
        except MachineFailed as failure:
            if failure.console_tail:
                sys.stderr.write(f"---- the last lines of the console\n{failure.console_tail}\n----\n")
            say(str(failure))
            if not failure.machine_broke:
                return TIMED_OUT if failure.timed_out else FAILED
            if left == 0 or time.monotonic() >= deadline_s - _LEAST_S:
                break
            again = "; the command begins again, and what it has said stays" if failure.began else ""
            say(f"booting it once more{again}")
    return FROZEN
