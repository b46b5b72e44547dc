"""The place chosen for one replica."""

from typing import NamedTuple

from colo_common.model.placement import Attempt, ZoneShare
from colo_scheduler.cluster.holding import Holding

__all__ = ["Choice"]


class Choice(NamedTuple):
    """The row of a node, and one replica's resources there: `shares` of its zones, and the `holding` beside CPU and memory.

    `reservation` names the reservation in which an owner is placed. `inside`: attempts that already run on the node within the
    reserved place; only where the replica stands for a reservation.
    """

    row: int
    shares: tuple[ZoneShare, ...]
    holding: Holding | None = None
    reservation: str = ""
    inside: tuple[Attempt, ...] = ()
