"""Threads of an emulated core that share one CPU of the host, because the emulator gives each of them a whole one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.kernel.lab.variants import Variant

__all__ = ["SharedCores", "host_cpu_of"]

_NAME: Final = "CPU {}/TCG\n"


def host_cpu_of(variant: Variant, host_cpus: Sequence[int]) -> dict[int, int]:
    """The CPU of the host for each online CPU of the machine: one for a core, neighbours together where there are more cores."""
    cores = sorted({cpu // variant.threads for cpu in range(variant.cpus) if cpu not in variant.offline})
    return {
        cpu: host_cpus[cores.index(cpu // variant.threads) * len(host_cpus) // len(cores)]
        for cpu in range(variant.cpus)
        if cpu not in variant.offline
    }


class SharedCores:
    """Binds the emulator's threads, which it makes while it starts."""

    def __init__(self, pid: int, variant: Variant) -> None:
        self._tasks = Path(f"/proc/{pid}/task")
        wanted = host_cpu_of(variant, sorted(os.sched_getaffinity(0)))
        self._left = {_NAME.format(cpu): on for cpu, on in wanted.items()}

    def look(self) -> None:
        """Bind what is there by now."""
        for task in self._tasks.iterdir() if self._left else ():
            with contextlib.suppress(OSError):
                name = (task / "comm").read_text()
                if name in self._left:
                    os.sched_setaffinity(int(task.name), {self._left[name]})
                    del self._left[name]
