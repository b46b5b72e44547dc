"""Attempts of replicas that a real runtime launches, and their ends."""

from __future__ import annotations

from colo_common.model.placement import Placement
from colo_executor.local import ReplicaExited, ReplicaLaunched
from colo_executor.process.runtime import ProcessRuntime
from tests.support.waiting import eventually

__all__ = ["next_exit", "start"]


async def start(runtime: ProcessRuntime, placement: Placement) -> ReplicaLaunched:
    """Launch the replica's attempt under generation 1; a refusal fails the test."""
    launched = await runtime.launch(placement, 1)
    assert isinstance(launched, ReplicaLaunched), launched
    return launched


async def next_exit(runtime: ProcessRuntime) -> ReplicaExited:
    """Wait for the next end; two at a time fail the test."""

    async def look() -> tuple[ReplicaExited, ...]:
        return runtime.poll_exits()

    (exited,) = await eventually(look, "an exit")
    return exited
