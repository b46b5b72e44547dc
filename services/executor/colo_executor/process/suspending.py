"""Takes all CPU from the processes of attempts, or gives it back."""

from collections.abc import Mapping

from colo_common.model.placement import replica_token
from colo_executor.cgroup import CgroupError
from colo_executor.local import ReplicasSuspended, SuspendReplicas
from colo_executor.process.ending import RunningAttempt

__all__ = ["suspended"]


def suspended(effect: SuspendReplicas, running: Mapping[str, RunningAttempt]) -> ReplicasSuspended:
    """Freeze the groups of these attempts, or let them run; `running` are those of this node by token. Blocks."""
    failed = []
    for replica, attempt in effect.attempts:
        one = running.get(replica_token(replica, attempt))
        if one is None:
            continue
        try:
            one.tree.freeze(one.group, is_frozen=effect.is_suspended)
        except FileNotFoundError:
            # It has just ended.
            continue
        except (CgroupError, OSError) as error:
            failed.append((replica, attempt, str(error)))
    return ReplicasSuspended(attempts=effect.attempts, is_suspended=effect.is_suspended, failed=tuple(failed))
