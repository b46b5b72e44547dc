"""The life of a reservation as a closed table."""

from enum import StrEnum
from typing import Final

from colo_common.model.transitions import SAME, Ignore, State, StateMachine, Transition

__all__ = ["RESERVATION", "EndReason", "ReservationPhase"]


class ReservationPhase(StrEnum):
    """The phases of a reservation."""

    PENDING = "Pending"
    AVAILABLE = "Available"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def is_ended(self) -> bool:
        """Whether the reservation holds nothing and never will again."""
        return self in (ReservationPhase.SUCCEEDED, ReservationPhase.FAILED)


class EndReason(StrEnum):
    """Why a reservation holds nothing any more."""

    USED = "used"
    EXPIRED = "expired"
    NODE_DELETED = "node-gone"
    OWNER_DELETED = "owner-gone"


_ENDED: Final = ("Succeeded", "Failed")

RESERVATION: Final = StateMachine(
    name="reservation",
    states=(
        State(name="Pending", is_initial=True, meaning="waits for a place"),
        State(name="Available", meaning="holds a place for its owners"),
        State(name="Succeeded", is_terminal=True, meaning="was used once, its owner holds the place itself"),
        State(name="Failed", is_terminal=True, meaning="ended without use, or before its last use"),
    ),
    events=("bound", "used", "left", "expired", "node_gone", "owner_gone", "unheld"),
    transitions=(
        Transition(id="R1", sources=("Pending",), event="bound", target="Available"),
        Transition(id="R2", sources=("Available",), event="used", target="Succeeded", guard=("once",)),
        Transition(id="R3", sources=("Available",), event="used", target=SAME, guard=("!once",)),
        Transition(id="R4", sources=("Available",), event="left", target=SAME),
        Transition(id="R5", sources=("Pending", "Available"), event="expired", target="Failed"),
        Transition(id="R6", sources=("Available",), event="node_gone", target="Failed"),
        Transition(id="R7", sources=("Pending", "Available"), event="owner_gone", target="Failed"),
        Transition(id="R8", sources=("Available",), event="unheld", target="Pending"),
    ),
    ignored=(
        Ignore(states=_ENDED, events=("bound",), why="its place came too late"),
        Ignore(
            states=_ENDED, events=("left", "expired", "node_gone", "owner_gone", "unheld"), why="it has ended already"
        ),
        Ignore(states=("Pending",), events=("node_gone", "unheld"), why="it has no node"),
    ),
    illegal=(
        ("Available", "bound"),
        ("Pending", "used"),
        ("Pending", "left"),
        ("Succeeded", "used"),
        ("Failed", "used"),
    ),
)
"""The allowed transitions. A reservation may expire in Pending too: without a place it must not wait for ever."""
