"""Both cores of a node as one: for simulated worlds and conversations, where one owner drives everything."""

from colo_common.events.effects import Effect, Wake
from colo_common.events.enforcement import ZoneCeiling
from colo_executor.core import Executor, ExecutorEvent, ExecutorPolicy
from colo_executor.local import (
    CeilingMoved,
    CeilingRefused,
    CeilingWritten,
    FastReading,
    FreezeRefused,
    FreezeWritten,
    FrozenFound,
    FrozenMoved,
    NoteMode,
    NoteViolation,
    RenewLease,
    SetCeiling,
    SetFrozen,
)
from colo_executor.reflex import Reflex, ReflexEffect, ReflexEvent
from colo_executor.reflex_policy import ReflexPolicy

__all__ = ["NodeEvent", "NodeExecutor"]

NodeEvent = ExecutorEvent | ReflexEvent


class NodeExecutor:
    """Executor and Reflex behind one `handle`; what they tell each other stays inside."""

    def __init__(
        self,
        node: str,
        *,
        capacity_mcpu: int,
        now_ms: int,
        policy: ExecutorPolicy | None = None,
        reflex: ReflexPolicy | None = None,
        ceiling_mcpu: int | None = None,
        zones: tuple[ZoneCeiling, ...] = (),
        has_whole_cores: bool = False,
        only_observes: bool = False,
    ) -> None:
        self.executor = Executor(node, policy or ExecutorPolicy(), only_observes=only_observes)
        self.reflex = Reflex(
            reflex or ReflexPolicy(),
            capacity_mcpu=capacity_mcpu,
            now_ms=now_ms,
            ceiling_mcpu=ceiling_mcpu,
            zones=zones,
            has_whole_cores=has_whole_cores,
        )

    def handle(self, event: NodeEvent, now_ms: int) -> list[Effect]:
        """Route the event, carry what one half says to the other, return what is for the shell."""
        match event:
            case (
                FastReading()
                | RenewLease()
                | CeilingWritten()
                | CeilingRefused()
                | FreezeWritten()
                | FreezeRefused()
                | FrozenFound()
            ):
                return self._from_reflex(self.reflex.handle(event, now_ms), now_ms)
            case Wake():
                effects: list[Effect] = []
                due = self.reflex.deadline_ms()
                if due is not None and due <= now_ms:
                    effects += self._from_reflex(self.reflex.handle(event, now_ms), now_ms)
                return effects + self._from_executor(self.executor.handle(event, now_ms), now_ms)
            case _:
                return self._from_executor(self.executor.handle(event, now_ms), now_ms)

    def deadline_ms(self) -> int | None:
        """The earlier of both."""
        due = [at for at in (self.executor.deadline_ms(), self.reflex.deadline_ms()) if at is not None]
        return min(due, default=None)

    def check(self) -> None:
        """Both halves' invariants."""
        self.executor.check()
        self.reflex.check()

    def _from_reflex(self, effects: list[ReflexEffect], now_ms: int) -> list[Effect]:
        kept: list[Effect] = []
        for effect in effects:
            match effect:
                case CeilingMoved() | FrozenMoved():
                    kept += self._from_executor(self.executor.handle(effect, now_ms), now_ms)
                case SetCeiling() | SetFrozen():
                    kept.append(effect)
        return kept

    def _from_executor(self, effects: list[Effect], now_ms: int) -> list[Effect]:
        kept: list[Effect] = []
        for effect in effects:
            if isinstance(effect, RenewLease | NoteMode | NoteViolation):
                kept += self._from_reflex(self.reflex.handle(effect, now_ms), now_ms)
            else:
                kept.append(effect)
        return kept
