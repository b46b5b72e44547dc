"""The three state machines of batch work: job, task and replica."""

from __future__ import annotations

from colo_common.model.lifecycle_job import JOB
from colo_common.model.lifecycle_replica import REPLICA
from colo_common.model.lifecycle_task import TASK

__all__ = ["JOB", "REPLICA", "TASK"]
