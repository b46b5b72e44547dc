"""One running replica of a simulated machine: how much CPU time it got, and when it will end."""

from __future__ import annotations

from typing import Final

__all__ = ["EXIT_DONE", "EXIT_KILLED", "EXIT_TERMINATED", "NEVER_MS", "Replica"]

EXIT_DONE: Final = 0
EXIT_TERMINATED: Final = 143
EXIT_KILLED: Final = 137
NEVER_MS: Final = 2**62


class Replica:
    """A running replica. `used_mcpu_ms` is exact at `since_ms`; after that it grows by `rate_mcpu`."""

    __slots__ = (
        "attempt",
        "cpu_mcpu",
        "exit_code",
        "exit_ms",
        "is_suspended",
        "memory_bytes",
        "memory_now_bytes",
        "name",
        "rate_mcpu",
        "request_mcpu",
        "since_ms",
        "started_ms",
        "used_mcpu_ms",
        "work_mcpu_ms",
        "zones",
    )

    def __init__(
        self,
        name: str,
        attempt: int,
        zones: tuple[int, ...],
        cpu_mcpu: int,
        memory_bytes: int,
        work_mcpu_ms: int,
        now: int,
    ) -> None:
        self.name = name
        self.attempt = attempt
        self.zones = zones
        self.cpu_mcpu = cpu_mcpu
        self.request_mcpu = cpu_mcpu
        self.is_suspended = False
        self.memory_bytes = memory_bytes
        self.work_mcpu_ms = work_mcpu_ms
        self.started_ms = now
        self.since_ms = now
        self.used_mcpu_ms = 0
        self.rate_mcpu = 0
        self.memory_now_bytes = 0
        self.exit_ms = NEVER_MS
        self.exit_code = EXIT_KILLED

    def suspend(self, *, is_suspended: bool) -> None:
        """Let it claim no CPU while it is suspended."""
        self.is_suspended = is_suspended
        self.cpu_mcpu = 0 if is_suspended else self.request_mcpu

    def used_at(self, now_ms: int) -> int:
        return self.used_mcpu_ms + self.rate_mcpu * (now_ms - self.since_ms)

    def run_at(self, rate_mcpu: int, now_ms: int) -> None:
        self.used_mcpu_ms += self.rate_mcpu * (now_ms - self.since_ms)
        self.since_ms = now_ms
        self.rate_mcpu = rate_mcpu

    def due_ms(self) -> int:
        """Return when it ends if nothing changes: stopped, or the first ms at which all its work is done."""
        if not self.rate_mcpu:
            return self.exit_ms
        left_mcpu_ms = self.work_mcpu_ms - self.used_mcpu_ms
        return min(self.exit_ms, self.since_ms - (-left_mcpu_ms // self.rate_mcpu))
