"""Core scheduling: threads run on the hardware threads of one core at the same time only where they have the same cookie.

The kernel's interface is `prctl(PR_SCHED_CORE)`, since Linux 5.14 (Documentation/admin-guide/hw-vuln/core-scheduling.rst). A
process without a cookie has cookie 0. Children inherit their parent's.
"""

import ctypes
import errno
import os
import threading
from typing import Final

__all__ = ["cookie_of", "give_own", "give_same", "lacking"]

_PR_SCHED_CORE: Final = 62
_GET, _CREATE, _SHARE_TO, _SHARE_FROM = 0, 1, 2, 3
_THREAD, _THREAD_GROUP = 0, 1
_LACKING: Final = {
    errno.EINVAL: "the kernel is built without CONFIG_SCHED_CORE, or is older than 5.14",
    errno.ENODEV: "no core of this machine has a second hardware thread that is online",
}


def lacking() -> str:
    """Why this kernel has no core scheduling; "" where it has."""
    try:
        cookie_of(0)
    except OSError as error:
        return _LACKING.get(error.errno or 0, f"the kernel refuses it: {os.strerror(error.errno or 0)}")
    return ""


def cookie_of(pid: int) -> int:
    """The number by which the kernel shows the cookie of a process' first thread (0: the calling thread). Raises OSError."""
    shown = ctypes.c_uint64(0)
    _prctl(_GET, pid, _THREAD, ctypes.addressof(shown))
    return shown.value


def give_own(pid: int) -> None:
    """Give all threads of the process a new cookie, which nobody else has. Raises OSError."""
    _prctl(_CREATE, pid, _THREAD_GROUP, 0)


def give_same(pid: int, like: int) -> None:
    """Give all threads of the process the cookie of the process `like`. Raises OSError."""
    failed: list[OSError] = []

    def share() -> None:
        try:
            _prctl(_SHARE_FROM, like, _THREAD, 0)
            _prctl(_SHARE_TO, pid, _THREAD_GROUP, 0)
        except OSError as error:
            failed.append(error)

    # The cookie passes through the calling thread, which would keep it: a thread of its own ends with it.
    thread = threading.Thread(target=share, name="core-cookie")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def _prctl(command: int, pid: int, scope: int, address: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_ulong(each) for each in (command, pid, scope, address)]
    if library.prctl(_PR_SCHED_CORE, *words):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
