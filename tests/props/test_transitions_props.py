"""Whatever happens to an object, its machine answers, and only a fired row changes the state."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.lifecycle import JOB, REPLICA, TASK
from colo_common.model.transitions import Fired, StateMachine, TransitionIgnored, TransitionRefusal, TransitionRefused

_MACHINES = st.sampled_from([JOB, TASK, REPLICA])


@given(st.data(), _MACHINES)
def test_a_walk_of_random_events_stays_in_the_table(data: st.DataObject, machine: StateMachine) -> None:
    state = machine.initial
    for _ in range(data.draw(st.integers(0, 60))):
        event = data.draw(st.sampled_from(machine.events))
        guards = {guard: data.draw(st.booleans()) for guard in machine.guards_for(state, event)}
        outcome = machine.fire(state, event, guards)
        if state in machine.terminal:
            assert not isinstance(outcome, Fired)
        if isinstance(outcome, Fired):
            row = next(row for row in machine.transitions if row.id == outcome.transition_id)
            assert state in row.sources
            assert row.event == event
            state = outcome.state
        assert state in machine.state_names


@given(_MACHINES, st.text(max_size=12), st.text(max_size=12), st.dictionaries(st.text(max_size=5), st.booleans()))
def test_unknown_words_are_refused_and_never_raise(
    machine: StateMachine, state: str, event: str, guards: dict[str, bool]
) -> None:
    outcome = machine.fire(state, event, guards)
    if state not in machine.state_names or event not in machine.events:
        assert isinstance(outcome, TransitionRefused)
        assert outcome.refusal is TransitionRefusal.ILLEGAL
    else:
        assert isinstance(outcome, (Fired, TransitionIgnored, TransitionRefused))
