"""Applies facts to replicas. Facts come twice, late and out of order; the attempt number decides whether a fact counts."""

from typing import Final

from msgspec import structs

from colo_common.events.enforcement import PlacementRefused, ReplicaEnded, ReplicaStarted
from colo_common.model.lifecycle import REPLICA
from colo_common.model.reasons import EndCause, Reason
from colo_jobs.completion import settle
from colo_jobs.records import ReplicaRecord
from colo_jobs.requeue import avoiding, failure_wait_ms, free_wait_ms, is_counted, struck
from colo_jobs.transaction import JobTransaction

__all__ = [
    "on_due",
    "on_ended",
    "on_missing",
    "on_node_back",
    "on_node_lost",
    "on_outlived",
    "on_placed",
    "on_refused",
    "on_started",
    "on_used_before",
    "on_still_running",
]

# The exit code of a shell for a command that it cannot run.
_NOT_STARTED_EXIT_CODE: Final = 127
# The guards of an attempt that succeeded: it uses no retry.
_WELL: Final = {"zero": True, "retry": False}
_AVOID_AFTER: Final = frozenset({EndCause.EVICTED, EndCause.START_FAILED})


def on_outlived(txn: JobTransaction, index: int, newest: int) -> None:
    """Request an attempt above `newest` for a waiting replica: the lower ones were used before, under the same id, and are over."""
    replica = txn.job.records[index]
    txn.add_page_line(index, f"{txn.job.name(index)} asks again as attempt {newest + 1}: {newest} was used before")
    replica.attempt = newest + 1
    txn.request_place(index)


def on_placed(txn: JobTransaction, index: int, attempt: int, node: str, zones: tuple[int, ...]) -> None:
    """Apply a placement of this attempt. A node that got an attempt which is over, or that is elsewhere, is ordered to stop it.

    The ledger has one place for an attempt: two were decided where it lost the first one. Where that is known from the node alone,
    it is a leftover that nobody accounts for, perhaps of a job that is gone: the attempt is given up on both nodes.
    """
    replica = txn.job.records[index]
    if replica.state == "Pending" and attempt == replica.attempt:
        _place(txn, index, node, zones)
    elif _is_over(replica, attempt):
        txn.counters.late += 1
        txn.stop(index, node, attempt, _why_over(replica, attempt), "placed")
    elif attempt > replica.attempt:
        txn.counters.future += 1
    elif replica.node == node:
        # A duplicate, or the start arrived before the decision and had no zones.
        if zones and replica.zones != zones:
            txn.touch(index)
            replica.zones = zones
    else:
        if replica.node:
            txn.stop(index, node, attempt, Reason.ALREADY_HELD, "placed")
        if replica.state == "Running" and not replica.zones:
            txn.fire_replica(index, "node_lost", reason=Reason.LEDGER_DISAGREES)
            _give_up(txn, index, Reason.LEDGER_DISAGREES)
        else:
            txn.fire_replica(index, "place")


def on_started(txn: JobTransaction, index: int, fact: ReplicaStarted) -> None:
    """Apply the start of an attempt. A node that started an attempt which is over or stopping is ordered to stop it.

    A start that is told for the first time may only be late: what has ended is stopped where it is said to run again. So is the
    present attempt on another node than the one that has it, and a higher one that was never requested here: it is a leftover of a
    job that came back under its id, or of a time that the store has lost.
    """
    replica = txn.job.records[index]
    is_elsewhere = _is_elsewhere(replica, fact.node)
    if replica.state == "Assigned" and fact.attempt == replica.attempt and not is_elsewhere:
        _run(txn, index, fact)
        return
    should_not_run = replica.state == "Stopping" or is_elsewhere or (fact.again and _has_ended(replica))
    if _is_over(replica, fact.attempt) or (fact.attempt == replica.attempt and should_not_run):
        txn.counters.late += 1
        trigger = f"started:{fact.boot_id}:{fact.seq}"
        txn.stop(index, fact.node, fact.attempt, _why_not(replica, fact.attempt, fact.node), trigger)
        return
    if fact.attempt > replica.attempt:
        txn.counters.future += 1
        if fact.again:
            trigger = f"started:{fact.boot_id}:{fact.seq}"
            txn.stop(index, fact.node, fact.attempt, Reason.LEDGER_DISAGREES, trigger)
        return
    if replica.state == "Pending":
        _place(txn, index, fact.node, ())
    if replica.state == "Assigned":
        _run(txn, index, fact)
    elif replica.state == "Unknown":
        _come_back(txn, index)
    else:
        txn.fire_replica(index, "ready")


