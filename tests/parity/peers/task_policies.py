"""What octopus adds to the policies of a job: a failed task fails the job unless a policy for the whole job says otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from colo_jobs.policies import DEFAULT_POLICIES, LifecyclePolicy


def with_default(policies: Sequence[LifecyclePolicy]) -> tuple[LifecyclePolicy, ...]:
    """The policies, after "TaskFailed -> fail_job" unless one for the whole job says what a failed or completed task does."""
    for index, policy in enumerate(policies):
        policy.validate(f"policies[{index}]")
    if any(not policy.task and policy.event in ("TaskFailed", "TaskCompleted") for policy in policies):
        return tuple(policies)
    return (*DEFAULT_POLICIES, *policies)
