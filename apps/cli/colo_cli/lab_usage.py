"""Memory and CPU time of a child process of the lab, from /proc."""

import os
from pathlib import Path

__all__ = ["cpu_s", "rss_bytes"]


def rss_bytes(pid: int) -> int:
    """Resident memory of the process now in bytes; 0 when it has exited."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def cpu_s(pid: int) -> float:
    """CPU time of the process in seconds, user and system; 0.0 when it has exited."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
