"""Why the lab did not run a command: one sentence for the person who asked."""

from __future__ import annotations

__all__ = ["LabRefused", "MachineFailed"]


class LabRefused(Exception):
    """Nothing was booted: something is missing on this machine. The text says what, and what to do."""


class MachineFailed(Exception):
    """The machine ended without the command's status. `console_tail` are the last lines that its kernel said.

    `timed_out`: the time limit was over. `machine_broke`: the machine itself failed, not what ran in it, and another may do better.
    `began` tells whether the command had begun.
    """

    def __init__(
        self,
        sentence: str,
        console_tail: str,
        *,
        timed_out: bool = False,
        machine_broke: bool = False,
        began: bool = True,
    ) -> None:
        super().__init__(sentence)
        self.console_tail = console_tail
        self.timed_out = timed_out
        self.machine_broke = machine_broke
        self.began = began
