"""Octopus' whole tables: complete, and colo's job machine is a part of its job machine."""

from __future__ import annotations

from itertools import product

import pytest

from colo_common.model.lifecycle import JOB
from colo_common.model.transitions import Fired, StateMachine, TransitionIgnored, TransitionRefused
from tests.parity.peers.octopus_job import JOB as OCTOPUS_JOB
from tests.parity.peers.octopus_pair import PAIR


@pytest.mark.parametrize(("machine", "states", "rows", "illegal"), [(OCTOPUS_JOB, 16, 36, 112), (PAIR, 4, 11, 0)])
def test_the_tables_are_complete(machine: StateMachine, states: int, rows: int, illegal: int) -> None:
    assert (len(machine.states), len(machine.transitions), len(machine.illegal)) == (states, rows, illegal)


def test_what_colo_runs_of_a_job_answers_as_the_whole_table_does() -> None:
    for state, event in product(JOB.state_names, JOB.events):
        for ok in (False, True):
            answers = [
                machine.fire(state, event, {"quota_ok": True, "gang_ok": True, "ok": ok})
                for machine in (JOB, OCTOPUS_JOB)
            ]
            assert answers[0] == answers[1]


def test_a_job_that_waits_or_is_marked_cannot_be_marked_again() -> None:
    for state in ("Pending", "Inqueue", "Privileged", "WillEvicted", "Evicting"):
        assert isinstance(OCTOPUS_JOB.fire(state, "mark", {"eligible": True}), TransitionRefused)
    marked = OCTOPUS_JOB.fire("Running", "mark", {"eligible": True})
    assert isinstance(marked, Fired)
    assert marked.state == "WillEvicted"


def test_an_evicted_job_is_requeued_and_keeps_its_submit_time() -> None:
    requeued = OCTOPUS_JOB.fire("Evicted", "requeue", {"requeue": True})
    assert isinstance(requeued, Fired)
    assert requeued.state == "Pending"
    assert isinstance(OCTOPUS_JOB.fire("Running", "requeue", {"requeue": True}), TransitionRefused)


def test_a_late_cancel_is_ignored() -> None:
    assert isinstance(OCTOPUS_JOB.fire("Evicting", "unmark"), TransitionIgnored)
    assert isinstance(PAIR.fire("Firing", "fit"), TransitionIgnored)
