"""The faults of a run: what may happen to whom, drawn from a seed, and how each is done and ended."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct

from colo_common.events.registry import Stream
from tests.chaos.cluster import ChaosCluster
from tests.chaos.proxy import BOTH, Direction
from tests.chaos.shape import SCALE
from tests.chaos.stores import rewrite_aof
from tests.chaos.takeovers import Takeover

__all__ = ["KINDS", "OF_CLUSTERS", "Deck", "Fault", "draw", "inject", "kinds_for"]

_HOUR_NS: Final = 3_600_000_000_000
_RESTART_S: Final = 0.5
#: For so long an older version serves at least.
_SERVED_S: Final = 5.0
#: A lease lasts 5 s and is renewed at least every 2 s.
_LONGER_THAN_A_LEASE_S: Final = 7.0

KINDS: Final[dict[str, str]] = {
    "kill": "kill -9 of a process; it is started again",
    "restart": "SIGTERM of a process, as in a rolling update; it is started again",
    "pause": f"SIGSTOP of a process for 5 to 90 s, scaled by {SCALE:g}",
    "holder": "SIGSTOP of who holds a share, one of each service, until others have all and for 7 s at least; they wake up fenced",
    "cut": "nothing passes between a process and a server, in one direction or both; connections stay or break afterwards",
    "slow": "everything between a process and a server is 0.05 to 1 s late, in one direction or both",
    "clock": "the wall clock of a process steps an hour forth or back, and back again; it may be killed and start meanwhile",
    "old": "an instance of each control service is replaced by one of the older version, which serves, and that by the newer one",
    "kill-store": "kill -9 of a server; it is started again on its files",
    "pause-store": f"SIGSTOP of a server for 5 to 90 s, scaled by {SCALE:g}",
    "full-store": "the disk of a server is full for a while",
    "leader": "kill -9 of the NATS server that leads a stream; it is started again on its files",
    "primary": "kill -9 of the primary of Redis; another one takes over, and it is started again as a replica",
    "cut-store": "the primary of Redis is cut off from its replica and the sentinel, not from any process; another one takes over",
    "empty-nats": "kill -9 of a NATS server; it is started again without its files",
    "empty-redis": "kill -9 of a Redis that is no primary, or the only one; it is started again without its files",
}
#: Of one server each there is nobody who has what it lost, or takes over.
OF_CLUSTERS: Final = ("leader", "primary", "cut-store", "empty-nats", "empty-redis")

_LED: Final = (Stream.NODE, Stream.EVT, Stream.ASK, Stream.RUN, Stream.CMD)
#: For so long a primary is cut off at least: another one has taken over by then.
_REPLACED_S: Final = 6.0
_WEIGHTS: Final = {
    "kill": 5,
    "pause": 4,
    "cut": 5,
    "clock": 3,
    "holder": 3,
    "kill-store": 3,
    **dict.fromkeys(("slow", "old", "restart", "leader", "primary"), 2),
}


class Fault(Struct, frozen=True, kw_only=True):
    """One fault: its kind, whom it befalls, how long it lasts, and what else the seed drew."""

    kind: str
    target: str
    hold_s: float
    store: str = ""
    directions: tuple[Direction, ...] = BOTH
    delay_s: float = 0.0
    step_ns: int = 0
    breaks: bool = False

    @property
    def is_takeover(self) -> bool:
        """Whether what the struck instance holds is another one's afterwards: it ends, or stands still for longer than a lease."""
        return self.kind in ("kill", "restart", "holder") or (self.kind == "clock" and self.breaks)

    def __str__(self) -> str:
        words = [self.kind, self.target]
        if self.kind in ("cut", "slow"):
            way = "both ways" if len(self.directions) > 1 else {"up": "to it", "down": "from it"}[self.directions[0]]
            words += ["-", self.store, way]
        if self.kind == "slow":
            words.append(f"by {self.delay_s:.2f} s")
        if self.kind == "cut" and self.breaks:
            words.append("then broken")
        if self.kind == "clock":
            words.append(f"{self.step_ns / _HOUR_NS:+.0f} h{', then killed' if self.breaks else ''}")
        return " ".join(words)


