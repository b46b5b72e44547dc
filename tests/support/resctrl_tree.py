"""A fake mount of resctrl: counters of bytes by group and domain, which grow or say why they have no answer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

__all__ = ["ResctrlTree", "mount_line"]


def mount_line(directory: Path, kind: str = "resctrl") -> str:
    """The line of mountinfo by which the file system of the directory is of that kind."""
    device = directory.stat().st_dev
    return f"36 35 {os.major(device)}:{os.minor(device)} / {directory} rw - {kind} {kind} rw\n"


class ResctrlTree:
    """Groups below `root`/sys/fs/resctrl, which is mounted as `kind`. `domains` are names of directories below mon_data."""

    def __init__(self, root: Path, *domains: str, kind: str = "resctrl") -> None:
        self.root = root / "sys/fs/resctrl"
        self.domains = domains
        self.values: dict[tuple[str, str], int | str] = {}
        for inner in ("info/L3_MON", "mon_groups"):
            (self.root / inner).mkdir(parents=True)
        self.make("")
        (root / "proc/self").mkdir(parents=True, exist_ok=True)
        (root / "proc/self/mountinfo").write_text(mount_line(self.root, kind))

    def make(self, group: str, value: int | str = 0) -> None:
        """Make a control group with its counters, and a monitoring group in it, which is in its sum."""
        (self.root / group / "mon_groups/inner/mon_data/mon_L3_00").mkdir(parents=True)
        (self.root / group / "mon_groups/inner/mon_data/mon_L3_00/mbm_total_bytes").write_text("999999999999999\n")
        for domain in self.domains:
            self.set(group, domain, value)

    def set(self, group: str, domain: str, value: int | str) -> None:
        """Let the counter say this."""
        self.values[group, domain] = value
        directory = self.root / group / "mon_data" / domain
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "mbm_total_bytes").write_text(f"{value}\n")
        (directory / "llc_occupancy").write_text("1\n")

    def add(self, grown: Mapping[tuple[str, str], int]) -> None:
        """Let counters grow."""
        for (group, domain), more in grown.items():
            before = self.values[group, domain]
            self.set(group, domain, more + (before if isinstance(before, int) else 0))

    def remove(self, group: str) -> None:
        """Remove a control group."""
        shutil.rmtree(self.root / group)
        self.values = {key: value for key, value in self.values.items() if key[0] != group}
