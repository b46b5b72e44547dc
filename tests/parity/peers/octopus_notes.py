"""What octopus' tables say beside the new state: actions to do and a hook to publish, in prose. Colo's cores act by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from colo_common.model.transitions import Transition

Note = tuple[tuple[str, ...], str | None]
"""The actions, and the hook if there is one."""

NO_NOTE: Final[Note] = ((), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedTransition(Transition):
    """A row with its note."""

    actions: tuple[str, ...] = ()
    hook: str | None = None

    @property
    def note(self) -> Note:
        """The actions and the hook."""
        return self.actions, self.hook


TASK_NOTES: Final[Mapping[str, Note]] = {
    "T1": ((), "task_started"),
    "T3": (("fix result", "stop live replicas"), None),
    "T4": (("result = Stopped", "stop live replicas"), None),
    "T5": (("publish TaskSucceeded, TaskCompleted; MainTaskEvent if main",), "task_ended"),
    "T6": (("publish TaskFailed, TaskCompleted",), "task_ended"),
    "T7": ((), "task_ended"),
    "T8": (("attempt += 1", "replicas to Pending"), None),
}

REPLICA_NOTES: Final[Mapping[str, Note]] = {
    "R01": (("bind message to executor",), None),
    "R02": (("release node, exclude it for a while",), None),
    "R04": ((), "replica_started"),
    "R05": ((), "replica_ended"),
    "R06": (("retry += 1", "arm retry timer"), None),
    "R07": ((), "replica_ended"),
    "R08": (("arm lost timer",), None),
    "R10": (("fence the old instance",), None),
    "R11": (("fence the old instance",), "replica_ended"),
    "R12": (("withdraw placement", "disarm timers"), "replica_ended"),
    "R13": (("SIGTERM, then SIGKILL after grace",), None),
    "R14": ((), "replica_ended"),
    "R15": ((), "replica_ended"),
    "R16": ((), "replica_ended"),
    "R17": (("attempt += 1",), None),
    "R18": (("release node",), None),
}
