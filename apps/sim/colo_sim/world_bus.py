"""The bus of a simulated world: lossy telemetry, streams that deliver at least once, questions that may stay without answer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import lru_cache
from random import Random
from typing import Final, Protocol

from colo_common.adapters.stream_memory import matches
from colo_common.events.fact import Fact
from colo_common.events.registry import STREAMS
from colo_common.events.wire import decode
from colo_common.ports import Outgoing, Source
from colo_sim.event_queue import EventQueue
from colo_sim.faults import CALM, NetworkFaults
from colo_sim.world_log import WorldLog

__all__ = ["Consumer", "Endpoint", "Kept", "WorldBus"]

_fits: Final = lru_cache(maxsize=100_000)(matches)
_WAY_MS: Final = (1, 4)


class Kept:
    """A message of a stream, decoded once: every reader gets the same immutable fact."""

    __slots__ = ("fact", "id", "seq", "subject")

    def __init__(self, seq: int, message: Outgoing) -> None:
        self.seq = seq
        self.subject = message.subject
        self.id = message.msg_id
        self.fact = decode(message.subject, message.data)


class Endpoint(Protocol):
    """A process as the bus sees it."""

    key: str
    is_up: bool
    is_cut: bool

    def hear(self, fact: Fact, consumer: Consumer | None, seq: int, deliveries: int) -> None: ...


class SimStream:
    """Messages in order of arrival within the limits of the registry."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.limits = next(limits for stream, limits in STREAMS.items() if stream.value == name)
        self.messages: dict[int, Kept] = {}
        self.last_seq = 0
        self.newest: dict[str, int] = {}
        self._ids: OrderedDict[str, int] = OrderedDict()

    def append(self, message: Outgoing, now_ms: int) -> Kept | None:
        """Keep it; None when its id was seen within the window of the duplicate check."""
        while self._ids and next(iter(self._ids.values())) <= now_ms:
            self._ids.popitem(last=False)
        if message.msg_id:
            if message.msg_id in self._ids:
                return None
            self._ids[message.msg_id] = now_ms + self.limits.duplicate_window_s * 1_000
        self.last_seq += 1
        kept = self.messages[self.last_seq] = Kept(self.last_seq, message)
        if self.limits.max_msgs_per_subject == 1:
            self.messages.pop(self.newest.get(message.subject, 0), None)
        self.newest[message.subject] = kept.seq
        return kept


class Consumer:
    """Where one reader of a stream stands, who may be several processes of which one gets each message, whichever.

    `open` are messages that were not acknowledged, with their deliveries so far.
    """

    def __init__(self, bus: WorldBus, stream: SimStream, source: Source) -> None:
        self.source = source
        self.stream = stream
        self.open: dict[int, int] = {}
        self.endpoints: list[Endpoint] = []
        self._bus = bus
        self._epochs: dict[str, int] = {}
        self._due_ms = 0
        self._unsent: dict[int, None] = {}

    def attach(self, endpoint: Endpoint) -> None:
        """A process reads from now on. What was on its way to an earlier one comes again when its time is over."""
        if endpoint not in self.endpoints:
            self.endpoints.append(endpoint)
        self._epochs[endpoint.key] = self._epochs.get(endpoint.key, 0) + 1
        self.resume()

    def detach(self, endpoint: Endpoint) -> None:
        """The process is gone."""
        self.endpoints.remove(endpoint)
        self._epochs[endpoint.key] += 1

    def resume(self) -> None:
        """Send what could not be sent."""
        if all(endpoint.is_cut for endpoint in self.endpoints):
            return
        unsent, self._unsent = sorted(self._unsent), {}
        for seq in unsent:
            self._send(seq)

    def context(self, seq: int, subject: str) -> None:
        """A message came to the stream."""
        if _fits(self.source.subject, subject):
            self.open[seq] = 0
            self._send(seq)

    def ack(self, seq: int) -> None:
        """Never again."""
        self.open.pop(seq, None)
        self._unsent.pop(seq, None)
        if self.stream.limits.work_queue:
            self.stream.messages.pop(seq, None)

    def _send(self, seq: int) -> None:
        heard = [endpoint for endpoint in self.endpoints if not endpoint.is_cut]
        if not heard:
            self._unsent[seq] = None
            return
        bus, event_queue = self._bus, self._bus.event_queue
        endpoint = heard[0] if len(heard) == 1 else bus.rng.choice(heard)
        epoch = self._epochs[endpoint.key]
        delay_ms = bus.way_ms()
        if bus.strikes(bus.network_faults.late):
            delay_ms += bus.rng.randint(1, bus.network_faults.late_most_ms)
        else:
            # Without trouble a consumer gets its messages in their order.
            self._due_ms = max(self._due_ms, event_queue.now_ms + delay_ms)
            delay_ms = self._due_ms - event_queue.now_ms
        event_queue.after(delay_ms, self._arrive, seq, endpoint, epoch)
        event_queue.after(delay_ms + self.source.ack_wait_s * 1_000, self._again, seq)
        if bus.strikes(bus.network_faults.twice):
            event_queue.after(delay_ms + bus.rng.randint(0, 2_000), self._arrive, seq, endpoint, epoch)

    def _arrive(self, seq: int, endpoint: Endpoint, epoch: int) -> None:
        kept = self.stream.messages.get(seq)
        if kept is None:
            self.open.pop(seq, None)
            return
        if epoch != self._epochs[endpoint.key] or endpoint.is_cut or seq not in self.open:
            return
        self.open[seq] += 1
        endpoint.hear(kept.fact, self, seq, self.open[seq])

    def _again(self, seq: int) -> None:
        if seq in self.open and seq not in self._unsent:
            self._send(seq)


