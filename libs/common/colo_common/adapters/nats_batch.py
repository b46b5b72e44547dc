"""When an atomic batch is the faster way to store many messages, learned from how long both ways took.

A server that syncs its disk for each message (`sync_interval: always`) syncs an atomic batch a handful of times, however many
messages it has; one that syncs now and then stores the same messages sooner one by one. Nothing that a client may ask tells them
apart, and what a sync costs depends on the disk. So both ways are tried and the faster one is kept, for each stream and size.
"""

from typing import Final

__all__ = ["BATCH_LEAST", "SYNCS_ONCE_SINCE", "BatchChoice"]

#: Fewer messages than this are always stored one by one: the files that the server makes for a batch cost more.
BATCH_LEAST: Final = 32
#: A server before this one (major, minor) syncs a batch message by message, and its files besides.
SYNCS_ONCE_SINCE: Final = (2, 15)
# Each way is tried this often before one is preferred.
_TRIES: Final = 2
# The slower way is tried again at every so manieth time; seldom when it is slower by more than the ratio.
_TRY_AGAIN: Final = 32
_TRY_AGAIN_SELDOM: Final = 512
_CLEAR_RATIO: Final = 3.0
# The share of the newest time in the average.
_NEWEST: Final = 0.25
# So long no batch goes to a stream that refused one.
_REFUSED_S: Final = 60.0


class _Way:
    """How long one way took lately."""

    def __init__(self) -> None:
        self.tries = 0
        self.took_s = 0.0

    def learn(self, took_s: float) -> None:
        self.took_s = took_s if not self.tries else self.took_s + _NEWEST * (took_s - self.took_s)
        self.tries += 1

    def is_clearly_slower_than(self, other: "_Way") -> bool:
        return min(self.tries, other.tries) >= _TRIES and self.took_s > _CLEAR_RATIO * other.took_s


class _Size:
    """Both ways for about the same number of messages."""

    def __init__(self) -> None:
        self.batch = _Way()
        self.singly = _Way()
        self.choices = 0

    def choose(self, smaller: "_Size | None") -> bool:
        self.choices += 1
        for way in (self.singly, self.batch):
            if way.tries < _TRIES:
                # More messages only make the difference larger: one by one they might take longer than anybody waits.
                return way is self.batch or (
                    smaller is not None and smaller.singly.is_clearly_slower_than(smaller.batch)
                )
        is_batch = self.batch.took_s < self.singly.took_s
        slower, faster = (self.singly, self.batch) if is_batch else (self.batch, self.singly)
        again = _TRY_AGAIN_SELDOM if slower.is_clearly_slower_than(faster) else _TRY_AGAIN
        return is_batch != (self.choices % again == 0)


class BatchChoice:
    """Which way to take, for each stream and for sizes of the same power of two. Time is given in seconds of any clock."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[str, int], _Size] = {}
        self._refused_s: dict[str, float] = {}

    def is_batch(self, stream: str, size: int, now_s: float) -> bool:
        """Whether the messages should go as one batch."""
        if size < BATCH_LEAST or now_s < self._refused_s.get(stream, now_s):
            return False
        return self._size(stream, size).choose(self._sizes.get((stream, size.bit_length() - 1)))

    def learn(self, stream: str, size: int, is_batch: bool, took_s: float) -> None:
        """So long it took until all were stored."""
        if size >= BATCH_LEAST:
            found = self._size(stream, size)
            (found.batch if is_batch else found.singly).learn(took_s)

    def refuse(self, stream: str, now_s: float) -> None:
        """The stream took a batch badly: none for a while."""
        self._refused_s[stream] = now_s + _REFUSED_S

    def forget(self) -> None:
        """The server may be another one."""
        self._sizes.clear()
        self._refused_s.clear()

    def _size(self, stream: str, size: int) -> _Size:
        return self._sizes.setdefault((stream, size.bit_length()), _Size())
