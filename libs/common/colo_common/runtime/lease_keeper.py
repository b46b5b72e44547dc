"""Keeps the leases of one instance: renews them, says which partitions it holds, and knows when they are lost."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

import structlog

from colo_common.model.invalid import InvalidInput
from colo_common.model.partition import (
    PARTITIONS_MAX,
    WHOLE,
    BusReach,
    Fence,
    Share,
    check_partitions,
    partition_of,
)
from colo_common.ports import Fenced, Leases, OtherPartitions, PortError
from colo_common.runtime.bus_watch import BusWatch

__all__ = ["LEASE_TTL_MS", "HeldTerm", "LeaseKeeper", "check_lease_ttl", "check_leases"]

#: With the renewals in it, a killed instance's share moves in less than 7 s; an instance may stand still for 3 s and keep its own.
LEASE_TTL_MS: Final = 5_000
_LEASE_TTL_LEAST_MS: Final = 300
_RENEWALS: Final = 3


def check_lease_ttl(ttl_ms: int) -> None:
    """Raise InvalidInput for a lease that would end before it can be renewed."""
    if ttl_ms < _LEASE_TTL_LEAST_MS:
        raise InvalidInput("lease_ttl_ms", f"must be at least {_LEASE_TTL_LEAST_MS}", ttl_ms)


def check_leases(ttl_ms: int, partitions: int) -> None:
    """Raise InvalidInput for partitions that nobody could hold, or a lease that would end before it can be renewed; 0: none."""
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidInput("partitions", f"must be from 1 (one instance serves) to {PARTITIONS_MAX}", partitions)
    if ttl_ms:
        check_lease_ttl(ttl_ms)
    elif partitions > 1:
        raise InvalidInput("partitions", "must be 1 where lease_ttl_ms is 0: they are held by leases", partitions)


class HeldTerm(Protocol):
    """The time in which an instance alone serves some partitions, as its service and its store see it."""

    @property
    def partitions(self) -> int:
        """How many a row may belong to: with one every write names the whole term."""
        ...

    @property
    def term(self) -> tuple[Fence, ...]:
        """The fences under which it writes."""
        ...

    async def confirm(self) -> None:
        """Return when the term still stands; raises Fenced when it is over."""
        ...

    def fence_of(self, key: str) -> int:
        """The fence under which it acts on this key, 0 where it does not."""
        ...

    @property
    def share(self) -> Share:
        """The one partition that the service is of; the whole work where it acts for all that the instance holds."""
        ...


class LeaseKeeper:
    """The leases of one instance, which is called `owner` among all.

    A lease lasts `ttl_ms` of real time from the moment before it was asked for, so that it ends here before it ends in the store.
    It is renewed three times in that time. `held` is what the last answer gave, `is_current` whether that still stands: a process
    that was stopped for longer learns it before it does anything else.

    `stays_when_away`: a store that cannot be reached ends no lease here. For services whose every change names a fence where it is
    written: without the store they change nothing, and nobody else can take their partitions, but they can answer questions.

    `bus`: an instance that reaches the store and not the bus gives its partitions to those that reach both. None: nobody looks.
    `setting` is what an operator knows the number of partitions by.
    """

    def __init__(
        self,
        leases: Leases,
        owner: str,
        partitions: int,
        ttl_ms: int = LEASE_TTL_MS,
        *,
        stays_when_away: bool = False,
        bus: BusWatch | None = None,
        setting: str = "partitions",
    ) -> None:
        check_partitions(partitions)
        check_lease_ttl(ttl_ms)
        self._leases = leases
        self.owner = owner
        self.partitions = partitions
        self.share = WHOLE
        self.held: tuple[Fence, ...] = ()
        #: The fences under which the service writes. They stay as they are when the lease is lost; what is given up leaves them.
        self.term: tuple[Fence, ...] = ()
        #: When `held` last changed, in seconds of the event loop.
        self.since_s = 0.0
        #: Why no lease can be had, or "".
        self.problem = ""
        #: Whether nothing is held because the other instances have another number of partitions.
        self.waits_for_others = False
        self._stays_when_away = stays_when_away
        self._bus = bus
        self._setting = setting
        self._reach = BusReach.UNSURE
        self._ttl_s = ttl_ms / 1_000
        self._until_s = 0.0
        self._renewed_s = 0.0
        self._log = structlog.get_logger(source="leases")

    @property
    def is_current(self) -> bool:
        """Whether what is `held` is held at this moment."""
        return asyncio.get_running_loop().time() < self._until_s

    def held_for_ms(self) -> int:
        """For how long exactly these partitions are held; 0 when none is."""
        return round((asyncio.get_running_loop().time() - self.since_s) * 1_000) if self.held else 0

    @property
    def is_doubtful(self) -> bool:
        """Whether something is held here that another instance may have got meanwhile, because the store cannot be reached."""
        return bool(self.held) and asyncio.get_running_loop().time() >= self._renewed_s + self._ttl_s

    def certain_for_s(self) -> float:
        """Seconds until what is held becomes doubtful, if it is not renewed before; 0 when it is, or nothing was ever held."""
        return max(0.0, self._renewed_s + self._ttl_s - asyncio.get_running_loop().time())

    async def run(self, changed: Callable[[tuple[Fence, ...]], Awaitable[None]], stop: asyncio.Event) -> None:
        """Keep the leases until `stop` is set; `changed` is called with what is held whenever that changes."""
        published: tuple[Fence, ...] = ()
        while not stop.is_set():
            await self.renew()
            if stop.is_set():
                return
            held = self.held if self.is_current else ()
            if held != published:
                self._log.info("partitions-held", partitions=len(held), of=self.partitions)
                self.held = published = held
                self.since_s = asyncio.get_running_loop().time()
                await changed(held)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._ttl_s / _RENEWALS):
                    await stop.wait()

    async def renew(self) -> None:
        """Ask once. While the store is away, what is held stays held until it ends.

        Beside instances with another number of partitions nothing is held, and that is no problem: this instance stands by.
        """
        asked_s = asyncio.get_running_loop().time()
        reach = self._look_at_bus(asked_s)
        try:
            self.held = await self._leases.renew(
                self.owner, round(self._ttl_s * 1_000), self.partitions, self.held, reach
            )
        except OtherPartitions as error:
            # The number is being changed: whoever has the old one serves until it leaves.
            if self.held or not self.waits_for_others:
                named = OtherPartitions(error.others, error.own, self._setting)
                self._log.warning("partitions-differ", error=str(named))
            self.waits_for_others, self.problem = True, ""
            self.held, self._until_s = (), asked_s + self._ttl_s
        except PortError as error:
            if not self.problem:
                self._log.warning("lease-not-renewed", error=str(error))
            self.problem = str(error)
            if self._stays_when_away and self.held:
                self._until_s = asyncio.get_running_loop().time() + self._ttl_s
        else:
            self.waits_for_others, self.problem = False, ""
            self._renewed_s = asked_s
            self._until_s = asked_s + self._ttl_s

    def _look_at_bus(self, now_s: float) -> BusReach:
        before, self._reach = self._reach, BusReach.UNSURE if self._bus is None else self._bus.reach(now_s)
        if self._reach is BusReach.DEAF and before is not BusReach.DEAF and self.held:
            self._log.warning(
                "bus-out-of-reach", then="those that reach it get the partitions", partitions=len(self.held)
            )
        return self._reach

    async def confirm(self) -> None:
        """Return when the term still stands. Raises Fenced when it is over, which a process that stood still learns here."""
        if not self.is_current:
            await self.renew()
        if not set(self.term) <= set(self.held):
            raise Fenced("another instance holds the partition")

    def fence_of(self, key: str) -> int:
        """The fence under which the service acts on this key, such as a node; 0 when its partition is not held."""
        return dict(self.term).get(partition_of(key, self.partitions), 0)

    async def leave(self) -> None:
        """Give everything up at once, so that other instances need not wait for the end of the leases."""
        self.held, self._until_s = (), 0.0
        with suppress(PortError):
            await self._leases.renew(self.owner, 0, self.partitions)
