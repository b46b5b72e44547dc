"""Core-scheduling cookies of batch replicas: they share the threads of a core with no online work, and with no other tenant's."""

from collections.abc import Iterable
from typing import Literal, Protocol

from colo_common.adapters import core_scheduling

__all__ = ["CoreCookies", "CoreKernel", "CoreScheduling"]

CoreScheduling = Literal["no", "replica", "tenant"]


class CoreKernel(Protocol):
    """The kernel's core scheduling, as colo_common.adapters.core_scheduling has it."""

    def lacking(self) -> str: ...
    def cookie_of(self, pid: int, /) -> int: ...
    def give_own(self, pid: int, /) -> None: ...
    def give_same(self, pid: int, like: int, /) -> None: ...


class CoreCookies:
    """Gives cookies by `wanted`: each replica one of its own, or all replicas of a tenant the same. `refusal` says why not here.

    Online work has none, so that it shares cores with itself only. Nothing here ends a launch: a replica without a cookie runs.
    """

    def __init__(self, wanted: CoreScheduling, kernel: CoreKernel = core_scheduling) -> None:
        self._wanted = wanted
        self._kernel = kernel
        self.refusal = "" if wanted == "no" else kernel.lacking()

    def give(self, pid: int, alike: Iterable[int]) -> str:
        """Give the process a cookie, which its children inherit; "" or why it has none. `alike` are first processes of replicas of
        its tenant.
        """
        if self._wanted == "no" or self.refusal:
            return ""
        try:
            for like in alike if self._wanted == "tenant" else ():
                if self._takes(pid, like):
                    return ""
            self._kernel.give_own(pid)
            return "" if self._kernel.cookie_of(pid) else f"process {pid} shows no cookie after it was given one"
        except OSError as error:
            return f"process {pid}: {error.strerror}"

    def counts(self, pids: Iterable[int]) -> tuple[int, int]:
        """Of these processes, which should all have a cookie, how many have one and how many none. Ended ones do not count."""
        found = [0, 0]
        for pid in () if self._wanted == "no" else pids:
            try:
                found[self.refusal != "" or self._kernel.cookie_of(pid) == 0] += 1
            except OSError:
                continue
        return found[0], found[1]

    def _takes(self, pid: int, like: int) -> bool:
        """Give `pid` the cookie of the process `like`; False when `like` has ended or has no cookie."""
        try:
            if not self._kernel.cookie_of(like):
                return False
            self._kernel.give_same(pid, like)
        except ProcessLookupError:
            return False
        return self._kernel.cookie_of(pid) != 0
