"""When an atomic batch is the faster way to store many messages, learned from how long both ways took.

A server that syncs its disk for each message (`sync_interval: always`) syncs an atomic batch a handful of times, however many
messages it has; one that syncs now and then stores the same messages sooner one by one. Nothing that a client may ask tells them
apart, and what a sync costs depends on the disk. Calls of few messages, which are never batches, show what one message costs.
"""

from typing import Final

__all__ = ["BATCH_LEAST", "LEARN_LEAST", "SYNCS_ONCE_SINCE", "BatchChoice"]

#: Fewer messages than this are always stored one by one: the files that the server makes for a batch cost more.
BATCH_LEAST: Final = 32
#: From so many messages stored one by one the cost of one is learned.
LEARN_LEAST: Final = 16
#: A server before this one (major, minor) syncs a batch message by message, and its files besides.
SYNCS_ONCE_SINCE: Final = (2, 15)
# What is believed of a batch, besides its messages, until one was sent: six syncs of a common disk.
_BATCH_S: Final = 0.004
# What a message costs either way: to receive and to keep it, without any sync.
_MESSAGE_S: Final = 0.000_04
# The share of the newest time in the average, and how much more than the average it may say: a stall is no cost.
_NEWEST: Final = 0.25
_SURPRISE_MOST: Final = 4.0
# While no batch is sent, the cost of one goes back to what is believed by this share each time.
_FORGET: Final = 1 / 32
# So long no batch goes to a stream that refused one.
_REFUSED_S: Final = 60.0


class BatchChoice:
    """Which way to take. One by one `n` messages take n * message, a batch of them batch + n * _MESSAGE_S.

    Both are as they came out lately, with what they waited for: the more there is to wait for, the sooner a batch is chosen.
    """

    def __init__(self) -> None:
        self._refused_s: dict[str, float] = {}
        self._message_s = 0.0
        self._batch_s = _BATCH_S

    def is_batch(self, stream: str, size: int, now_s: float) -> bool:
        """Whether the messages should go as one batch. `now_s` is of any clock."""
        if size < BATCH_LEAST or now_s < self._refused_s.get(stream, now_s):
            return False
        if self._pays(size):
            return True
        self._batch_s += _FORGET * (_BATCH_S - self._batch_s)
        return False

    def learn(self, size: int, is_batch: bool, took_s: float) -> None:
        """So long it took until all were stored. Too few messages say nothing."""
        if is_batch:
            self._batch_s = _average(self._batch_s, max(_BATCH_S / 2, took_s - size * _MESSAGE_S))
        elif size >= LEARN_LEAST:
            self._message_s = _average(self._message_s, took_s / size)

    def _pays(self, size: int) -> bool:
        return size * (self._message_s - _MESSAGE_S) > self._batch_s

    def refuse(self, stream: str, now_s: float) -> None:
        """The stream took a batch badly: none for a while."""
        self._refused_s[stream] = now_s + _REFUSED_S

    def forget(self) -> None:
        """The server may be another one."""
        self._refused_s.clear()
        self._message_s = 0.0
        self._batch_s = _BATCH_S


def _average(old_s: float, new_s: float) -> float:
    if not old_s:
        return new_s
    return old_s + _NEWEST * (min(new_s, _SURPRISE_MOST * old_s) - old_s)
