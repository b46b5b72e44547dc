"""The questions of the scheduler to the jobs service beside the stream of requests, and the answer about started attempts."""

from msgspec import Struct

from colo_common.model.placement import Attempt

__all__ = ["AskPending", "AskStarted", "StartedKnown"]


class AskPending(Struct, frozen=True, kw_only=True):
    """Local effect: ask the jobs service again for the waiting replicas, because the queue left some out.

    `compare_holds`: the jobs service may lack ends that were received here, see PendingReplicas.
    """

    compare_holds: bool = False


class AskStarted(Struct, frozen=True, kw_only=True):
    """Local effect: ask the jobs service which of these attempts a node has started; answered in parts by StartedKnown."""

    attempts: tuple[Attempt, ...]


class StartedKnown(Struct, frozen=True, kw_only=True):
    """Event of the shell: of the attempts asked for, these have `started`, these are `over`, these are `waiting` to be started.

    An attempt that the jobs service does not know is in none of the three.
    """

    started: tuple[Attempt, ...] = ()
    over: tuple[Attempt, ...] = ()
    waiting: tuple[Attempt, ...] = ()
