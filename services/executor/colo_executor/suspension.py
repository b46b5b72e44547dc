"""What operators forbid on this node: batch work that is suspended, and placements that are not started."""

from collections.abc import Mapping
from typing import Final

from colo_common.events.effects import Effect, Publish
from colo_common.events.restriction import RestrictionsApplied, RestrictionsChanged
from colo_common.model.placement import Placement
from colo_common.model.reasons import Reason
from colo_common.model.restriction import (
    Restriction,
    RestrictionKind,
    Restrictions,
    RestrictionScope,
    restriction_text,
)
from colo_executor.attempt import AttemptPhase, ReplicaAttempt
from colo_executor.local import Adopted, Attempt, RememberRestrictions, ReplicasSuspended, SuspendReplicas
from colo_executor.online import is_online

__all__ = ["Suspension"]

_RETRY_MS: Final = 1_000
_TRIES_MOST: Final = 10
_FAILED_SHOWN: Final = 10


class Suspension:
    """Follows the restrictions: which attempts are to be suspended, which are, and what the node has confirmed.

    Online work is never suspended. An attempt that is told to stop is resumed first, because a frozen process hears no signal.
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self.restrictions = Restrictions()
        self.suspended: set[Attempt] = set()
        self._failed: dict[Attempt, str] = {}
        self._waits_for = 0
        self._is_due = False
        self._tries = 0
        self._retry_at_ms: int | None = None

    def changed(self, event: RestrictionsChanged, active: Mapping[str, ReplicaAttempt], now_ms: int) -> list[Effect]:
        """Take a newer table: journal the part that concerns this node, then suspend and resume what differs."""
        before = self._of_node()
        if not self.restrictions.take(event.revision, event.restrictions, now_ms):
            return []
        of_node = self._of_node()
        effects: list[Effect] = []
        if of_node != before:
            effects.append(RememberRestrictions(revision=event.revision, restrictions=of_node))
            self._is_due = self._is_due or _of_place(of_node) != _of_place(before)
        self._tries = 0
        return effects + self.follow(active, now_ms)

    def adopted(self, event: Adopted, active: Mapping[str, ReplicaAttempt], now_ms: int) -> list[Effect]:
        """Follow the journaled restrictions. Every adopted attempt is resumed or suspended: a crash may have come in between.

        Also where the journal knows of no restriction, which may be lost while the kernel holds what an earlier executor suspended.
        """
        self.restrictions.take(event.revision, event.restrictions, now_ms)
        self.suspended = {
            key
            for key, attempt in _suspendable(active)
            # Only a journal knows of an attachment: where it has no table, somebody else holds that group.
            if not self._suspends(attempt.placement) and (event.revision or attempt.placement.run.attach is None)
        }
        return self.follow(active, now_ms)

    def wake(self, active: Mapping[str, ReplicaAttempt], now_ms: int) -> list[Effect]:
        """Resume what a restriction held whose time is over, and try again what failed."""
        over = self.restrictions.expire(now_ms)
        is_retry = self._retry_at_ms is not None and self._retry_at_ms <= now_ms
        if not over and not is_retry:
            return []
        self._retry_at_ms = None
        return self.follow(active, now_ms)

    def deadline_ms(self) -> int | None:
        """When the next restriction is over, or the next try is due."""
        due = [at for at in (self.restrictions.deadline_ms(), self._retry_at_ms) if at is not None]
        return min(due, default=None)

    def follow(self, active: Mapping[str, ReplicaAttempt], now_ms: int) -> list[Effect]:
        """Suspend and resume what differs from the restrictions; the confirmation, when nothing is under way."""
        running = dict(_suspendable(active))
        self.suspended &= running.keys()
        target = {key for key, attempt in running.items() if self._suspends(attempt.placement)}
        effects: list[Effect] = []
        for attempts, is_suspended in ((target - self.suspended, True), (self.suspended - target, False)):
            if attempts:
                effects.append(SuspendReplicas(attempts=tuple(sorted(attempts)), is_suspended=is_suspended))
        self._waits_for += len(effects)
        # As intended, until the result says otherwise: the attempts are not asked for twice.
        self.suspended = target
        return effects or self._confirm(now_ms)

    def done(self, event: ReplicasSuspended, now_ms: int) -> list[Effect]:
        """Take the result: what failed is tried again after a second, a few times."""
        self._waits_for = max(0, self._waits_for - 1)
        # Before the first table there is nothing to confirm.
        self._is_due = self.restrictions.revision > 0
        for attempt in event.attempts:
            self._failed.pop(attempt, None)
        for replica, number, sentence in event.failed:
            self._failed[(replica, number)] = sentence
            (self.suspended.discard if event.is_suspended else self.suspended.add)((replica, number))
        if event.failed and self._tries < _TRIES_MOST:
            self._tries += 1
            self._retry_at_ms = now_ms + _RETRY_MS
        return self._confirm(now_ms)

    def again(self, now_ms: int) -> list[Effect]:
        """Confirm once more which table the node follows, as soon as nothing is under way."""
        self._is_due = self.restrictions.revision > 0
        return self._confirm(now_ms)

    def stopping(self, replica: str, number: int) -> list[Effect]:
        """Let a suspended attempt run again, so that it hears the signal to stop."""
        if (replica, number) not in self.suspended:
            return []
        self.suspended.discard((replica, number))
        self._waits_for += 1
        return [SuspendReplicas(attempts=((replica, number),), is_suspended=False)]

    def exited(self, replica: str, number: int) -> None:
        """Forget an attempt that has ended."""
        self.suspended.discard((replica, number))
        self._failed.pop((replica, number), None)

    def is_held(self) -> bool:
        """Whether an operator has paused this node, and works on it by hand."""
        found = self.restrictions.suspension_of(self.node)
        return found is not None and found.kind is RestrictionKind.PAUSE

    def paused(self, active: Mapping[str, ReplicaAttempt]) -> frozenset[Attempt]:
        """The attempts, of online work too, whose job or queue an operator has paused with what runs, and works on by hand."""
        found = ((attempt.placement, attempt.placement.attempt) for attempt in active.values())
        return frozenset(
            (placement.replica, number)
            for placement, number in found
            if self.restrictions.suspended_with(placement.job, placement.queue) is not None
        )

    def refusal(self, placement: Placement) -> tuple[Reason, str] | None:
        """Why the placement is not started now: the reason, and who forbade it and why."""
        if is_online(placement):
            return None
        found = self.restrictions.suspension_of(self.node)
        if found is None:
            return None
        is_quiesce = found.kind is RestrictionKind.QUIESCE
        return (Reason.BATCH_QUIESCED if is_quiesce else Reason.NODE_PAUSED), restriction_text(found)

    def _suspends(self, placement: Placement) -> bool:
        if self.restrictions.suspension_of(self.node) is not None:
            return True
        return self.restrictions.suspended_with(placement.job, placement.queue) is not None

    def _confirm(self, now_ms: int) -> list[Effect]:
        if self._waits_for or not self._is_due:
            return []
        self._is_due = False
        fact = RestrictionsApplied(
            at_ms=now_ms,
            node=self.node,
            revision=self.restrictions.revision,
            suspended=len(self.suspended),
            failed=tuple([self._failed[key] for key in sorted(self._failed)][:_FAILED_SHOWN]),
        )
        name = f"executor:restricted:{self.node}:{fact.revision}:{now_ms}:{fact.suspended}"
        return [Publish(fact=fact, id=name)]

    def _of_node(self) -> tuple[Restriction, ...]:
        """The restrictions that concern this node, with the pauses of all jobs and queues: their replicas may come later."""
        return (*self.restrictions.on_node(self.node), *(each for each in self.restrictions if _is_of_work(each)))


def _is_of_work(restriction: Restriction) -> bool:
    """Whether it suspends work by its job or queue, on whichever node that runs."""
    return restriction.scope is RestrictionScope.JOB or restriction.suspends


def _of_place(restrictions: tuple[Restriction, ...]) -> tuple[Restriction, ...]:
    return tuple([each for each in restrictions if not _is_of_work(each)])


def _suspendable(active: Mapping[str, ReplicaAttempt]) -> list[tuple[Attempt, ReplicaAttempt]]:
    return [
        ((replica, attempt.placement.attempt), attempt)
        for replica, attempt in sorted(active.items())
        if attempt.phase is AttemptPhase.RUNNING and not is_online(attempt.placement)
    ]
