"""A machine that was not put back in whole."""

from colo_executor.local import ReplicaExited

__all__ = ["NotRestored"]


class NotRestored(Exception):
    """What was not put back, in sentences. `exits` are the ends that there were all the same."""

    def __init__(self, why: str, exits: tuple[ReplicaExited, ...]) -> None:
        super().__init__(why)
        self.exits = exits
