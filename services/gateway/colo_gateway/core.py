"""The gateway core: keeps the newest facts and spans for the HTTP API. It decides nothing."""

from collections import Counter
from typing import TypeVar

from msgspec import Struct

from colo_common.events.audit import RequestAudited
from colo_common.events.effects import Effect, Publish, Wake
from colo_common.events.enforcement import DriftCorrected, EnforcementChanged, NodeRecovered, OwnCpusOpened
from colo_common.events.fact import Fact
from colo_common.events.node import NodeUsageSampled
from colo_common.events.registry import Stream, event_of, subject_of
from colo_common.events.restriction import RestrictionsChanged
from colo_common.events.service import SpansFinished
from colo_common.model.audit import Audit
from colo_common.model.restriction import Restrictions
from colo_common.ports import Advisory
from colo_gateway.event_log import EventLog, EventLogEntry
from colo_gateway.evictions import Evictions
from colo_gateway.harm import Harm
from colo_gateway.recent import Recent
from colo_gateway.traces import Traces

__all__ = ["Audited", "Event", "GatewayCore", "Shown"]

_F = TypeVar("_F", bound=Fact)
# About 1 ms.
_CHECKED_AT_ONCE = 10_000
_NODES_MOST = 50_000
_LATE_MS = 60_000
_OPEN_CPUS_KEPT_MS = 7_200_000
#: The streams of which the gateway reads at its start what happened before; their facts are the history.
_READ_AGAIN = (Stream.EVT, Stream.RUN)


class Shown(Struct, frozen=True, kw_only=True):
    """Effect: offer this entry to the open event streams."""

    entry: EventLogEntry


class Audited(Struct, frozen=True, kw_only=True):
    """Event: this request is to be told on the bus."""

    fact: RequestAudited


class Advised(Struct, frozen=True, kw_only=True):
    """Event: the bus said something by itself."""

    advisory: Advisory


Event = Fact | Wake | Audited | Advised


class GatewayCore:
    """Keeps the event log, the traces, the newest evictions, the restrictions in force, recent counts, and of each node the newest
    ceiling, what would be written there and is not, and which own CPUs are open to others.
    """

    def __init__(self, *, event_log_size: int, trace_size: int, start: int = 0) -> None:
        """`start`: the position in the event log before the first fact."""
        self.event_log = EventLog(event_log_size, start)
        self.traces = Traces(trace_size)
        self.evictions = Evictions()
        self.harm = Harm()
        self._audit = Audit(self.event_log.pieces, _CHECKED_AT_ONCE)
        self.recent = Recent()
        self.ceilings: dict[str, EnforcementChanged] = {}
        self.withheld: dict[str, DriftCorrected] = {}
        self.open_cpus: dict[str, OwnCpusOpened] = {}
        self.received: Counter[str] = Counter()
        self.restrictions = Restrictions()
        self._since_ms: int | None = None
        self._read_from: set[Stream] = set()

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event. Spans go to the traces, every other fact goes to the event log and to the open streams."""
        if isinstance(event, Wake):
            self.restrictions.expire(now_ms)
            return []
        if isinstance(event, Audited):
            # It comes back from the bus, as it does to the other gateways, and is kept then.
            return [Publish(fact=event.fact, id=f"gateway:audit:{event.fact.request}:{event.fact.at_ms}")]
        if isinstance(event, Advised):
            self.recent.advised(event.advisory, now_ms)
            return []
        if isinstance(event, NodeUsageSampled):
            # Samples come too often for the event log: they would push all other facts out.
            self.harm.sampled(event)
            return []
        if isinstance(event, RestrictionsChanged):
            self.restrictions.take(event.revision, event.restrictions, now_ms)
        at_ms = self._arrived(event, now_ms)
        self.recent.add(event, at_ms)
        if isinstance(event, EnforcementChanged):
            self.harm.shrunk(event, self.ceilings.get(event.node))
            _keep(self.ceilings, event.node, event)
        elif isinstance(event, DriftCorrected | NodeRecovered):
            self.withheld.pop(event.node, None)
            if isinstance(event, NodeRecovered):
                self.open_cpus.pop(event.node, None)
            if isinstance(event, DriftCorrected) and event.observed and event.count:
                _keep(self.withheld, event.node, event)
        elif isinstance(event, OwnCpusOpened):
            _keep(self.open_cpus, event.node, event)
        name = type(event).__name__
        self.received[name] += 1
        if isinstance(event, SpansFinished):
            self.traces.keep(event.spans)
            return []
        self.evictions.note(event)
        return [Shown(entry=self.event_log.append(name, subject_of(event), event, at_ms))]

    def open_cpus_at(self, now_ms: int) -> dict[str, OwnCpusOpened]:
        """By node, on which own CPUs others may run, as executors said in the last two hours: they repeat it each hour."""
        return {
            node: fact
            for node, fact in self.open_cpus.items()
            if fact.cpus and now_ms - fact.at_ms <= _OPEN_CPUS_KEPT_MS
        }

    def _arrived(self, fact: Fact, now_ms: int) -> int:
        """When the fact arrived: now, or when it happened, if that is more than a minute ago and its stream is read from then on.

        Below a minute it may be the clock of its sender that is wrong.
        """
        stream = event_of(type(fact)).stream
        is_read_again = stream in _READ_AGAIN and 0 < fact.at_ms < now_ms - _LATE_MS
        at_ms = fact.at_ms if is_read_again else now_ms
        if self._since_ms is None:
            self._since_ms = now_ms
        if stream in _READ_AGAIN and stream not in self._read_from:
            self._read_from.add(stream)
            self.event_log.begins(stream, at_ms if is_read_again else self._since_ms)
            if stream is Stream.EVT and is_read_again:
                self.recent.begins(at_ms)
        return at_ms

    def deadline_ms(self) -> int | None:
        """When the next restriction is over by itself."""
        return self.restrictions.deadline_ms()

    def check(self) -> None:
        """Raise InvariantBroken when the event log is out of order. Each call checks a part of a long log, all parts in turn."""
        self._audit.check(len(self.event_log))


def _keep(newest: dict[str, _F], node: str, fact: _F) -> None:
    """Keep the newest fact of a node, for the most recently changed nodes."""
    newest.pop(node, None)
    newest[node] = fact
    if len(newest) > _NODES_MOST:
        del newest[next(iter(newest))]