def on_ended(txn: JobTransaction, index: int, fact: ReplicaEnded) -> None:
    """Apply the end of an attempt: it holds nothing on the node any more. What ends elsewhere under its number is not it."""
    replica = txn.job.records[index]
    if fact.attempt > replica.attempt:
        txn.counters.future += 1
        return
    if fact.attempt < replica.attempt or _is_elsewhere(replica, fact.node):
        txn.counters.late += 1
        return
    if replica.state == "Pending":
        # The decision arrives later but was made before, so the placement is settled first.
        _place(txn, index, fact.node, ())
        settle(txn)
    if replica.state == "Stopping":
        _end_stopping(txn, index, fact.cause, fact.exit_code, fact.reason)
    else:
        _end(txn, index, fact.cause, fact.exit_code, fact.reason)


def on_refused(txn: JobTransaction, index: int, fact: PlacementRefused) -> None:
    """Apply a refusal of the node: a failure of the replica when its command cannot run, else a new attempt elsewhere.

    Where the node used this attempt before, under the same id, the next one is above all that it used, and may go there.
    """
    replica = txn.job.records[index]
    if fact.attempt > replica.attempt:
        txn.counters.future += 1
        return
    is_used = fact.newest_over >= fact.attempt == replica.attempt
    is_of_other = fact.reason in (Reason.ALREADY_HELD, Reason.OLDER_ATTEMPT) and not is_used
    if fact.attempt < replica.attempt or is_of_other or _is_elsewhere(replica, fact.node):
        txn.counters.late += 1
        return
    if replica.state == "Pending":
        _place(txn, index, fact.node, ())
        settle(txn)
    if replica.state == "Stopping":
        _end_stopping(txn, index, EndCause.START_FAILED, None, fact.reason)
    elif fact.reason is Reason.START_FAILED:
        _end(txn, index, EndCause.START_FAILED, _NOT_STARTED_EXIT_CODE, fact.reason)
    elif is_used:
        _leave_used(txn, index, fact.newest_over, fact.reason)
    elif txn.fire_replica(index, "place_failed", reason=fact.reason):
        replica.reason = fact.reason.value
        _avoid(txn, replica, fact.node)
        _next_attempt(txn, index)


def on_used_before(txn: JobTransaction, index: int, fact: ReplicaEnded) -> None:
    """Apply the end of an earlier job's attempt on the node where the present one of its number was to start: it starts nothing."""
    _leave_used(txn, index, fact.attempt, Reason.OLDER_ATTEMPT)


def on_node_lost(txn: JobTransaction, index: int) -> None:
    """Apply the loss of the replica's node: a replica that has not started is requeued, a running one waits for the lost time.

    The one that is requeued avoids the node as after a refusal: a scheduler that has not heard of the loss would choose it again,
    and again, as fast as both can answer.
    """
    replica = txn.job.records[index]
    match replica.state:
        case "Assigned":
            _fence(txn, index)
            if txn.fire_replica(index, "node_lost", reason=Reason.NODE_LOST):
                _avoid(txn, replica, replica.node)
                _next_attempt(txn, index)
        case "Starting" | "Running":
            if txn.fire_replica(index, "node_lost", reason=Reason.NODE_LOST):
                _arm(txn, index, txn.policy.lost_after_ms)
        case "Stopping" if not replica.due_ms:
            _arm(txn, index, txn.policy.lost_after_ms)
        case _:
            return


def on_node_back(txn: JobTransaction, index: int) -> None:
    """Apply the return of the replica's node. A replica that its executor did not find (`missing`) stays Unknown."""
    replica = txn.job.records[index]
    if replica.missing:
        return
    if replica.state == "Unknown":
        _come_back(txn, index)
    elif replica.state == "Stopping" and replica.due_ms:
        _arm(txn, index, None)


