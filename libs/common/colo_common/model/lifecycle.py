"""The four state machines of batch work, by name: job, task, replica and preemption pair."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from colo_common.model.lifecycle_job import JOB
from colo_common.model.lifecycle_pair import PAIR
from colo_common.model.lifecycle_replica import REPLICA
from colo_common.model.lifecycle_task import TASK
from colo_common.model.transitions import StateMachine

__all__ = ["JOB", "MACHINES", "PAIR", "REPLICA", "TASK"]

MACHINES: Final[Mapping[str, StateMachine]] = MappingProxyType(
    {machine.name: machine for machine in (JOB, TASK, REPLICA, PAIR)}
)
