"""What the bus has lost and only the node knows is told again: the ceiling, and the table that is followed."""

from colo_common.events.effects import Effect, Publish
from colo_common.events.enforcement import EnforcementChanged
from colo_common.events.node import NodeFactsWanted
from colo_common.events.restriction import RestrictionsApplied, RestrictionsChanged
from colo_common.model.reasons import Reason
from colo_common.model.restriction import Restriction, RestrictionKind, RestrictionScope
from colo_executor.core import Executor, ExecutorPolicy
from colo_executor.local import CeilingMoved

NODE = "n1"
WANTED = NodeFactsWanted(node=NODE)
QUIESCE = Restriction(kind=RestrictionKind.QUIESCE, scope=RestrictionScope.FLEET)


def facts(effects: list[Effect]) -> list[object]:
    return [effect.fact for effect in effects if isinstance(effect, Publish)]


def test_a_node_that_has_said_nothing_yet_says_nothing() -> None:
    assert facts(Executor(NODE, ExecutorPolicy()).handle(WANTED, 1_000)) == []


def test_the_ceiling_is_told_as_it_was_and_moves_nothing() -> None:
    core = Executor(NODE, ExecutorPolicy())
    moved = CeilingMoved(
        at_ms=900,
        reason=Reason.LEASE_EXPIRED,
        ceiling_mcpu=2_000,
        before_mcpu=8_000,
        online_used_mcpu=0,
        target_mcpu=2_000,
        capacity_mcpu=8_000,
    )
    (first,) = facts(core.handle(moved, 1_000))
    (again,) = facts(core.handle(WANTED, 9_000))
    assert isinstance(first, EnforcementChanged)
    assert isinstance(again, EnforcementChanged)
    assert (first.ceiling_before_mcpu, first.ceiling_mcpu) == (8_000, 2_000)
    assert (again.at_ms, again.ceiling_before_mcpu, again.ceiling_mcpu) == (9_000, 2_000, 2_000)
    assert again.reason is first.reason


def test_the_table_that_the_node_follows_is_confirmed_again() -> None:
    core = Executor(NODE, ExecutorPolicy())
    core.handle(RestrictionsChanged(revision=7, restrictions=(QUIESCE,)), 1_000)
    (again,) = facts(core.handle(WANTED, 9_000))
    assert isinstance(again, RestrictionsApplied)
    assert (again.revision, again.at_ms) == (7, 9_000)
