"""Streams and consumers of the memory bus, with the rules of JetStream that colo relies on."""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import lru_cache

from colo_common.events.registry import StreamLimits
from colo_common.ports import Delivery, Outgoing, Settlement, Source

__all__ = ["MemoryConsumer", "MemoryStream", "matches"]


@lru_cache(maxsize=65_536)
def matches(pattern: str, subject: str) -> bool:
    """Whether a subject fits a pattern: "*" is one token, a last ">" is one or more."""
    wanted = pattern.split(".")
    tokens = subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(tokens) <= len(wanted):
            return False
    elif len(tokens) != len(wanted):
        return False
    return all(placement_request in ("*", token) for placement_request, token in zip(wanted, tokens, strict=False))


def _fits(patterns: Sequence[str], subject: str) -> bool:
    return any(matches(pattern, subject) for pattern in patterns)


class MemoryStream:
    """Messages in order of arrival, as far as the limits keep them; a work queue forgets what is done."""

    def __init__(self, limits: StreamLimits) -> None:
        self.limits = limits
        self.messages: dict[int, Outgoing] = {}
        self.last_seq = 0
        self._by_subject: dict[str, deque[int]] = {}
        self._ids: dict[str, float] = {}
        self._durables: dict[str, MemoryConsumer] = {}
        self._consumers: list[MemoryConsumer] = []

    def takes(self, subject: str) -> bool:
        """Whether the stream keeps the subject."""
        return any(matches(pattern, subject) for pattern in self.limits.subjects)

    def append(self, message: Outgoing) -> bool:
        """Keep a message; False when its id was seen within the duplicate window."""
        now_s = asyncio.get_running_loop().time()
        if message.msg_id:
            self._forget_ids(now_s)
            if message.msg_id in self._ids:
                return False
            self._ids[message.msg_id] = now_s + self.limits.duplicate_window_s
        self.last_seq += 1
        self.messages[self.last_seq] = message
        kept = self._by_subject.setdefault(message.subject, deque())
        kept.append(self.last_seq)
        while 0 < self.limits.max_msgs_per_subject < len(kept):
            del self.messages[kept.popleft()]
        for consumer in self._consumers:
            consumer.wake()
        return True

    def consumer(self, source: Source) -> "MemoryConsumer":
        """The durable consumer of that name (made at its first use, from the first message on), or a new one."""
        if source.durable and source.durable in self._durables:
            return self._durables[source.durable]
        consumer = MemoryConsumer(self, source)
        if source.durable:
            self._durables[source.durable] = consumer
        self._consumers.append(consumer)
        return consumer

    def forget(self, consumer: "MemoryConsumer") -> None:
        """Drop a consumer that has no name."""
        consumer.stop()
        self._consumers.remove(consumer)

    def remove(self, seq: int) -> None:
        """Delete a message, if it is still there."""
        message = self.messages.pop(seq, None)
        if message is not None:
            self._by_subject[message.subject].remove(seq)

    def last_per_subject(self, patterns: Sequence[str]) -> list[int]:
        """The newest sequence of every subject that fits one of the patterns, ascending."""
        return sorted(kept[-1] for subject, kept in self._by_subject.items() if kept and _fits(patterns, subject))

    def _forget_ids(self, now_s: float) -> None:
        # Ids expire in the order in which they came.
        while self._ids:
            oldest = next(iter(self._ids))
            if self._ids[oldest] > now_s:
                return
            del self._ids[oldest]


class MemoryConsumer:
    """Where one consumer stands: the next new message, what is out and not acknowledged, what must go out again."""

    def __init__(self, stream: MemoryStream, source: Source) -> None:
        self._stream = stream
        self._source = source
        self._again: deque[int] = deque()
        self._cursor = 1
        if not source.durable:
            self._cursor = stream.last_seq + 1
            if source.last_per_subject:
                self._again.extend(stream.last_per_subject(source.subjects))
        self._out: dict[int, asyncio.TimerHandle] = {}
        self._counts: dict[int, int] = {}
        self._woken = asyncio.Event()
        self._woken.set()

    def wake(self) -> None:
        """Something may be there."""
        self._woken.set()

    async def wait(self) -> None:
        """Return when something may be there."""
        await self._woken.wait()

    def next(self) -> Delivery | None:
        """The next message to deliver, or None (and `wait` waits again)."""
        seq = self._pick()
        if seq is None:
            self._woken.clear()
            return None
        message = self._stream.messages[seq]
        if not self._source.durable:
            return Delivery(message.subject, message.data, message.headers)
        count = self._counts[seq] = self._counts.get(seq, 0) + 1
        self._out[seq] = asyncio.get_running_loop().call_later(self._source.ack_wait_s, self.retry_after, seq, 0.0)

        async def settle(settlement: Settlement, delay_s: float) -> None:
            if settlement is Settlement.NAK:
                self.retry_after(seq, delay_s)
            else:
                self.finish(seq)

        is_last = self._source.is_last(count)
        return Delivery(
            message.subject, message.data, message.headers, deliveries=count, is_last=is_last, settle=settle
        )

    def finish(self, seq: int) -> None:
        """The message is done."""
        self._take_back(seq)
        self._counts.pop(seq, None)
        if self._stream.limits.work_queue:
            self._stream.remove(seq)

    def retry_after(self, seq: int, delay_s: float) -> None:
        """The message goes out again after the delay, unless it went out as often as it may."""
        if not self._source.durable:
            return
        self._take_back(seq)
        if self._counts.get(seq, 0) >= self._source.max_deliver:
            self._counts.pop(seq, None)
            return
        if delay_s > 0:
            self._out[seq] = asyncio.get_running_loop().call_later(delay_s, self.retry_after, seq, 0.0)
            return
        self._again.append(seq)
        self.wake()

    def stop(self) -> None:
        """Forget all timers."""
        for timer in self._out.values():
            timer.cancel()
        self._out.clear()

    def _pick(self) -> int | None:
        while self._again:
            seq = self._again.popleft()
            if seq in self._stream.messages:
                return seq
            self._counts.pop(seq, None)
        while self._cursor <= self._stream.last_seq:
            seq = self._cursor
            self._cursor += 1
            message = self._stream.messages.get(seq)
            if message is not None and _fits(self._source.subjects, message.subject):
                return seq
        return None

    def _take_back(self, seq: int) -> None:
        timer = self._out.pop(seq, None)
        if timer is not None:
            timer.cancel()
