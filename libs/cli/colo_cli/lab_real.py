"""This machine as one more node of the lab: its own collector and executor, real processes in real control groups."""

import os
import socket
from pathlib import Path
from typing import Final

from colo_cli.lab_options import LabOptions
from colo_cli.lab_processes import LabProcesses, log_events

__all__ = ["RealNode"]

_NEEDS: Final = "--real needs root and writable cpu and memory control groups; the lab goes on with simulated nodes"


class RealNode:
    """Starts the two node agents when this process may; otherwise says what it would need."""

    def __init__(self, options: LabOptions, directory: Path, processes: LabProcesses) -> None:
        self._options = options
        self._directory = directory
        self._processes = processes
        self.runs = False
        self.notices: list[str] = []
        self.note = ""

    async def start(self) -> None:
        """Add the node, or note why not."""
        lacking = _lacking()
        if lacking:
            self.notices.append(f"{_NEEDS} (lacking: {lacking})")
            self.note = self.notices[-1]
            return
        name = _node_name()
        common = {"COLO_NODE": name, "COLO_SUBTREE": f"colo-lab-{os.getpid()}"}
        await self._processes.start("collector", "colo_collector", common)
        state = {"COLO_EXECUTOR_STATE_DIR": str(self._directory / "executor"), "COLO_EXECUTOR_ON_EXIT": "restore"}
        await self._processes.start("executor", "colo_executor", {**common, **state})
        self.runs = True
        self.note = f"this machine runs as {name}: real control groups below {common['COLO_SUBTREE']}"

    async def close(self) -> None:
        """The executor put everything back when it ended."""
        executor = self._processes.running.get("executor")
        if executor is not None:
            self.notices.extend(str(line) for line in log_events(executor.log, "restored"))


def _lacking() -> str:
    from colo_cli.doctor import diagnose

    needed = ("root", "cgroup-cpu", "cgroup-memory", "cgroup-write")
    return ", ".join(row["name"] for row in diagnose() if row["name"] in needed and not row["present"])


def _node_name() -> str:
    """The host's name as a node name; "this-machine" when it has none that fits."""
    from colo_common.events.subjects import encode_node
    from colo_common.model.invalid import InvalidInput

    name = socket.gethostname().lower().strip(".")
    try:
        encode_node(name)
    except InvalidInput:
        return "this-machine"
    return name
