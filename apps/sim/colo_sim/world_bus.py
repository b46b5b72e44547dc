"""The bus of a simulated world: lossy telemetry, and streams that deliver at least once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from colo_common.adapters.stream_memory import matches
from colo_common.events.fact import Fact
from colo_common.events.registry import STREAMS
from colo_common.events.wire import decode
from colo_common.ports import Outgoing, Source
from colo_sim.chance import Chance
from colo_sim.event_queue import EventQueue
from colo_sim.world_boot import Boot
from colo_sim.world_log import WorldLog
from colo_sim.world_reader import Reader

__all__ = ["Consumer", "WorldBus"]

_fits: Final = lru_cache(maxsize=100_000)(matches)


class SimStream:
    """Messages in order of arrival within the limits of the registry."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.limits = next(limits for stream, limits in STREAMS.items() if stream.value == name)
        self.messages: dict[int, Outgoing] = {}
        self.last_seq = 0
        self.newest: dict[str, int] = {}
        self._ids: OrderedDict[str, int] = OrderedDict()

    def append(self, message: Outgoing, now_ms: int) -> int:
        """Its sequence number; 0 when its id was seen within the window of the duplicate check."""
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
        return self.last_seq


class Consumer:
    """Where one named reader of a stream stands. Several processes may share the name: each message goes to one of them.

    `open` are messages that were not acknowledged, with their deliveries so far.
    """

    def __init__(self, stream: SimStream, source: Source, event_queue: EventQueue, chance: Chance) -> None:
        self.source = source
        self.stream = stream
        self.open: dict[int, int] = {}
        self.readers: list[Reader] = []
        self._event_queue = event_queue
        self._chance = chance
        self._due_ms = 0
        self._unsent: dict[int, None] = {}

    def attach(self, reader: Reader) -> None:
        """It reads from now on. What was on its way to an earlier one comes again when its time is over."""
        self.readers.append(reader)
        self.resume()

    def detach(self, reader: Reader) -> None:
        """It is gone."""
        self.readers.remove(reader)

    def resume(self) -> None:
        """Send what could not be sent."""
        if all(reader.boot.link.is_cut for reader in self.readers):
            return
        unsent, self._unsent = sorted(self._unsent), {}
        for seq in unsent:
            self._send(seq)

    def context(self, seq: int, subject: str) -> None:
        """A message came to the stream."""
        if any(_fits(pattern, subject) for pattern in self.source.subjects):
            self.open[seq] = 0
            self._send(seq)

    def ack(self, seq: int) -> None:
        """Never again."""
        self.open.pop(seq, None)
        self._unsent.pop(seq, None)
        if self.stream.limits.work_queue:
            self.stream.messages.pop(seq, None)

    def again(self, seq: int) -> None:
        """Send it once more, unless it is done."""
        if seq in self.open and seq not in self._unsent:
            self._send(seq)

    def _send(self, seq: int) -> None:
        readers = [reader for reader in self.readers if not reader.boot.link.is_cut]
        if not readers:
            self._unsent[seq] = None
            return
        chance, event_queue = self._chance, self._event_queue
        reader = readers[0] if len(readers) == 1 else chance.rng.choice(readers)
        delay_ms = chance.way_ms()
        late_ms = chance.late_ms()
        if late_ms:
            delay_ms += late_ms
        else:
            # Without trouble a consumer gets its messages in their order.
            self._due_ms = max(self._due_ms, event_queue.now_ms + delay_ms)
            delay_ms = self._due_ms - event_queue.now_ms
        event_queue.after(delay_ms, self._arrive, seq, reader)
        event_queue.after(delay_ms + self.source.ack_wait_s * 1_000, self.again, seq)
        if chance.strikes("twice"):
            event_queue.after(delay_ms + chance.rng.randint(0, 2_000), self._arrive, seq, reader)

    def _arrive(self, seq: int, reader: Reader) -> None:
        message = self.stream.messages.get(seq)
        if message is None:
            self.open.pop(seq, None)
            return
        if reader not in self.readers or reader.boot.link.is_cut or seq not in self.open:
            return
        self.open[seq] += 1
        reader.bring(message, self.open[seq], self, seq)


class WorldBus:
    """Everything between processes. `stored` is called with every message that a stream newly keeps."""

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

    def publish(self, who: str, message: Outgoing) -> bool:
        """Whether the publisher knows that it is stored (telemetry: sent)."""
        if not message.durable:
            self._send_live(who, message)
            return True
        self._store(who, message)
        return not self.chance.strikes("publish_unsure")

    def _store(self, who: str, message: Outgoing) -> None:
        name = next(n for n, s in self.streams.items() if any(_fits(p, message.subject) for p in s.limits.subjects))
        seq = self.streams[name].append(message, self.event_queue.now_ms)
        if not seq:
            self._world_log.add(self.event_queue.now_ms, who, f"again     {message.msg_id}")
            return
        self.messages += 1
        self._world_log.add(self.event_queue.now_ms, who, f"publishes {message.msg_id}", message.data)
        self.stored(decode(message.subject, message.data), message.msg_id)
        for consumer in self._consumers[name]:
            consumer.context(seq, message.subject)

    def _send_live(self, who: str, message: Outgoing) -> None:
        self._world_log.add(self.event_queue.now_ms, who, f"says      {message.subject}", message.data)
        chance = self.chance
        for reader in self._live:
            if _fits(reader.source.subject, message.subject) and not chance.strikes("lost"):
                self.event_queue.after(chance.way_ms() + chance.late_ms(), self._arrive_live, reader, message)

    def _arrive_live(self, reader: Reader, message: Outgoing) -> None:
        if not reader.boot.is_over and not reader.boot.link.is_cut:
            reader.bring(message, 1, None, 0)

    # ------------------------------------------------------------ listening

    def attach(self, reader: Reader) -> None:
        """Deliver to the reader until its process is forgotten."""
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
            first = list(stream.messages)
        else:
            first = sorted(stream.newest.values()) if source.last_per_subject else []
        consumer.attach(reader)
        for seq in first:
            if seq in stream.messages:
                consumer.context(seq, stream.messages[seq].subject)

    def forget(self, boot: Boot) -> None:
        """The process is gone: its unnamed consumers end, the named ones wait for its successor."""
        self._live = [reader for reader in self._live if reader.boot is not boot]
        for consumers in self._consumers.values():
            for consumer in tuple(consumers):
                gone = [reader for reader in consumer.readers if reader.boot is boot]
                for reader in gone:
                    consumer.detach(reader)
                if gone and not consumer.source.durable:
                    consumers.remove(consumer)

    def resume(self, boot: Boot) -> None:
        """The process is no longer cut off."""
        for consumers in self._consumers.values():
            for consumer in consumers:
                if any(reader.boot is boot for reader in consumer.readers):
                    consumer.resume()

    def undelivered(self) -> Mapping[str, int]:
        """Messages of named consumers that are not acknowledged."""
        return {name: len(consumer.open) for name, consumer in sorted(self.durables.items()) if consumer.open}
