"""The three machines of batch work: the rules people rely on, read from the tables."""

from __future__ import annotations

from itertools import product

import pytest

from colo_common.model.lifecycle import JOB, REPLICA, TASK
from colo_common.model.transitions import Fired, StateMachine

MACHINES = (JOB, TASK, REPLICA)


@pytest.mark.parametrize(
    ("machine", "states", "rows", "illegal"),
    [(JOB, 9, 11, 9), (TASK, 6, 8, 3), (REPLICA, 10, 18, 31)],
    ids=lambda value: value.name if isinstance(value, StateMachine) else str(value),
)
def test_the_tables_are_complete(machine: StateMachine, states: int, rows: int, illegal: int) -> None:
    assert (len(machine.states), len(machine.transitions), len(machine.illegal)) == (states, rows, illegal)


@pytest.mark.parametrize("table", MACHINES, ids=lambda machine: machine.name)
def test_every_state_is_reachable_and_terminal_states_have_no_way_out(table: StateMachine) -> None:
    reached = {table.initial}
    while True:
        more = {row.target for row in table.transitions if reached.intersection(row.sources)} - reached - {"="}
        if not more:
            break
        reached |= more
    assert reached == set(table.state_names)
    for state, event in product(table.terminal, table.events):
        guards = dict.fromkeys(table.guards_for(state, event), True)
        assert not isinstance(table.fire(state, event, guards), Fired)


@pytest.mark.parametrize(
    ("zero", "retry", "state"), [(True, True, "Succeeded"), (False, True, "Backoff"), (False, False, "Failed")]
)
def test_a_replica_that_exits_is_retried_only_after_a_failure(zero: bool, retry: bool, state: str) -> None:
    fired = REPLICA.fire("Running", "exit", {"zero": zero, "retry": retry})
    assert isinstance(fired, Fired)
    assert fired.state == state


def test_a_task_that_neither_succeeded_nor_failed_is_stopped() -> None:
    fired = TASK.fire("Cleaning", "all_final", {"succeeded": False, "failed": False})
    assert isinstance(fired, Fired)
    assert fired.state == "Stopped"