def kinds_for(cluster: ChaosCluster, wanted: Collection[str]) -> tuple[list[str], dict[str, str]]:
    """The kinds that can be done here, and why the other ones that were wanted cannot."""
    left_out = {}
    if cluster.old is None:
        left_out["old"] = "there is no older version here"
    if not cluster.shared_services:
        left_out["holder"] = "no service that holds leases has a second instance"
    if not all(disk.can_fill for disk in cluster.stores.disks.values()):
        left_out["full-store"] = "a disk of its own for a store needs the right to mount a tmpfs"
    return [kind for kind in KINDS if kind in wanted and kind not in left_out], {
        kind: why for kind, why in left_out.items() if kind in wanted
    }


class Deck:
    """The kinds of a run: each once in random order, then some more often than others.

    The order is that of all `wanted` kinds, so that one that is not `possible` here changes nothing in it.
    """

    def __init__(self, chance: random.Random, wanted: Sequence[str], possible: Collection[str]) -> None:
        self._chance = chance
        self._first = [kind for kind in chance.sample(wanted, len(wanted)) if kind in possible]
        self._kinds = list(self._first)

    def next(self) -> str:
        """Take one."""
        if self._first:
            return self._first.pop(0)
        return self._chance.choices(self._kinds, [_WEIGHTS.get(kind, 1) for kind in self._kinds])[0]


def draw(chance: random.Random, cluster: ChaosCluster, kind: str, hold_most_s: float) -> Fault:
    """The next fault of this kind."""
    # Most pauses are short: evenly spread by their logarithm.
    hold_s = min(SCALE * 5.0 * 18.0 ** chance.random(), hold_most_s)
    control = [name for name, instance in cluster.instances.items() if instance.is_control]
    everyone = list(cluster.instances)
    directions: tuple[Direction, ...] = chance.choice((BOTH, ("up",), ("down",)))
    servers = list(cluster.stores.servers)
    match kind:
        case "cut" | "slow":
            store = chance.choice(list(cluster.stores.proxied))
            # Nodes have no connection to Redis.
            target = chance.choice(everyone if store == "nats" else control)
            return Fault(
                kind=kind,
                target=target,
                hold_s=hold_s,
                store=store,
                directions=directions,
                delay_s=chance.uniform(0.05, 1.0) if kind == "slow" else 0.0,
                breaks=chance.random() < 0.5,
            )
        case "clock":
            step_ns = chance.choice((-_HOUR_NS, _HOUR_NS))
            breaks = chance.random() < 0.5
            return Fault(kind=kind, target=chance.choice(everyone), hold_s=hold_s, step_ns=step_ns, breaks=breaks)
        case "holder":
            return Fault(kind=kind, target=" ".join(cluster.shared_services), hold_s=_LONGER_THAN_A_LEASE_S)
        case "old":
            return Fault(kind=kind, target="one of each service", hold_s=max(hold_s, _SERVED_S))
        case "kill-store" | "pause-store" | "full-store":
            return Fault(kind=kind, target=chance.choice(servers), hold_s=hold_s)
        case "leader":
            return Fault(kind=kind, target=chance.choice(_LED), hold_s=hold_s)
        case "cut-store":
            return Fault(kind=kind, target="redis", hold_s=max(hold_s, _REPLACED_S))
        case "primary" | "empty-redis":
            return Fault(kind=kind, target="redis", hold_s=hold_s)
        case "empty-nats":
            return Fault(kind=kind, target=chance.choice([one for one in servers if "nats" in one]), hold_s=hold_s)
        case _:
            return Fault(kind=kind, target=chance.choice(everyone), hold_s=hold_s)


