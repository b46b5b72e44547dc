"""The operators of a simulated world: they forbid something for a while, by a restriction or a node's label, and allow it again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from msgspec import Struct

from colo_common.events.requests import Refusal
from colo_common.events.restriction import LiftRestrictions, RestrictionList, SetRestriction
from colo_common.model.restriction import Restriction, RestrictionKind, RestrictionScope
from colo_sim.world_asking import ask_until_done
from colo_sim.world_boot import Boot
from colo_sim.world_connection import Connection
from colo_sim.world_roles import Works

__all__ = ["Forbidden", "SimOperator", "plan_restrictions"]

_FOR_MS: Final = (5_000, 60_000)
_UNKNOWN: Final = 404
_AGAIN: Final = frozenset({_UNKNOWN, 429, 503})
"""A gateway that starts does not know all nodes yet, or has not read its table."""

#: Sets the colocation label of a node; "" takes it away.
SetLabel = Callable[[str, str], None]


class Forbidden(Struct, frozen=True, kw_only=True):
    """What is forbidden from `at_ms` on for `for_ms`: the restriction, or with none the colocation label of a node gets a value."""

    at_ms: int
    for_ms: int
    restriction: Restriction | None = None
    node: str = ""
    label: str = ""


def plan_restrictions(
    rng: Random, count: int, nodes: Sequence[str], jobs: Sequence[str], within_ms: int
) -> tuple[Forbidden, ...]:
    """Restrictions of every kind and scope, and labels that withdraw a node from batch work or from online work."""
    return tuple(_plan(rng, nodes, jobs, within_ms) for _ in range(count))


def _plan(rng: Random, nodes: Sequence[str], jobs: Sequence[str], within_ms: int) -> Forbidden:
    at_ms, for_ms, node = rng.randint(1_000, within_ms), rng.randint(*_FOR_MS), rng.choice(nodes)
    kinds = ("cordon", "drain", "drain-batch", "pause-node", "pause-job", "pause-queue", "quiesce", "evict", "label")
    kind, on_node = rng.choice(kinds), RestrictionScope.NODE
    found: Restriction | None
    match kind:
        case "cordon":
            found = Restriction(kind=RestrictionKind.CORDON, scope=on_node, target=node)
        case "drain":
            found = Restriction(
                kind=RestrictionKind.DRAIN, scope=on_node, target=node, grace_ms=rng.choice((None, 500))
            )
        case "drain-batch":
            found = Restriction(kind=RestrictionKind.DRAIN, scope=on_node, target=node, batch_only=True)
        case "pause-node":
            found = Restriction(kind=RestrictionKind.PAUSE, scope=on_node, target=node)
        case "pause-job" if jobs:
            found = Restriction(kind=RestrictionKind.PAUSE, scope=RestrictionScope.JOB, target=rng.choice(jobs))
        case "pause-job" | "pause-queue":
            scope, suspends = RestrictionScope.QUEUE, rng.randrange(2) == 0
            found = Restriction(kind=RestrictionKind.PAUSE, scope=scope, target="default", suspends=suspends)
        case "quiesce" | "evict":
            found = Restriction(kind=RestrictionKind.QUIESCE, scope=RestrictionScope.FLEET, evicts=kind == "evict")
        case _:
            # The node's label is changed instead.
            found = None
    label = "" if found is not None else rng.choice(("false", "offline"))
    return Forbidden(at_ms=at_ms, for_ms=for_ms, restriction=found, node=node, label=label)


class SimOperator:
    """Forbids what is planned, and allows it again. `done` counts the plans that are over.

    `is_lost` says whether a node never comes back: one that went before it was ever heard of stays unknown to every gateway.
    """

    def __init__(self, plans: tuple[Forbidden, ...], set_label: SetLabel, is_lost: Callable[[str], bool]) -> None:
        self.plans = plans
        self.done = 0
        self._set_label = set_label
        self._is_lost = is_lost

    def works(self, boot: Boot, connection: Connection) -> Works:
        """One coroutine for each plan."""
        return tuple(self._forbid(plan, boot, connection) for plan in self.plans)

    async def _forbid(self, plan: Forbidden, boot: Boot, connection: Connection) -> None:
        await asyncio.sleep(plan.at_ms / 1_000)
        if plan.restriction is None:
            self._set_label(plan.node, plan.label)
            await asyncio.sleep(plan.for_ms / 1_000)
            self._set_label(plan.node, "")
        else:
            found = plan.restriction
            await self._until_done(SetRestriction(restriction=found), found, boot, connection)
            await asyncio.sleep(plan.for_ms / 1_000)
            lift = LiftRestrictions(kinds=(found.kind,), scope=found.scope, target=found.target)
            await self._until_done(lift, found, boot, connection)
        self.done += 1

    async def _until_done(
        self, body: SetRestriction | LiftRestrictions, restriction: Restriction, boot: Boot, connection: Connection
    ) -> None:
        def is_done(answer: Struct) -> bool:
            if isinstance(answer, Refusal) and answer.code == _UNKNOWN:
                return restriction.scope is RestrictionScope.NODE and self._is_lost(restriction.target)
            return isinstance(answer, RestrictionList)

        await ask_until_done(body, boot, connection, is_done=is_done, again=_AGAIN)
