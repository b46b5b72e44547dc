"""The question which attempts were started: the jobs service knows it, and a scheduler that hears no starts asks it."""

from msgspec import Struct

__all__ = ["StartedReplicas", "StartedReply"]


class StartedReplicas(Struct, frozen=True, kw_only=True):
    """Which of these attempts, 1 to 1,000, a node has started: how a scheduler learns which orders need not be sent again."""

    attempts: tuple[tuple[str, int], ...]


class StartedReply(Struct, frozen=True, kw_only=True):
    """Those of the attempts that were asked for that a node has started, in the order of the question; also what is over by now.

    An attempt that waits for a place, or for its node, is not among them, nor is one that is not known.
    """

    started: tuple[tuple[str, int], ...]
