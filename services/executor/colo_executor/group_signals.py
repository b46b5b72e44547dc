"""Signals to the processes of a control group that reach no other process, whatever becomes of their numbers meanwhile."""

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

__all__ = ["send"]

_AT_ONCE: Final = 64
"""So many descriptors are open at a time."""
_NONE: Final = -1


def send(number: signal.Signals, pids: Iterable[int], members: Callable[[], Collection[int]]) -> None:
    """Send the signal to those of the processes that are still `members` when a descriptor holds each of them.

    A number that another process has got since the list was read is so left alone. Where this process gets no descriptor, it
    relies on the number. Raises what `members` does.
    """
    ordered = sorted(pids)
    for at in range(0, len(ordered), _AT_ONCE):
        some = ordered[at : at + _AT_ONCE]
        try:
            _send(number, dict(_held(some)), members)
        except OSError:
            # The descriptors may be all that this process may have, so that the members could not be listed beside them.
            _send(number, dict.fromkeys(some, _NONE), members)


def _send(number: signal.Signals, held: Mapping[int, int], members: Callable[[], Collection[int]]) -> None:
    try:
        still = members()
        for pid, fd in held.items():
            if pid not in still:
                continue
            with contextlib.suppress(ProcessLookupError):
                if fd == _NONE:
                    os.kill(pid, number)
                else:
                    signal.pidfd_send_signal(fd, number)
    finally:
        for fd in held.values():
            if fd != _NONE:
                os.close(fd)


def _held(pids: Iterable[int]) -> Iterable[tuple[int, int]]:
    """Each process that is there with its descriptor."""
    for pid in pids:
        try:
            yield pid, os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        except OSError:
            yield pid, _NONE
