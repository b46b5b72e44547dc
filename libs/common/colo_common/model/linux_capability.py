"""Which Linux capabilities a process has."""

from typing import Final

__all__ = ["CAP_SYS_ADMIN", "CAP_SYS_RESOURCE", "has_capability"]

CAP_SYS_ADMIN: Final = 21
CAP_SYS_RESOURCE: Final = 24


def has_capability(status: str, number: int) -> bool:
    """Whether a process has the Linux capability of that number, by its /proc/PID/status; False where that does not say."""
    for line in status.splitlines():
        name, _, mask = line.partition(":")
        if name == "CapEff":
            try:
                return bool(int(mask, 16) >> number & 1)
            except ValueError:
                return False
    return False
