"""The simulated bus: lossy live messages, and streams with at-least-once delivery."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from colo_common.events.fact import Fact
from colo_common.events.registry import STREAMS
from colo_common.events.subjects import matches
from colo_common.events.wire import decode
from colo_common.ports import Outgoing, Source
from colo_sim.chance import Chance
from colo_sim.event_queue import EventQueue
from colo_sim.world_boot import Boot
from colo_sim.world_log import WorldLog
from colo_sim.world_reader import Reader

__all__ = ["Consumer", "WorldBus"]

_FOUND_OUT_MS: Final = 2_000
_matches: Final = lru_cache(maxsize=100_000)(matches)


class SimStream:
    """Messages in order of arrival within the limits of the registry."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.limits = next(limits for stream, limits in STREAMS.items() if stream.value == name)
        self.messages: dict[int, Outgoing] = {}
        self.last_seq = 0
        self.newest: dict[str, int] = {}
        # When each message was stored, and under which id.
        self._stored: dict[int, tuple[int, str]] = {}
        self._ids: OrderedDict[str, int] = OrderedDict()

    def append(self, message: Outgoing, now_ms: int) -> int:
        """Store a message; returns its sequence number, or 0 when its id was seen within the duplicate window."""
        while self._ids and next(iter(self._ids.values())) <= now_ms:
            self._ids.popitem(last=False)
        if message.msg_id:
            if message.msg_id in self._ids:
                return 0
            self._ids[message.msg_id] = now_ms + self.limits.duplicate_window_s * 1_000
        self.last_seq += 1
        self.messages[self.last_seq] = message
        if self.limits.max_msgs_per_subject == 1:
            self.messages.pop(self.newest.get(message.subject, 0), None)
        self.newest[message.subject] = self.last_seq
        self._stored[self.last_seq] = now_ms, message.msg_id
        return self.last_seq

    def age_ms(self, seq: int, now_ms: int) -> int:
        """How long ago the message was stored, at least 1."""
        return max(now_ms - self._stored[seq][0], 1)

    def empty(self) -> None:
        """Lose everything but the number of the last message."""
        for messages in (self.messages, self.newest, self._stored, self._ids):
            messages.clear()

    def lose_since(self, since_ms: int) -> set[int]:
        """Lose the messages that were stored since then, and the knowledge of their ids; returns their numbers, used no more."""
        lost = {seq for seq, (at_ms, _) in self._stored.items() if at_ms >= since_ms}
        for seq in lost:
            self._ids.pop(self._stored.pop(seq)[1], None)
            self.messages.pop(seq, None)
        self.newest = {message.subject: seq for seq, message in sorted(self.messages.items())}
        return lost


