"""The four machines of batch work: the rules people rely on, read from the tables."""

from __future__ import annotations

from itertools import product

import pytest

from colo_common.model.lifecycle import JOB, MACHINES, PAIR, REPLICA, TASK
from colo_common.model.transitions import Fired, TransitionIgnored, TransitionRefused


@pytest.mark.parametrize(
    ("name", "states", "rows", "illegal"),
    [("job", 16, 36, 112), ("task", 6, 8, 3), ("replica", 10, 18, 31), ("pair", 4, 11, 0)],
)
def test_the_tables_are_complete(name: str, states: int, rows: int, illegal: int) -> None:
    machine = MACHINES[name]
    assert (len(machine.states), len(machine.transitions), len(machine.illegal)) == (states, rows, illegal)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_every_state_is_reachable_and_terminal_states_have_no_way_out(machine: object) -> None:
    table = next(found for found in MACHINES.values() if found is machine)
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


def test_a_job_that_waits_or_is_marked_cannot_be_marked_again() -> None:
    for state in ("Pending", "Inqueue", "Privileged", "WillEvicted", "Evicting"):
        assert isinstance(JOB.fire(state, "mark", {"eligible": True}), TransitionRefused)
    marked = JOB.fire("Running", "mark", {"eligible": True})
    assert isinstance(marked, Fired)
    assert (marked.state, marked.hook) == ("WillEvicted", "job_will_evict(deadline)")


def test_an_evicted_job_is_requeued_and_keeps_its_submit_time() -> None:
    requeued = JOB.fire("Evicted", "requeue", {"requeue": True})
    assert isinstance(requeued, Fired)
    assert requeued.state == "Pending"
    assert "keep submit time (ageing)" in requeued.actions
    assert isinstance(JOB.fire("Running", "requeue", {"requeue": True}), TransitionRefused)


def test_a_late_cancel_is_ignored() -> None:
    assert isinstance(JOB.fire("Evicting", "unmark"), TransitionIgnored)
    assert isinstance(PAIR.fire("Firing", "fit"), TransitionIgnored)


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
