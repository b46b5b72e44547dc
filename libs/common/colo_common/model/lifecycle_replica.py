"""The state machine of a replica, the unit that is placed on a node."""

from __future__ import annotations

from typing import Final

from colo_common.model.transitions import Ignore, State, StateMachine, Transition

_STATES: Final = (
    State(name="Pending", is_initial=True, meaning="to be placed"),
    State(name="Assigned", meaning="node, NUMA zones and devices chosen"),
    State(name="Starting", meaning="container created, image pull, mounts"),
    State(name="Running", meaning="main process runs"),
    State(name="Unknown", meaning="node not heard of"),
    State(name="Stopping", meaning="SIGTERM sent, grace runs"),
    State(name="Backoff", meaning="failed, waits for its retry"),
    State(name="Succeeded", is_terminal=True, meaning="final"),
    State(name="Failed", is_terminal=True, meaning="final"),
    State(name="Stopped", is_terminal=True, meaning="final"),
)

_EVENTS: Final = (
    "place",  # scheduler
    "place_failed",  # executor rejected
    "started",  # executor
    "ready",  # executor
    "exit",  # executor: exit code
    "stop",  # task
    "gone",  # executor: process and cgroup removed
    "node_lost",  # collector heartbeat
    "node_back",  # collector
    "lost_timeout",  # timer
    "retry_due",  # timer
)

_TRANSITIONS: Final = (
    Transition(id="R01", sources=("Pending",), event="place", target="Assigned"),
    Transition(id="R02", sources=("Assigned",), event="place_failed", target="Pending"),
    Transition(id="R03", sources=("Assigned",), event="started", target="Starting"),
    Transition(id="R04", sources=("Starting",), event="ready", target="Running"),
    Transition(
        id="R05",
        sources=("Assigned", "Starting", "Running", "Unknown"),
        event="exit",
        target="Succeeded",
        guard=("zero",),
    ),
    Transition(
        id="R06",
        sources=("Assigned", "Starting", "Running", "Unknown"),
        event="exit",
        target="Backoff",
        guard=("!zero", "retry"),
    ),
    Transition(
        id="R07",
        sources=("Assigned", "Starting", "Running", "Unknown"),
        event="exit",
        target="Failed",
        guard=("!zero", "!retry"),
    ),
    Transition(id="R08", sources=("Running", "Starting"), event="node_lost", target="Unknown"),
    Transition(id="R09", sources=("Unknown",), event="node_back", target="Running"),
    Transition(id="R10", sources=("Unknown",), event="lost_timeout", target="Backoff", guard=("retry",)),
    Transition(id="R11", sources=("Unknown",), event="lost_timeout", target="Failed", guard=("!retry",)),
    Transition(id="R12", sources=("Pending", "Assigned", "Backoff"), event="stop", target="Stopped"),
    Transition(id="R13", sources=("Starting", "Running", "Unknown"), event="stop", target="Stopping"),
    Transition(id="R14", sources=("Stopping",), event="gone", target="Stopped"),
    Transition(id="R15", sources=("Stopping",), event="exit", target="Succeeded", guard=("zero",)),
    Transition(id="R16", sources=("Stopping",), event="exit", target="Stopped", guard=("!zero",)),
    Transition(id="R17", sources=("Backoff",), event="retry_due", target="Pending"),
    Transition(id="R18", sources=("Assigned",), event="node_lost", target="Pending"),
)

_IGNORED: Final = (
    Ignore(
        states=("Succeeded", "Failed", "Stopped"),
        events=(
            "exit",
            "gone",
            "stop",
            "started",
            "ready",
            "node_lost",
            "node_back",
            "lost_timeout",
            "retry_due",
            "place_failed",
        ),
        why="late report of an old attempt (attempt number differs)",
    ),
    Ignore(
        states=("Pending", "Backoff"),
        events=("exit", "gone", "started", "ready", "node_lost", "node_back", "lost_timeout", "place_failed"),
        why="late report of an old attempt",
    ),
    Ignore(
        states=("Stopping",),
        events=("stop", "started", "ready", "node_lost", "node_back", "lost_timeout"),
        why="already stopping",
    ),
    Ignore(states=("Running",), events=("ready", "started", "node_back", "lost_timeout"), why="duplicate"),
    Ignore(states=("Unknown",), events=("node_lost",), why="duplicate"),
)

_ILLEGAL: Final = {
    "Assigned": "gone lost_timeout node_back place ready retry_due",
    "Backoff": "place",
    "Failed": "place",
    "Pending": "retry_due",
    "Running": "gone place place_failed retry_due",
    "Starting": "gone lost_timeout node_back place place_failed retry_due started",
    "Stopped": "place",
    "Stopping": "place place_failed retry_due",
    "Succeeded": "place",
    "Unknown": "gone place place_failed ready retry_due started",
}

REPLICA: Final = StateMachine(
    name="replica",
    states=_STATES,
    events=_EVENTS,
    transitions=_TRANSITIONS,
    ignored=_IGNORED,
    illegal=tuple((state, event) for state, events in _ILLEGAL.items() for event in events.split()),
)
