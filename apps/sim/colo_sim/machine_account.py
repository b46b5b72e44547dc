"""The account of what online work feels in one way of running batch work beside it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

__all__ = ["DELAY_STEP_PERMILLE", "Account", "OnlineAccount"]

DELAY_STEP_PERMILLE: Final = 10
_DELAYS: Final = 1_001


class OnlineAccount(Struct, frozen=True, kw_only=True):
    """What online work of a machine felt, with batch work run in one way.

    `harm_ms` is the time in which it got less CPU than it wanted or its delay was above the bound, `longest_harm_ms` the longest
    uninterrupted part of it. `delay_ms` is the machine's time by the delay then, in steps of 1 % of the time on an idle machine,
    rounded up; the last step has all longer ones. `batch_mcpu_ms` is the CPU time that batch work got.
    """

    harm_ms: int = 0
    longest_harm_ms: int = 0
    batch_mcpu_ms: int = 0
    delay_ms: dict[int, int] = {}


class Account:
    """The running sums of one OnlineAccount. The rates set by `feel` hold from its moment until that of the next call."""

    __slots__ = (
        "_batch_mcpu",
        "_delays",
        "_harm_ms",
        "_lasts_ms",
        "_longest_ms",
        "_since_ms",
        "_step",
        "_used_mcpu_ms",
        "is_harm",
        "last_harm_ms",
    )

    def __init__(self) -> None:
        self._delays = [0] * _DELAYS
        self._step = 0
        self._batch_mcpu = 0
        self._used_mcpu_ms = 0
        self._since_ms = 0
        self._harm_ms = 0
        self._lasts_ms = 0
        self._longest_ms = 0
        self.is_harm = False
        self.last_harm_ms: int | None = None

    def feel(self, at_ms: int, delay_permille: int, is_harm: bool, batch_mcpu: int) -> None:
        """Set the delay, whether online work is hurt, and the CPU of batch work from `at_ms` on."""
        if at_ms > self._since_ms:
            self._settle(at_ms)
        self._step = min(-(-delay_permille // DELAY_STEP_PERMILLE), _DELAYS - 1)
        self._batch_mcpu = batch_mcpu
        self.is_harm = is_harm

    def _settle(self, at_ms: int) -> None:
        length_ms = at_ms - self._since_ms
        self._since_ms = at_ms
        self._delays[self._step] += length_ms
        self._used_mcpu_ms += self._batch_mcpu * length_ms
        if self.is_harm:
            self._harm_ms += length_ms
            self._lasts_ms += length_ms
            self.last_harm_ms = at_ms
            self._longest_ms = max(self._longest_ms, self._lasts_ms)
        else:
            self._lasts_ms = 0

    def read(self, at_ms: int) -> OnlineAccount:
        """The sums until `at_ms`."""
        self._settle(at_ms)
        return OnlineAccount(
            harm_ms=self._harm_ms,
            longest_harm_ms=self._longest_ms,
            batch_mcpu_ms=self._used_mcpu_ms,
            delay_ms={step: length_ms for step, length_ms in enumerate(self._delays) if length_ms},
        )
