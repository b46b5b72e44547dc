"""The state machine of a job, from the queue over its run to its end."""

from __future__ import annotations

from typing import Final

from colo_common.model.transitions import Ignore, State, StateMachine, Transition

_STATES: Final = (
    State(name="Pending", is_initial=True, meaning="accepted, not admitted by its queue"),
    State(name="Inqueue", meaning="admitted by its queue, replicas may be placed"),
    State(name="Running", meaning="some replica is placed or has been"),
    State(name="Completing", meaning="ended with success, the rest is being stopped"),
    State(name="Failing", meaning="ended with failure, the rest is being stopped"),
    State(name="Terminating", meaning="being stopped by the user"),
    State(name="Completed", is_terminal=True, meaning="final"),
    State(name="Failed", is_terminal=True, meaning="final"),
    State(name="Terminated", is_terminal=True, meaning="final"),
)

_EVENTS: Final = (
    "admit",  # its queue has room
    "gang_bound",  # the first replica is placed
    "tasks_done",  # task machines: all tasks final
    "complete_job",  # policy
    "fail_job",  # policy
    "terminate_job",  # user or policy
    "all_gone",  # replica machines: no live replica left
)

_TRANSITIONS: Final = (
    Transition(id="J01", sources=("Pending",), event="admit", target="Inqueue"),
    Transition(id="J04", sources=("Inqueue",), event="gang_bound", target="Running"),
    Transition(id="J14", sources=("Running",), event="tasks_done", target="Completed", guard=("ok",)),
    Transition(id="J15", sources=("Running",), event="tasks_done", target="Failed", guard=("!ok",)),
    Transition(id="J18", sources=("Running",), event="complete_job", target="Completing"),
    Transition(id="J19", sources=("Running", "Inqueue"), event="fail_job", target="Failing"),
    Transition(id="J26", sources=("Running",), event="terminate_job", target="Terminating"),
    Transition(id="J27", sources=("Pending", "Inqueue"), event="terminate_job", target="Terminated"),
    Transition(id="J28", sources=("Completing",), event="all_gone", target="Completed"),
    Transition(id="J29", sources=("Failing",), event="all_gone", target="Failed"),
    Transition(id="J30", sources=("Terminating",), event="all_gone", target="Terminated"),
)

_IGNORED: Final = (
    Ignore(states=("Completed", "Failed", "Terminated"), events=("all_gone", "tasks_done"), why="late replica report"),
    Ignore(states=("Completing", "Failing", "Terminating"), events=("tasks_done",), why="wait for all_gone"),
    Ignore(
        states=("Completing", "Failing", "Terminating"),
        events=("complete_job", "fail_job", "terminate_job"),
        why="already ending",
    ),
    Ignore(
        states=("Completed", "Failed", "Terminated"),
        events=("terminate_job", "complete_job", "fail_job"),
        why="final: command is answered with 409, no change",
    ),
    Ignore(
        states=("Inqueue", "Running", "Completing", "Failing", "Terminating", "Completed", "Failed", "Terminated"),
        events=("admit",),
        why="duplicate",
    ),
    Ignore(
        states=("Pending", "Completing", "Failing", "Terminating", "Completed", "Failed", "Terminated"),
        events=("gang_bound",),
        why="scheduler lost the race: it releases the placement",
    ),
)

_ILLEGAL: Final = {
    "Inqueue": "all_gone complete_job tasks_done",
    "Pending": "all_gone complete_job fail_job tasks_done",
    "Running": "all_gone gang_bound",
}

JOB: Final = StateMachine(
    name="job",
    states=_STATES,
    events=_EVENTS,
    transitions=_TRANSITIONS,
    ignored=_IGNORED,
    illegal=tuple((state, event) for state, events in _ILLEGAL.items() for event in events.split()),
)
