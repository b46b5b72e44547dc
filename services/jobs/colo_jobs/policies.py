"""Lifecycle policies: the action on a job when one of its tasks ends."""

from collections.abc import Sequence
from typing import Final, Literal, get_args

from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = ["DEFAULT_POLICIES", "LifecyclePolicy", "action_for"]

TaskEvent = Literal["TaskSucceeded", "TaskFailed", "TaskCompleted", "MainTaskEvent"]
Action = Literal["complete_job", "fail_job", "terminate_job", "no_action"]


class LifecyclePolicy(Struct, frozen=True, kw_only=True):
    """On `event` of `task` (empty: of any task), do `action` to the job."""

    event: TaskEvent
    action: Action
    task: str = ""

    def validate(self, field: str) -> None:
        """Raise InvalidInput for an event or an action that is not known."""
        if self.event not in get_args(TaskEvent):
            raise InvalidInput(f"{field}.event", f"must be one of {' '.join(get_args(TaskEvent))}", self.event)
        if self.action not in get_args(Action):
            raise InvalidInput(f"{field}.action", f"must be one of {' '.join(get_args(Action))}", self.action)


_FAIL_JOB: Final = LifecyclePolicy(event="TaskFailed", action="fail_job")
DEFAULT_POLICIES: Final = (_FAIL_JOB,)


def action_for(policies: Sequence[LifecyclePolicy], event: TaskEvent, task: str) -> Action | None:
    """The action of the first policy that matches, None without one. Policies with the task's name come first."""
    for policy in policies:
        if policy.task == task and policy.event == event:
            return policy.action
    for policy in policies:
        if not policy.task and policy.event == event:
            return policy.action
    return None
