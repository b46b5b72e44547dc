"""What each fact about a replica does to it. Facts come twice, late and out of order; the attempt number tells which count."""

from typing import Final

from msgspec import structs

from colo_common.events.enforcement import PlacementRefused, ReplicaEnded, ReplicaStarted
from colo_common.model.lifecycle import REPLICA
from colo_common.model.reasons import EndCause, Reason
from colo_jobs.completion import settle
from colo_jobs.records import ReplicaRecord
from colo_jobs.requeue import avoiding, failure_wait_ms, free_wait_ms, is_counted
from colo_jobs.transaction import JobTransaction

__all__ = [
    "on_due",
    "on_ended",
    "on_missing",
    "on_node_back",
    "on_node_lost",
    "on_placed",
    "on_refused",
    "on_started",
    "on_still_running",
]

# As shells say it: the command could not be run.
_NOT_STARTED_EXIT_CODE: Final = 127
# What ended well needs no retry, whether it has one or not.
_WELL: Final = {"zero": True, "retry": False}
_AVOID_AFTER: Final = frozenset({EndCause.EVICTED, EndCause.START_FAILED})


def on_placed(turn: JobTransaction, index: int, attempt: int, node: str, zones: tuple[int, ...]) -> None:
    """The scheduler committed a place for this attempt. A place for one that is over is given back by stopping it there."""
    replica = turn.job.records[index]
    if replica.state == "Pending" and attempt == replica.attempt:
        _place(turn, index, node, zones)
    elif _is_over(replica, attempt):
        turn.counters.late += 1
        turn.stop(index, node, attempt, _why_over(replica, attempt), "placed")
    elif attempt > replica.attempt:
        turn.counters.future += 1
    elif replica.node == node:
        # A duplicate, or the start was heard first and did not know the zones.
        if zones and replica.zones != zones:
            turn.touch(index)
            replica.zones = zones
    else:
        turn.fire_replica(index, "place")


def on_started(turn: JobTransaction, index: int, fact: ReplicaStarted) -> None:
    """The attempt runs on the node. What should not run any more is stopped there."""
    replica = turn.job.records[index]
    if replica.state == "Assigned" and fact.attempt == replica.attempt:
        _run(turn, index, fact)
        return
    is_stopping = fact.attempt == replica.attempt and replica.state == "Stopping"
    if _is_over(replica, fact.attempt) or is_stopping:
        turn.counters.late += 1
        trigger = f"started:{fact.boot_id}:{fact.seq}"
        turn.stop(index, fact.node, fact.attempt, _why_over(replica, fact.attempt), trigger)
        return
    if fact.attempt > replica.attempt:
        turn.counters.future += 1
        return
    if replica.state == "Pending":
        _place(turn, index, fact.node, ())
    if replica.state == "Assigned":
        _run(turn, index, fact)
    elif replica.state == "Unknown":
        _come_back(turn, index)
    else:
        turn.fire_replica(index, "ready")


def on_ended(turn: JobTransaction, index: int, fact: ReplicaEnded) -> None:
    """The attempt holds nothing on the node any more."""
    replica = turn.job.records[index]
    if fact.attempt > replica.attempt:
        turn.counters.future += 1
        return
    if fact.attempt < replica.attempt:
        turn.counters.late += 1
        return
    if replica.state == "Pending":
        # The decision is heard later. It came first all the same, so it is settled first.
        _place(turn, index, fact.node, ())
        settle(turn)
    if replica.state == "Stopping":
        _end_stopping(turn, index, fact.cause, fact.exit_code, fact.reason)
    else:
        _end(turn, index, fact.cause, fact.exit_code, fact.reason)


def on_refused(turn: JobTransaction, index: int, fact: PlacementRefused) -> None:
    """The node did not start the attempt: a failure of the replica when its command cannot run, else the node's."""
    replica = turn.job.records[index]
    if fact.attempt > replica.attempt:
        turn.counters.future += 1
        return
    if fact.attempt < replica.attempt or fact.reason in (Reason.ALREADY_HELD, Reason.OLDER_ATTEMPT):
        turn.counters.late += 1
        return
    if replica.state == "Pending":
        _place(turn, index, fact.node, ())
        settle(turn)
    if replica.state == "Stopping":
        _end_stopping(turn, index, EndCause.START_FAILED, None, fact.reason)
    elif fact.reason is Reason.START_FAILED:
        _end(turn, index, EndCause.START_FAILED, _NOT_STARTED_EXIT_CODE, fact.reason)
    elif turn.fire_replica(index, "place_failed", reason=fact.reason):
        replica.reason = fact.reason.value
        _avoid(turn, replica, fact.node)
        _next_attempt(turn, index)


