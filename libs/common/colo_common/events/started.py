"""The request which attempts have started. The scheduler subscribes to no start events and asks the jobs service."""

from msgspec import Struct

from colo_common.model.units import Number

__all__ = ["StartedReplicas", "StartedReply"]


class StartedReplicas(Struct, frozen=True, kw_only=True):
    """Ask which of these attempts (1 to 1,000) a node has started. The scheduler sends the orders of the others again.

    `partition`: which part of the jobs answers, for its own; the reply says how many there are.
    """

    attempts: tuple[tuple[str, int], ...]
    partition: Number = 0


class StartedReply(Struct, frozen=True, kw_only=True):
    """The requested attempts by state, each list in the order of the request.

    `started`: a node has started the attempt and it has not ended; `over`: it has ended, or there is a later attempt; `waiting`: it
    waits for a place or for its start. An unknown attempt, as of a job that was deleted after its end, is in none of the lists,
    nor is one of another partition than that of `partitions` which answers.
    """

    started: tuple[tuple[str, int], ...]
    over: tuple[tuple[str, int], ...]
    waiting: tuple[tuple[str, int], ...]
    partitions: Number = 1