class WorldBus:
    """Everything between processes. `stored` is called with every message that a stream newly keeps."""

    def __init__(self, event_queue: EventQueue, rng: Random, world_log: WorldLog) -> None:
        self.event_queue = event_queue
        self.rng = rng
        self.network_faults: NetworkFaults = CALM
        self.streams = {stream.value: SimStream(stream.value) for stream in STREAMS}
        self.durables: dict[str, Consumer] = {}
        self.stored: Callable[[Fact, str], None] = lambda _fact, _id: None
        self.messages = 0
        self.deliveries = 0
        self._world_log = world_log
        self._consumers: dict[str, list[Consumer]] = {name: [] for name in self.streams}
        self._live: list[tuple[str, Endpoint]] = []

    # ------------------------------------------------------------ chance

    def strikes(self, permille: int) -> bool:
        """Whether something of this chance happens now."""
        return permille > 0 and self.rng.random() * 1_000 < permille

    def way_ms(self) -> int:
        """How long one message takes when nothing is wrong."""
        return self.rng.randint(*_WAY_MS)

    # ------------------------------------------------------------ publishing

    def publish(self, endpoint: Endpoint, message: Outgoing) -> bool:
        """Whether the publisher knows that it is stored (telemetry: sent)."""
        if endpoint.is_cut:
            return False
        if not message.durable:
            self._send_live(endpoint.key, message)
            return True
        self._store(endpoint.key, message)
        return not self.strikes(self.network_faults.publish_unsure)

    def _store(self, who: str, message: Outgoing) -> None:
        name = next(n for n, s in self.streams.items() if any(_fits(p, message.subject) for p in s.limits.subjects))
        kept = self.streams[name].append(message, self.event_queue.now_ms)
        if kept is None:
            self._world_log.add(self.event_queue.now_ms, who, f"again     {message.msg_id}")
            return
        self.messages += 1
        self._world_log.add(self.event_queue.now_ms, who, f"publishes {message.msg_id}", message.data)
        self.stored(kept.fact, kept.id)
        for consumer in self._consumers[name]:
            consumer.context(kept.seq, kept.subject)

    def _send_live(self, who: str, message: Outgoing) -> None:
        fact = None
        self._world_log.add(self.event_queue.now_ms, who, f"says      {message.subject}", message.data)
        for pattern, endpoint in self._live:
            if not _fits(pattern, message.subject) or self.strikes(self.network_faults.lost):
                continue
            fact = decode(message.subject, message.data) if fact is None else fact
            delay_ms = self.way_ms()
            if self.strikes(self.network_faults.late):
                delay_ms += self.rng.randint(1, self.network_faults.late_most_ms)
            self.event_queue.after(delay_ms, self._arrive_live, endpoint, fact)

    def _arrive_live(self, endpoint: Endpoint, fact: Fact) -> None:
        if endpoint.is_up and not endpoint.is_cut:
            self.deliveries += 1
            endpoint.hear(fact, None, 0, 1)

    # ------------------------------------------------------------ listening

    def listen(self, endpoint: Endpoint, source: Source) -> None:
        """Deliver to the endpoint until it is forgotten."""
        if not source.stream:
            self._live.append((source.subject, endpoint))
            return
        stream = self.streams[source.stream]
        consumer = self.durables.get(source.durable)
        if consumer is None:
            consumer = Consumer(self, stream, source)
            self._consumers[source.stream].append(consumer)
            if source.durable:
                self.durables[source.durable] = consumer
                first = list(stream.messages)
            else:
                first = sorted(stream.newest.values()) if source.last_per_subject else []
            consumer.attach(endpoint)
            for seq in first:
                if seq in stream.messages:
                    consumer.context(seq, stream.messages[seq].subject)
            return
        consumer.attach(endpoint)

    def forget(self, endpoint: Endpoint) -> None:
        """The process is gone: its unnamed consumers end, the named ones wait for its successor."""
        self._live = [entry for entry in self._live if entry[1] is not endpoint]
        for consumers in self._consumers.values():
            for consumer in [one for one in consumers if endpoint in one.endpoints]:
                consumer.detach(endpoint)
                if not consumer.source.durable:
                    consumers.remove(consumer)

    def resume(self, endpoint: Endpoint) -> None:
        """The process is no longer cut off."""
        for consumers in self._consumers.values():
            for consumer in consumers:
                if endpoint in consumer.endpoints:
                    consumer.resume()

    def acknowledge(self, endpoint: Endpoint, consumer: Consumer, seq: int) -> None:
        """The process is done with a message; the word of it may get lost."""
        if endpoint in consumer.endpoints and not endpoint.is_cut and not self.strikes(self.network_faults.ack_lost):
            consumer.ack(seq)

    def undelivered(self) -> Mapping[str, int]:
        """Messages of named consumers that are not acknowledged."""
        return {name: len(consumer.open) for name, consumer in sorted(self.durables.items()) if consumer.open}