def on_node_lost(turn: JobTransaction, index: int) -> None:
    """Nothing is heard of the replica's node: what was not started yet is placed anew, what runs is waited for."""
    replica = turn.job.records[index]
    match replica.state:
        case "Assigned":
            _fence(turn, index)
            if turn.fire_replica(index, "node_lost", reason=Reason.NODE_LOST):
                _next_attempt(turn, index)
        case "Starting" | "Running":
            if turn.fire_replica(index, "node_lost", reason=Reason.NODE_LOST):
                _arm(turn, index, turn.policy.lost_after_ms)
        case "Stopping" if not replica.due_ms:
            _arm(turn, index, turn.policy.lost_after_ms)
        case _:
            return


def on_node_back(turn: JobTransaction, index: int) -> None:
    """The node is heard again. A replica that it did not name when it recovered stays unknown."""
    replica = turn.job.records[index]
    if replica.missing:
        return
    if replica.state == "Unknown":
        _come_back(turn, index)
    elif replica.state == "Stopping" and replica.due_ms:
        _arm(turn, index, None)


def on_missing(turn: JobTransaction, index: int, at_ms: int) -> None:
    """An executor that recovered at `at_ms` (its clock) does not run the attempt. Its end may still be reported: wait for it.

    An attempt that was started after that is not meant: the two facts came in the other order. Neither is one that was
    only placed: its order may still lie on the bus.
    """
    replica = turn.job.records[index]
    if replica.missing or replica.state not in ("Starting", "Running", "Unknown", "Stopping"):
        return
    if replica.started_at_ms >= at_ms:
        return
    turn.touch(index)
    replica.missing = True
    on_node_lost(turn, index)


def on_still_running(turn: JobTransaction, index: int, attempt: int, node: str, trigger: str) -> None:
    """An executor that recovered runs this attempt: good if it is the present one and wanted, else it is stopped."""
    replica = turn.job.records[index]
    if attempt > replica.attempt:
        turn.counters.future += 1
    elif attempt < replica.attempt or replica.state in ("Stopping", "Backoff") or replica.state in REPLICA.terminal:
        turn.stop(index, node, attempt, _why_over(replica, attempt), trigger)
    elif replica.state == "Unknown":
        _come_back(turn, index)


def on_due(turn: JobTransaction, index: int) -> None:
    """The replica's timer has come."""
    replica = turn.job.records[index]
    turn.touch(index)
    replica.due_ms = 0
    match replica.state:
        case "Backoff":
            _retry(turn, index)
        case "Unknown":
            _fence(turn, index)
            # A lost node is not the replica's fault, so a retry is always left.
            if turn.fire_replica(index, "lost_timeout", {"retry": True}, cause=EndCause.LOST, reason=Reason.NODE_LOST):
                replica.losses += 1
                turn.counters.losses += 1
                replica.reason = Reason.NODE_LOST.value
                _wait(turn, index, free_wait_ms(turn.policy, replica.losses))
        case "Stopping":
            turn.withdraw(index, replica.attempt, Reason.NODE_LOST)
            turn.fire_replica(index, "gone", cause=EndCause.LOST, reason=Reason.NODE_LOST)
            replica.missing = False
        case _:
            return


def _run(turn: JobTransaction, index: int, fact: ReplicaStarted) -> None:
    turn.fire_replica(index, "started")
    turn.fire_replica(index, "ready")
    turn.job.records[index].started_at_ms = fact.at_ms


def _place(turn: JobTransaction, index: int, node: str, zones: tuple[int, ...]) -> None:
    turn.touch(index)
    replica = turn.job.records[index]
    replica.node = node
    replica.zones = zones
    replica.reason = ""
    turn.fire_replica(index, "place")
    if turn.job.notes:
        turn.job.notes.pop(turn.job.task_of(index), None)


def _come_back(turn: JobTransaction, index: int) -> None:
    if turn.fire_replica(index, "node_back"):
        replica = turn.job.records[index]
        replica.due_ms = 0
        replica.missing = False