class Consumer:
    """A consumer of a stream. Processes may share a named one: each message goes to one of its readers.

    `unacked` maps the sequences of unacknowledged messages to their deliveries so far.
    """

    def __init__(self, stream: SimStream, source: Source, event_queue: EventQueue, chance: Chance) -> None:
        self.source = source
        self.stream = stream
        self.unacked: dict[int, int] = {}
        #: Every message of its subjects so far.
        self.taken: set[int] = set()
        self.readers: list[Reader] = []
        self._event_queue = event_queue
        self._chance = chance
        self._due_ms = 0
        self._unsent: dict[int, None] = {}
        # What the stream had before there was this consumer is replayed, and says how old it is.
        self._live_from = stream.last_seq + 1

    def attach(self, reader: Reader) -> None:
        """Add a reader. Messages in flight to an earlier reader are redelivered after the acknowledgement time."""
        self.readers.append(reader)
        self.resume()

    def detach(self, reader: Reader) -> None:
        """Remove a reader."""
        self.readers.remove(reader)

    def resume(self) -> None:
        """Send the messages that waited for a reader with a link."""
        if not any(reader.boot.link.passes_in for reader in self.readers):
            return
        unsent, self._unsent = sorted(self._unsent), {}
        for seq in unsent:
            self._send(seq)

    def add(self, seq: int, subject: str) -> None:
        """Send a new message of the stream, if its subject matches."""
        if any(_matches(pattern, subject) for pattern in self.source.subjects):
            self.unacked[seq] = 0
            self.taken.add(seq)
            self._send(seq)

    def ack(self, seq: int) -> None:
        """Settle a message: it is not delivered again."""
        self.unacked.pop(seq, None)
        self._unsent.pop(seq, None)
        if self.stream.limits.work_queue:
            self.stream.messages.pop(seq, None)

    def redeliver(self, seq: int) -> None:
        """Send the message once more, unless it is settled."""
        if seq in self.unacked and seq not in self._unsent:
            self._send(seq)

    def lose(self, lost: set[int], why: str) -> int:
        """The stream lost these messages. Readers to whom one of them was delivered find out; returns how many do."""
        received = {seq for seq in lost & self.taken if self.unacked.get(seq, 1)}
        for seq in lost:
            self.ack(seq)
        # Orders are given again by whoever misses their effect.
        may_find = bool(received) and not self.stream.limits.work_queue
        finders = [reader for reader in self.readers if may_find and reader.missed is not None]
        for reader in finders:
            self._event_queue.after(_FOUND_OUT_MS, reader.find_missed, why)
        return len(finders)

    def empty(self, why: str) -> None:
        """Forget every message that was not acknowledged: the stream has none any more. Who hears its last messages finds out."""
        self.unacked.clear()
        self._unsent.clear()
        for reader in self.readers if self.source.last_per_subject else ():
            self._event_queue.after(_FOUND_OUT_MS, reader.find_missed, why)

    def _send(self, seq: int) -> None:
        readers = [reader for reader in self.readers if reader.boot.link.passes_in]
        if not readers:
            self._unsent[seq] = None
            return
        chance, event_queue = self._chance, self._event_queue
        reader = readers[0] if len(readers) == 1 else chance.rng.choice(readers)
        delay_ms = chance.latency_ms()
        late_ms = chance.late_ms()
        if late_ms:
            delay_ms += late_ms
        else:
            # Without network faults a consumer gets its messages in order.
            self._due_ms = max(self._due_ms, event_queue.now_ms + delay_ms)
            delay_ms = self._due_ms - event_queue.now_ms
        event_queue.after(delay_ms, self._arrive, seq, reader)
        event_queue.after(delay_ms + self.source.ack_wait_s * 1_000, self.redeliver, seq)
        if chance.strikes("twice"):
            event_queue.after(delay_ms + chance.rng.randint(0, 2_000), self._arrive, seq, reader)

    def _arrive(self, seq: int, reader: Reader) -> None:
        message = self.stream.messages.get(seq)
        if message is None:
            self.unacked.pop(seq, None)
            return
        if reader not in self.readers or not reader.boot.link.passes_in or seq not in self.unacked:
            return
        self.unacked[seq] += 1
        is_replayed = self.source.last_per_subject and seq < self._live_from
        age_ms = self.stream.age_ms(seq, self._event_queue.now_ms) if is_replayed else 0
        reader.deliver(message, self.unacked[seq], self, seq, age_ms)