def on_missing(txn: JobTransaction, index: int, at_ms: int) -> None:
    """Apply the recovery of an executor at `at_ms` (its clock) that does not run the attempt: wait the lost time for its end.

    It does not apply to an attempt that started later, because then the facts came in the other order, nor to one that was only
    placed, because its order may still be on the bus. Where the node's clock was set back in between, an attempt that is gone seems
    to have started later: it stays as it is, and the scheduler, which orders again whatever a recovered node lacks, brings it back.
    """
    replica = txn.job.records[index]
    if replica.missing or replica.state not in ("Starting", "Running", "Unknown", "Stopping"):
        return
    if replica.started_at_ms >= at_ms:
        return
    txn.touch(index)
    replica.missing = True
    on_node_lost(txn, index)


def on_still_running(txn: JobTransaction, index: int, attempt: int, node: str, trigger: str) -> None:
    """Apply the recovery of an executor that runs this attempt: it is stopped unless it is the present one and should run there."""
    replica = txn.job.records[index]
    if attempt > replica.attempt:
        txn.counters.future += 1
        txn.stop(index, node, attempt, Reason.LEDGER_DISAGREES, trigger)
    elif (
        attempt < replica.attempt or replica.state == "Stopping" or _has_ended(replica) or _is_elsewhere(replica, node)
    ):
        txn.stop(index, node, attempt, _why_not(replica, attempt, node), trigger)
    elif replica.state == "Unknown":
        _come_back(txn, index)


def on_due(txn: JobTransaction, index: int) -> None:
    """Apply the replica's timer: the end of its retry wait or of its lost time."""
    replica = txn.job.records[index]
    txn.touch(index)
    replica.due_ms = 0
    match replica.state:
        case "Backoff":
            _retry(txn, index)
        case "Unknown":
            _give_up(txn, index, Reason.NODE_LOST)
        case "Stopping":
            txn.withdraw(index, replica.attempt, Reason.NODE_LOST)
            txn.fire_replica(index, "gone", cause=EndCause.LOST, reason=Reason.NODE_LOST)
            replica.missing = False
        case _:
            return


def _leave_used(txn: JobTransaction, index: int, newest: int, reason: Reason) -> None:
    """The next attempt is above all numbers that the node used before."""
    if txn.fire_replica(index, "place_failed", reason=reason):
        txn.job.records[index].attempt = newest
        _next_attempt(txn, index)


def _run(txn: JobTransaction, index: int, fact: ReplicaStarted) -> None:
    txn.fire_replica(index, "started")
    txn.fire_replica(index, "ready")
    txn.job.records[index].started_at_ms = fact.at_ms


def _place(txn: JobTransaction, index: int, node: str, zones: tuple[int, ...]) -> None:
    txn.touch(index)
    replica = txn.job.records[index]
    replica.node = node
    replica.zones = zones
    replica.reason = ""
    txn.fire_replica(index, "place")
    if txn.job.notes:
        txn.job.notes.pop(txn.job.task_of(index), None)


def _come_back(txn: JobTransaction, index: int) -> None:
    if txn.fire_replica(index, "node_back"):
        replica = txn.job.records[index]
        replica.due_ms = 0
        replica.missing = False


def _end(txn: JobTransaction, index: int, cause: EndCause, exit_code: int, reason: Reason | None) -> None:
    replica = txn.job.records[index]
    is_well = cause is EndCause.EXITED and exit_code == 0
    guards = _WELL if is_well else {"zero": False, "retry": _has_retry(txn, index, cause)}
    if not txn.fire_replica(index, "exit", guards, cause=cause, exit_code=exit_code, reason=reason):
        return
    replica.exit_code = exit_code
    replica.reason = (reason or cause).value if not is_well else ""
    replica.due_ms = 0
    replica.missing = False
    if is_well:
        return
    if cause in _AVOID_AFTER:
        _avoid(txn, replica, replica.node)
    if is_counted(cause):
        txn.counters.failures += 1
        if replica.state == "Backoff":
            replica.retries += 1
            _wait(txn, index, failure_wait_ms(txn.policy, replica.retries))
        return
    if cause is EndCause.EVICTED:
        replica.evictions += 1
        txn.counters.evictions += 1
        _wait(txn, index, free_wait_ms(txn.policy, replica.evictions))
    else:
        replica.losses += 1
        txn.counters.losses += 1
        _wait(txn, index, free_wait_ms(txn.policy, replica.losses))