def _end(turn: JobTransaction, index: int, cause: EndCause, exit_code: int, reason: Reason | None) -> None:
    replica = turn.job.records[index]
    is_well = cause is EndCause.EXITED and exit_code == 0
    guards = _WELL if is_well else {"zero": False, "retry": _has_retry(turn, index, cause)}
    if not turn.fire_replica(index, "exit", guards, cause=cause, exit_code=exit_code, reason=reason):
        return
    replica.exit_code = exit_code
    replica.reason = (reason or cause).value if not is_well else ""
    replica.due_ms = 0
    replica.missing = False
    if is_well:
        return
    if cause in _AVOID_AFTER:
        _avoid(turn, replica, replica.node)
    if is_counted(cause):
        turn.counters.failures += 1
        if replica.state == "Backoff":
            replica.retries += 1
            _wait(turn, index, failure_wait_ms(turn.policy, replica.retries))
        return
    if cause is EndCause.EVICTED:
        replica.evictions += 1
        turn.counters.evictions += 1
        _wait(turn, index, free_wait_ms(turn.policy, replica.evictions))
    else:
        replica.losses += 1
        turn.counters.losses += 1
        _wait(turn, index, free_wait_ms(turn.policy, replica.losses))


def _has_retry(turn: JobTransaction, index: int, cause: EndCause) -> bool:
    return not is_counted(cause) or turn.job.records[index].retries < turn.job.task_spec(index).max_retry


def _end_stopping(
    turn: JobTransaction, index: int, cause: EndCause, exit_code: int | None, reason: Reason | None
) -> None:
    replica = turn.job.records[index]
    if cause is EndCause.EXITED:
        turn.fire_replica(
            index, "exit", {"zero": exit_code == 0, "retry": False}, cause=cause, exit_code=exit_code, reason=reason
        )
    else:
        turn.fire_replica(index, "gone", cause=cause, exit_code=exit_code, reason=reason)
    replica.exit_code = exit_code
    replica.due_ms = 0
    replica.missing = False


def _wait(turn: JobTransaction, index: int, wait_ms: int) -> None:
    """A replica in Backoff tries again after the wait; without one at once."""
    if wait_ms == 0:
        _retry(turn, index)
    else:
        _arm(turn, index, wait_ms)


def _retry(turn: JobTransaction, index: int) -> None:
    if turn.fire_replica(index, "retry_due"):
        _next_attempt(turn, index)


def _next_attempt(turn: JobTransaction, index: int) -> None:
    """The replica wants a place again, under a new attempt: whatever the old one still does is told apart by its number."""
    replica = turn.job.records[index]
    replica.attempt += 1
    replica.node = ""
    replica.zones = ()
    replica.due_ms = 0
    replica.started_at_ms = 0
    replica.missing = False
    turn.moves[-1] = structs.replace(turn.moves[-1], attempt=replica.attempt)
    turn.placement_request(index)


def _fence(turn: JobTransaction, index: int) -> None:
    """The attempt is given up: its place is free, and its node stops it when it hears of this."""
    replica = turn.job.records[index]
    turn.withdraw(index, replica.attempt, Reason.NODE_LOST)
    turn.stop(index, replica.node, replica.attempt, Reason.NODE_LOST, "fenced")


def _avoid(turn: JobTransaction, replica: ReplicaRecord, node: str) -> None:
    replica.avoid = avoiding(replica.avoid, node, turn.now_ms + turn.policy.avoid_ms, turn.now_ms)


def _arm(turn: JobTransaction, index: int, wait_ms: int | None) -> None:
    turn.touch(index)
    turn.job.records[index].due_ms = 0 if wait_ms is None else turn.now_ms + wait_ms


def _is_over(replica: ReplicaRecord, attempt: int) -> bool:
    """Whether the attempt must not run: a newer one is known, or the replica was stopped."""
    return attempt < replica.attempt or (attempt == replica.attempt and replica.state == "Stopped")


def _why_over(replica: ReplicaRecord, attempt: int) -> Reason:
    if attempt < replica.attempt:
        return Reason.OLDER_ATTEMPT
    return Reason.CANCELLED if replica.reason == Reason.CANCELLED.value else Reason.TASK_DONE
