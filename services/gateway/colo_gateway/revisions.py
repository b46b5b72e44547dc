"""The numbers of the documents that every node and service follows: the restrictions and the colocation policy."""

__all__ = ["next_revision"]


def next_revision(last: int, now_ms: int) -> int:
    """The revision after `last`: the time in ms, or one more than the last where that is higher.

    Who follows a document takes no lower revision, and executors journal theirs. The time is above what an installation gave
    whose store and streams are gone, or came back as they were a while ago.
    """
    return max(last + 1, now_ms)
