"""Whether batch work is to be frozen, whether the kernel freezes it, and why: the last rung of the reflex's ladder.

`freeze` decides; this keeps what was decided against what the kernel shows, and tries a thaw that was refused until it is taken.
"""

from typing import Final

from colo_common.model.invalid import InvariantBroken
from colo_common.model.reasons import Reason
from colo_executor.freeze import FreezeCause, FreezeChange, FreezePolicy, FreezeState, decide_freeze, thawed
from colo_executor.freeze_cause import FreezeHarm
from colo_executor.local import FreezeRefused, FreezeWritten, FrozenFound, SetFrozen

__all__ = ["THAWED", "LastRung"]

THAWED: Final[dict[FreezeChange, Reason]] = {
    "calm": Reason.BATCH_THAWED,
    "otherwise": Reason.BATCH_THAWED_OTHERWISE,
    "limit": Reason.BATCH_THAWED_LIMIT,
    "stop": Reason.BATCH_THAWED_STOP,
}
"""Why batch work runs again, by what changed."""


class LastRung:
    """Batch work runs at first. `retry_ms` lies between two tries of a thaw. `state` is that of the rule, `cause` the newest harm
    that batch work was frozen for, and `reason` why it was last frozen or thawed.
    """

    def __init__(self, policy: FreezePolicy, retry_ms: int, now_ms: int) -> None:
        self.state = FreezeState()
        self.is_frozen = False
        self.reason = Reason.BATCH_THAWED
        self.cause: FreezeCause | None = None
        self._policy = policy
        self._retry_ms = retry_ms
        self._thaw_at_ms = now_ms

    def deadline_ms(self) -> int | None:
        """When a thaw is tried again; None: there is none to try."""
        return self._thaw_at_ms if self.is_frozen and self.state.frozen_since_ms is None else None

    def check(self, *, is_blind: bool) -> None:
        """Raise InvariantBroken when batch work is to be frozen and nobody looks at whether it still has to be."""
        if self.state.frozen_since_ms is not None and (is_blind or self._policy.by == "off"):
            raise InvariantBroken("batch work is frozen and nobody looks", blind=is_blind)

    def judge(self, harm: FreezeHarm, *, is_at_floor: bool, may_freeze: bool, now_ms: int) -> None:
        """Freeze or thaw for this harm, as `decide_freeze` says."""
        self.state, change = decide_freeze(
            self._policy,
            self.state,
            harm=harm.cause,
            has_helped=harm.has_helped,
            is_at_floor=is_at_floor,
            may_freeze=may_freeze,
            now_ms=now_ms,
        )
        if change == "freeze":
            self.reason, self.cause = Reason.BATCH_FROZEN, self.state.cause
        elif change != "none":
            self.reason = THAWED[change]

    def thaw(self, reason: Reason, now_ms: int) -> None:
        """Let batch work run again, if it is to be frozen."""
        if self.state.frozen_since_ms is not None:
            self.state = thawed(self._policy, self.state, now_ms)
            self.reason = reason

    def write(self, now_ms: int) -> list[SetFrozen]:
        """What the kernel is to be told, when it is due."""
        is_wanted = self.state.frozen_since_ms is not None
        if is_wanted == self.is_frozen or (not is_wanted and now_ms < self._thaw_at_ms):
            return []
        if not is_wanted:
            self._thaw_at_ms = now_ms + self._retry_ms
        return [SetFrozen(is_frozen=is_wanted)]

    def written(self, event: FreezeWritten, now_ms: int) -> bool:
        """Note what the kernel shows. Returns whether that is news."""
        if event.is_frozen == self.is_frozen:
            return False
        self.is_frozen, self._thaw_at_ms = event.is_frozen, now_ms
        return True

    def refused(self, event: FreezeRefused, now_ms: int) -> None:
        """Give up a freeze, and excuse it; try a thaw again until the kernel takes it."""
        if event.is_frozen:
            self.state = thawed(self._policy, self.state, now_ms, is_excused=True)
        self._thaw_at_ms = now_ms + self._retry_ms

    def found(self, event: FrozenFound, now_ms: int) -> list[SetFrozen]:
        """Somebody else froze batch work: it runs until the reflex decides again. Returns the thaw, if it is due."""
        self.thaw(Reason.BATCH_THAWED, now_ms)
        if not event.is_frozen or self.is_frozen:
            return []
        self.is_frozen, self.reason = True, Reason.BATCH_THAWED
        return self.write(now_ms)
