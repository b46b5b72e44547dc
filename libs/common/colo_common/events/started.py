"""The question which attempts were started: the jobs service knows it, and a scheduler that hears no starts asks it."""

from msgspec import Struct

__all__ = ["StartedReplicas", "StartedReply"]


class StartedReplicas(Struct, frozen=True, kw_only=True):
    """Which of these attempts, 1 to 1,000, a node has started: how a scheduler learns which orders need not be sent again."""

    attempts: tuple[tuple[str, int], ...]


class StartedReply(Struct, frozen=True, kw_only=True):
    """What has become of the attempts that were asked for, each kind in the order of the question.

    `started`: a node has started it and it is not over; `over`: it has ended, or there is a later attempt; `waiting`: it waits for
    a place, or for its node. One that is not known, as of a job that ended long ago, is none of them.
    """

    started: tuple[tuple[str, int], ...]
    over: tuple[tuple[str, int], ...]
    waiting: tuple[tuple[str, int], ...]
