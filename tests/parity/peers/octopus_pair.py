"""The life of a preemption pair: one waiting job and the victims that are to leave for it, after a delay."""

from __future__ import annotations

from typing import Final

from colo_common.model.transitions import SAME, Ignore, State, StateMachine
from tests.parity.peers.octopus_notes import NotedTransition

_STATES: Final = (
    State(name="Armed", is_initial=True, meaning="victims marked, timer runs"),
    State(name="Firing", meaning="victims are being stopped"),
    State(name="Done", is_terminal=True, meaning="all victims gone, capacity held for the preemptor"),
    State(name="Cancelled", is_terminal=True, meaning="nothing (more) to do"),
)

_EVENTS: Final = (
    "fit",  # scheduler: preemptor fits without the victims
    "preemptor_left",  # preemptor ended, suspended, revoked, demoted below a victim or lost its right
    "victim_left",  # a victim left (ended by itself, promoted) or capacity changed: recompute the cover
    "timer",  # delay timer, carries the generation
    "victim_gone",  # a victim was stopped
    "stop_timeout",  # a victim does not stop
)

_TRANSITIONS: Final = (
    NotedTransition(
        id="P1",
        sources=("Armed",),
        event="fit",
        target="Cancelled",
        actions=("disarm", "unmark every victim"),
        hook="preemption_cancelled(fit)",
    ),
    NotedTransition(
        id="P2",
        sources=("Armed",),
        event="preemptor_left",
        target="Cancelled",
        actions=("disarm", "unmark every victim", "plan_cancelled to preemptor if it still waits"),
        hook="preemption_cancelled(reason)",
    ),
    NotedTransition(
        id="P3",
        sources=("Armed",),
        event="victim_left",
        target=SAME,
        guard=("covered",),
        actions=("generation += 1", "unmark victims that are no longer needed", "same deadline"),
    ),
    NotedTransition(
        id="P4",
        sources=("Armed",),
        event="victim_left",
        target=SAME,
        guard=("!covered", "replaced"),
        actions=("generation += 1", "mark the replacements", "deadline = max(deadline, now + delay)"),
    ),
    NotedTransition(
        id="P5",
        sources=("Armed",),
        event="victim_left",
        target="Cancelled",
        guard=("!covered", "!replaced"),
        actions=("unmark the rest", "plan_cancelled to preemptor"),
    ),
    NotedTransition(
        id="P6",
        sources=("Armed",),
        event="timer",
        target="Firing",
        guard=("due",),
        actions=("fire to every victim",),
        hook="preemption_fired",
    ),
    NotedTransition(
        id="P7",
        sources=("Armed",),
        event="timer",
        target=SAME,
        guard=("!due",),
        actions=("drop: old generation or early",),
    ),
    NotedTransition(
        id="P8",
        sources=("Firing",),
        event="victim_gone",
        target="Done",
        guard=("last",),
        actions=("victims_gone to preemptor", "arm reservation timer"),
        hook="preemption_done",
    ),
    NotedTransition(id="P9", sources=("Firing",), event="victim_gone", target=SAME, guard=("!last",)),
    NotedTransition(
        id="P10",
        sources=("Firing",),
        event="preemptor_left",
        target="Cancelled",
        actions=("release held capacity", "victims cannot be un-stopped: requeue them first"),
        hook="preemption_cancelled(late)",
    ),
    NotedTransition(id="P11", sources=("Firing",), event="stop_timeout", target=SAME, actions=("SIGKILL",)),
)

_IGNORED: Final = (
    Ignore(states=("Firing",), events=("timer", "fit", "victim_left"), why="already firing"),
    Ignore(
        states=("Done", "Cancelled"),
        events=("timer", "fit", "preemptor_left", "victim_left", "victim_gone", "stop_timeout"),
        why="finished",
    ),
    Ignore(
        states=("Armed",),
        events=("victim_gone", "stop_timeout"),
        why="a victim released early is reported through victim_left",
    ),
)

PAIR: Final = StateMachine(
    name="pair",
    states=_STATES,
    events=_EVENTS,
    transitions=_TRANSITIONS,
    ignored=_IGNORED,
    illegal=(),
)