class WorldBus:
    """All streams, consumers and live readers. `stored` is called with every message that a stream stores newly."""

    def __init__(self, event_queue: EventQueue, chance: Chance, world_log: WorldLog) -> None:
        self.streams = {stream.value: SimStream(stream.value) for stream in STREAMS}
        self.durables: dict[str, Consumer] = {}
        self.stored: Callable[[Fact, str], None] = lambda _fact, _id: None
        self.messages = 0
        self.event_queue = event_queue
        self.chance = chance
        self._world_log = world_log
        self._consumers: dict[str, list[Consumer]] = {name: [] for name in self.streams}
        self._live: list[Reader] = []

    # ------------------------------------------------------------ publishing

    def publish(self, sender: str, message: Outgoing) -> bool:
        """Publish; False when the message was stored and its acknowledgement is lost."""
        if not message.durable:
            self._send_live(sender, message)
            return True
        self._store(sender, message)
        return not self.chance.strikes("publish_unsure")

    def _store(self, sender: str, message: Outgoing) -> None:
        name = next(n for n, s in self.streams.items() if any(_matches(p, message.subject) for p in s.limits.subjects))
        seq = self.streams[name].append(message, self.event_queue.now_ms)
        if not seq:
            self._world_log.add(self.event_queue.now_ms, sender, f"repeats   {message.msg_id}")
            return
        self.messages += 1
        self._world_log.add(self.event_queue.now_ms, sender, f"publishes {message.msg_id}", message.data)
        self.stored(decode(message.subject, message.data), message.msg_id)
        for consumer in self._consumers[name]:
            consumer.add(seq, message.subject)

    def _send_live(self, sender: str, message: Outgoing) -> None:
        self._world_log.add(self.event_queue.now_ms, sender, f"sends     {message.subject}", message.data)
        chance = self.chance
        for reader in self._live:
            if _matches(reader.source.subject, message.subject) and not chance.strikes("lost"):
                self.event_queue.after(chance.latency_ms() + chance.late_ms(), self._arrive_live, reader, message)

    def _arrive_live(self, reader: Reader, message: Outgoing) -> None:
        if not reader.boot.is_over and reader.boot.link.passes_in:
            reader.deliver(message, 1, None, 0)

    # ------------------------------------------------------------ listening

    def attach(self, reader: Reader) -> None:
        """Deliver to the reader until its process dies (`forget`)."""
        source = reader.source
        if not source.stream:
            self._live.append(reader)
            return
        stream = self.streams[source.stream]
        consumer = self.durables.get(source.durable)
        if consumer is not None:
            consumer.attach(reader)
            return
        consumer = Consumer(stream, source, self.event_queue, self.chance)
        self._consumers[source.stream].append(consumer)
        if source.durable:
            self.durables[source.durable] = consumer
        if source.since_s:
            ages_ms = {seq: stream.age_ms(seq, self.event_queue.now_ms) for seq in stream.messages}
            first = [seq for seq, age_ms in ages_ms.items() if age_ms <= source.since_s * 1_000]
            first = first if source.durable else first[-source.since_most :]
        elif source.durable:
            first = list(stream.messages)
        else:
            first = sorted(stream.newest.values()) if source.last_per_subject else []
        consumer.attach(reader)
        for seq in first:
            if seq in stream.messages:
                consumer.add(seq, stream.messages[seq].subject)

    def forget(self, boot: Boot) -> None:
        """Detach a dead process: its unnamed consumers are deleted, named ones wait for its next start."""
        self._live = [reader for reader in self._live if reader.boot is not boot]
        for consumers in self._consumers.values():
            for consumer in tuple(consumers):
                detached = [reader for reader in consumer.readers if reader.boot is boot]
                for reader in detached:
                    consumer.detach(reader)
                if detached and not consumer.source.durable:
                    consumers.remove(consumer)

    def detach(self, reader: Reader) -> None:
        """Detach one reader of a process that goes on: it listens no more."""
        self._live = [one for one in self._live if one is not reader]
        for consumers in self._consumers.values():
            for consumer in tuple(consumers):
                if reader not in consumer.readers:
                    continue
                consumer.detach(reader)
                if not consumer.source.durable:
                    consumers.remove(consumer)

    def resume(self, boot: Boot) -> None:
        """Deliver again to a process whose link is back."""
        for consumers in self._consumers.values():
            for consumer in consumers:
                if any(reader.boot is boot for reader in consumer.readers):
                    consumer.resume()

    def lose_since(self, since_ms: int) -> tuple[int, int]:
        """Lose what the streams that keep every message stored since then: how many messages, and how many readers find out."""
        count = found = 0
        for name, stream in self.streams.items():
            # Of a subject's last message an older one would come back, which its owner publishes again anyway.
            if stream.limits.max_msgs_per_subject == 1:
                continue
            lost = stream.lose_since(since_ms)
            count += len(lost)
            for consumer in self._consumers[name]:
                found += consumer.lose(lost, f"{name} lost {len(lost)} messages")
        return count, found

    def empty(self) -> None:
        """Lose every message of every stream. Of those that keep them all nobody finds out: who had heard of them finds no gap."""
        for name, stream in self.streams.items():
            stream.empty()
            for consumer in self._consumers[name]:
                consumer.empty(f"{name} was emptied")

    def undelivered(self) -> Mapping[str, int]:
        """The number of unacknowledged messages of each named consumer, where there are any."""
        return {name: len(consumer.unacked) for name, consumer in sorted(self.durables.items()) if consumer.unacked}
