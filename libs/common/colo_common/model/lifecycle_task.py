"""The state machine of a task, the group of equal replicas inside a job."""

from __future__ import annotations

from typing import Final

from colo_common.model.transitions import Ignore, State, StateMachine, Transition

_STATES: Final = (
    State(name="Waiting", is_initial=True, meaning="no replica running"),
    State(name="Running", meaning="at least one replica running"),
    State(name="Cleaning", meaning="result known or stop ordered, live replicas being stopped"),
    State(name="Succeeded", meaning="final for this attempt"),
    State(name="Failed", meaning="final for this attempt"),
    State(name="Stopped", meaning="final for this attempt"),
)

_EVENTS: Final = (
    "replica_running",  # replica
    "none_running",  # replica
    # Completion rule: succeeded >= min_succeeded (checked first), else failed >= max_failed, else all replicas final,
    # which is a success exactly when all of them succeeded.
    "rule_met",
    "stop",  # job
    "all_final",  # replica: every replica final
    "restart",  # policy restart_task or job restart
)

_TRANSITIONS: Final = (
    Transition(id="T1", sources=("Waiting",), event="replica_running", target="Running"),
    Transition(id="T2", sources=("Running",), event="none_running", target="Waiting"),
    Transition(id="T3", sources=("Waiting", "Running"), event="rule_met", target="Cleaning"),
    Transition(id="T4", sources=("Waiting", "Running"), event="stop", target="Cleaning"),
    Transition(id="T5", sources=("Cleaning",), event="all_final", target="Succeeded", guard=("succeeded",)),
    Transition(id="T6", sources=("Cleaning",), event="all_final", target="Failed", guard=("!succeeded", "failed")),
    Transition(id="T7", sources=("Cleaning",), event="all_final", target="Stopped", guard=("!succeeded", "!failed")),
    Transition(id="T8", sources=("Succeeded", "Failed", "Stopped"), event="restart", target="Waiting"),
)

_IGNORED: Final = (
    Ignore(
        states=("Cleaning", "Succeeded", "Failed", "Stopped"),
        events=("rule_met", "stop", "replica_running", "none_running"),
        why="already ending",
    ),
    Ignore(states=("Succeeded", "Failed", "Stopped", "Waiting", "Running"), events=("all_final",), why="duplicate"),
    Ignore(states=("Running",), events=("replica_running",), why="already"),
    Ignore(states=("Waiting",), events=("none_running",), why="already"),
)

_ILLEGAL: Final = {"Cleaning": "restart", "Running": "restart", "Waiting": "restart"}

TASK: Final = StateMachine(
    name="task",
    states=_STATES,
    events=_EVENTS,
    transitions=_TRANSITIONS,
    ignored=_IGNORED,
    illegal=tuple((state, event) for state, events in _ILLEGAL.items() for event in events.split()),
)
