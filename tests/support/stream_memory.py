"""Streams and consumers of the memory bus, with the rules of JetStream that colo relies on."""

import asyncio
from collections import deque
from collections.abc import Sequence

from colo_common.events.registry import StreamLimits
from colo_common.events.subjects import matches
from colo_common.ports import Delivery, Outgoing, Settlement, Source

__all__ = ["MemoryConsumer", "MemoryStream"]


def _matches_any(patterns: Sequence[str], subject: str) -> bool:
    return any(matches(pattern, subject) for pattern in patterns)


class MemoryStream:
    """Messages in order of arrival, within the limits; a work queue deletes acknowledged messages."""

    def __init__(self, limits: StreamLimits) -> None:
        self.limits = limits
        self.messages: dict[int, Outgoing] = {}
        self.last_seq = 0
        self._stored_s: dict[int, float] = {}
        self._by_subject: dict[str, deque[int]] = {}
        self._ids: dict[str, float] = {}
        self._durables: dict[str, MemoryConsumer] = {}
        self._consumers: list[MemoryConsumer] = []

    def takes(self, subject: str) -> bool:
        """Whether the stream stores the subject."""
        return any(matches(pattern, subject) for pattern in self.limits.subjects)

    def append(self, message: Outgoing) -> bool:
        """Store a message; False when its id was seen within the duplicate window."""
        now_s = asyncio.get_running_loop().time()
        if message.msg_id:
            self._forget_ids(now_s)
            if message.msg_id in self._ids:
                return False
            self._ids[message.msg_id] = now_s + self.limits.duplicate_window_s
        self.last_seq += 1
        self.messages[self.last_seq] = message
        self._stored_s[self.last_seq] = now_s
        kept = self._by_subject.setdefault(message.subject, deque())
        kept.append(self.last_seq)
        while 0 < self.limits.max_msgs_per_subject < len(kept):
            self._forget(kept.popleft())
        for consumer in self._consumers:
            consumer.wake()
        return True

    def consumer(self, source: Source) -> "MemoryConsumer":
        """The durable consumer of that name, created at its first use from the first message on, or a new unnamed one."""
        if source.durable and source.durable in self._durables:
            return self._durables[source.durable]
        consumer = MemoryConsumer(self, source)
        if source.durable:
            self._durables[source.durable] = consumer
        self._consumers.append(consumer)
        return consumer

    def forget(self, consumer: "MemoryConsumer") -> None:
        """Delete an unnamed consumer."""
        consumer.stop()
        self._consumers.remove(consumer)

    def remove(self, seq: int) -> None:
        """Delete a message, if it is still stored."""
        message = self.messages.get(seq)
        if message is not None:
            self._by_subject[message.subject].remove(seq)
            self._forget(seq)

    def last_per_subject(self, patterns: Sequence[str]) -> list[int]:
        """The last sequence of every subject that matches any of the patterns, ascending."""
        return sorted(
            kept[-1] for subject, kept in self._by_subject.items() if kept and _matches_any(patterns, subject)
        )

    def first_since(self, source: Source) -> int:
        """The sequence at which a source starts that begins some time ago, or with the newest messages."""
        from_s = asyncio.get_running_loop().time() - source.since_s
        found = [
            seq
            for seq, stored_s in self._stored_s.items()
            if stored_s >= from_s and _matches_any(source.subjects, self.messages[seq].subject)
        ]
        if not source.durable and len(found) > source.since_most:
            return self.last_seq - source.since_most + 1
        return found[0] if found else self.last_seq + 1

    def _forget(self, seq: int) -> None:
        del self.messages[seq], self._stored_s[seq]

    def age_ms(self, seq: int) -> int:
        """How long ago the message was stored, at least 1."""
        return max(1, round((asyncio.get_running_loop().time() - self._stored_s[seq]) * 1_000))

    def _forget_ids(self, now_s: float) -> None:
        # Ids expire in the order in which they came.
        while self._ids:
            oldest = next(iter(self._ids))
            if self._ids[oldest] > now_s:
                return
            del self._ids[oldest]


class MemoryConsumer:
    """The state of one consumer: the next new message, unacknowledged deliveries, pending redeliveries."""

    def __init__(self, stream: MemoryStream, source: Source) -> None:
        self._stream = stream
        self._source = source
        self._redeliveries: deque[int] = deque()
        self._cursor = 1
        if source.durable and source.since_s:
            self._cursor = stream.first_since(source)
        elif not source.durable:
            self._cursor = stream.last_seq + 1
            if source.since_s:
                self._cursor = stream.first_since(source)
            if source.last_per_subject:
                self._redeliveries.extend(stream.last_per_subject(source.subjects))
        self._live_from = self._cursor
        self._unacked: dict[int, asyncio.TimerHandle] = {}
        self._counts: dict[int, int] = {}
        self._woken = asyncio.Event()
        self._woken.set()

    def wake(self) -> None:
        """Let `wait` return: a message may be ready."""
        self._woken.set()

    async def wait(self) -> None:
        """Return when a message may be ready."""
        await self._woken.wait()

    def next(self) -> Delivery | None:
        """The next message to deliver, or None (and `wait` waits again)."""
        seq = self._pick()
        if seq is None:
            self._woken.clear()
            return None
        message = self._stream.messages[seq]
        if not self._source.durable:
            is_replayed = self._source.last_per_subject and seq < self._live_from
            return Delivery(
                message.subject,
                message.data,
                message.headers,
                stream=self._source.stream,
                stream_seq=seq,
                age_ms=self._stream.age_ms(seq) if is_replayed else 0,
            )
        count = self._counts[seq] = self._counts.get(seq, 0) + 1
        self._unacked[seq] = asyncio.get_running_loop().call_later(self._source.ack_wait_s, self.retry_after, seq, 0.0)

        async def settle(settlement: Settlement, delay_s: float) -> None:
            if settlement is Settlement.NAK:
                self.retry_after(seq, delay_s)
            else:
                self.finish(seq)

        return Delivery(
            message.subject,
            message.data,
            message.headers,
            deliveries=count,
            stream=self._source.stream,
            stream_seq=seq,
            settle=settle,
        )

    def finish(self, seq: int) -> None:
        """The message is acknowledged or terminated."""
        self._clear_unacked(seq)
        self._counts.pop(seq, None)
        if self._stream.limits.work_queue:
            self._stream.remove(seq)

    def retry_after(self, seq: int, delay_s: float) -> None:
        """Redeliver the message after the delay."""
        if not self._source.durable:
            return
        self._clear_unacked(seq)
        if delay_s > 0:
            self._unacked[seq] = asyncio.get_running_loop().call_later(delay_s, self.retry_after, seq, 0.0)
            return
        self._redeliveries.append(seq)
        self.wake()

    def stop(self) -> None:
        """Cancel all timers."""
        for timer in self._unacked.values():
            timer.cancel()
        self._unacked.clear()

    def _pick(self) -> int | None:
        while self._redeliveries:
            seq = self._redeliveries.popleft()
            if seq in self._stream.messages:
                return seq
            self._counts.pop(seq, None)
        while self._cursor <= self._stream.last_seq:
            seq = self._cursor
            self._cursor += 1
            message = self._stream.messages.get(seq)
            if message is not None and _matches_any(self._source.subjects, message.subject):
                return seq
        return None

    def _clear_unacked(self, seq: int) -> None:
        timer = self._unacked.pop(seq, None)
        if timer is not None:
            timer.cancel()