def _has_retry(txn: JobTransaction, index: int, cause: EndCause) -> bool:
    return not is_counted(cause) or txn.job.records[index].retries < txn.job.task_spec(index).max_retry


def _end_stopping(
    txn: JobTransaction, index: int, cause: EndCause, exit_code: int | None, reason: Reason | None
) -> None:
    replica = txn.job.records[index]
    if cause is EndCause.EXITED:
        txn.fire_replica(
            index, "exit", {"zero": exit_code == 0, "retry": False}, cause=cause, exit_code=exit_code, reason=reason
        )
    else:
        txn.fire_replica(index, "gone", cause=cause, exit_code=exit_code, reason=reason)
    replica.exit_code = exit_code
    replica.due_ms = 0
    replica.missing = False


def _wait(txn: JobTransaction, index: int, wait_ms: int) -> None:
    """Retry a replica in Backoff after the wait, at once when it is 0."""
    if wait_ms == 0:
        _retry(txn, index)
    else:
        _arm(txn, index, wait_ms)


def _retry(txn: JobTransaction, index: int) -> None:
    if txn.fire_replica(index, "retry_due"):
        _next_attempt(txn, index)


def _next_attempt(txn: JobTransaction, index: int) -> None:
    """Start a new attempt that needs a place. Late facts about the old attempt have its lower number."""
    replica = txn.job.records[index]
    replica.attempt += 1
    replica.node = ""
    replica.zones = ()
    replica.due_ms = 0
    replica.started_at_ms = 0
    replica.missing = False
    txn.moves[-1] = structs.replace(txn.moves[-1], attempt=replica.attempt)
    txn.request_place(index)


def _give_up(txn: JobTransaction, index: int, reason: Reason) -> None:
    """Give up the attempt of a replica in Unknown, and retry it."""
    replica = txn.job.records[index]
    _fence(txn, index, reason)
    # It is not the replica's fault, so a retry is always left.
    if txn.fire_replica(index, "lost_timeout", {"retry": True}, cause=EndCause.LOST, reason=reason):
        replica.losses += 1
        txn.counters.losses += 1
        replica.reason = reason.value
        _wait(txn, index, free_wait_ms(txn.policy, replica.losses))


def _fence(txn: JobTransaction, index: int, reason: Reason = Reason.NODE_LOST) -> None:
    """Withdraw the attempt, which frees its place, and order its node to stop it."""
    replica = txn.job.records[index]
    txn.withdraw(index, replica.attempt, reason)
    txn.stop(index, replica.node, replica.attempt, reason, "fenced")


def _avoid(txn: JobTransaction, replica: ReplicaRecord, node: str) -> None:
    replica.strikes, wait_ms = struck(replica.strikes, txn.policy, node, txn.now_ms)
    replica.avoid = avoiding(replica.avoid, node, txn.now_ms + wait_ms, txn.now_ms)


def _arm(txn: JobTransaction, index: int, wait_ms: int | None) -> None:
    txn.touch(index)
    txn.job.records[index].due_ms = 0 if wait_ms is None else txn.now_ms + wait_ms


def _is_over(replica: ReplicaRecord, attempt: int) -> bool:
    """Whether the attempt must not run: there is a newer one, or the replica was stopped."""
    return attempt < replica.attempt or (attempt == replica.attempt and replica.state == "Stopped")


def _has_ended(replica: ReplicaRecord) -> bool:
    """Whether the present attempt runs nowhere, as far as is known."""
    return replica.state == "Backoff" or replica.state in REPLICA.terminal


def _is_elsewhere(replica: ReplicaRecord, node: str) -> bool:
    """Whether another node than this one has the present attempt."""
    return replica.node not in ("", node)


def _why_not(replica: ReplicaRecord, attempt: int, node: str) -> Reason:
    if attempt == replica.attempt and _is_elsewhere(replica, node):
        return Reason.ALREADY_HELD
    return _why_over(replica, attempt)


def _why_over(replica: ReplicaRecord, attempt: int) -> Reason:
    if attempt < replica.attempt:
        return Reason.OLDER_ATTEMPT
    return Reason.CANCELLED if replica.reason == Reason.CANCELLED.value else Reason.TASK_DONE