async def inject(cluster: ChaosCluster, fault: Fault, takeovers: Collection[asyncio.Task[Takeover]] = ()) -> None:
    """Do it, hold it for its time, and end it. `takeovers` end when others hold what the struck ones held, or too late."""
    name = fault.target
    match fault.kind:
        case "kill":
            await cluster.kill(name)
            await asyncio.sleep(_RESTART_S)
            await cluster.start(name)
        case "restart":
            await cluster.stop(name)
            await cluster.start(name)
        case "pause" | "pause-store":
            await _held(fault, lambda: cluster.pause(name), lambda: cluster.resume(name))
        case "holder":
            await _fenced(cluster, fault, takeovers)
        case "cut" | "slow":
            await _on_network(cluster, fault)
        case "clock":
            await _stepped(cluster, fault)
        case "old":
            await _rolled_back(cluster, fault)
        case "kill-store" | "empty-nats":
            await cluster.kill_server(name, away_s=fault.hold_s, empty=fault.kind != "kill-store")
        case "leader" | "primary":
            await cluster.kill_server(await cluster.stores.leader(name), away_s=fault.hold_s)
        case "cut-store":
            await cluster.stores.split(fault.hold_s)
        case "empty-redis":
            primary = await cluster.stores.leader("redis")
            others = [one for one in cluster.stores.servers if "redis" in one and one != primary]
            await cluster.kill_server((others or [primary])[0], away_s=fault.hold_s, empty=True)
        case "full-store":
            await _full(cluster, fault)
        case _:
            raise ValueError(fault.kind)


async def _rolled_back(cluster: ChaosCluster, fault: Fault) -> None:
    """Have the older version serve beside the newer one, and give what it wrote back to that.

    An instance gets a share only where another one lets it go, so that the others are begun anew when the older ones are ready.
    """
    control = [one for one in cluster.instances.values() if one.is_control]
    older = {one.service: one.name for one in control}
    others = [one.name for one in control if one.name not in older.values()]
    await _replaced(cluster, older.values(), is_old=True)
    await cluster.wait_ready(older.values(), "of the older version")
    await _replaced(cluster, others)
    await cluster.wait_ready(others, "beside the older version")
    await asyncio.sleep(fault.hold_s)
    await _replaced(cluster, older.values())


async def _replaced(cluster: ChaosCluster, names: Iterable[str], *, is_old: bool = False) -> None:
    await asyncio.gather(*[cluster.stop(name) for name in names])
    for name in names:
        await cluster.start(name, is_old=is_old)


async def _stepped(cluster: ChaosCluster, fault: Fault) -> None:
    """A process follows no step while it runs; one that starts takes the wrong time for the right one."""
    clock = cluster.clocks[fault.target]
    clock.step_to(fault.step_ns)
    try:
        if fault.breaks:
            await cluster.kill(fault.target)
            await cluster.start(fault.target)
        await asyncio.sleep(fault.hold_s)
    finally:
        clock.step_to(0)


async def _held(fault: Fault, begin: Callable[[], None], end: Callable[[], None]) -> None:
    begin()
    try:
        await asyncio.sleep(fault.hold_s)
    finally:
        end()


async def _fenced(cluster: ChaosCluster, fault: Fault, takeovers: Collection[asyncio.Task[Takeover]]) -> None:
    names = fault.target.split()
    for name in names:
        cluster.pause(name)
    try:
        await asyncio.sleep(fault.hold_s)
        await asyncio.gather(*takeovers)
    finally:
        for name in names:
            cluster.resume(name)


async def _on_network(cluster: ChaosCluster, fault: Fault) -> None:
    proxies = cluster.proxies_between(fault.target, fault.store)

    def begin() -> None:
        for proxy in proxies:
            if fault.kind == "cut":
                proxy.cut(fault.directions)
            else:
                proxy.slow(fault.delay_s, fault.directions)

    def end() -> None:
        for proxy in proxies:
            proxy.heal()
            if fault.breaks:
                proxy.reset()

    await _held(fault, begin, end)


async def _full(cluster: ChaosCluster, fault: Fault) -> None:
    """A server that met a full disk is started again when there is room, as its supervisor would.

    JetStream asks for that, and a replica of Redis that cannot write ends by itself, at once or later. A primary goes on. Its file
    may have a hole then, so it is written anew.
    """
    disk, server = cluster.stores.disks[fault.target], cluster.stores.servers[fault.target]
    cluster.down.add(fault.target)
    try:
        await _held(fault, disk.fill, disk.free)
        if "nats" in fault.target or not server.is_running:
            await cluster.kill_server(fault.target, away_s=_RESTART_S)
        if "redis" in fault.target:
            await rewrite_aof(server)
    finally:
        cluster.down.discard(fault.target)
