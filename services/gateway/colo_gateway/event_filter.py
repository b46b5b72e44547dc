"""Which facts a reader of the event log gets."""

from msgspec import Struct
from msgspec.structs import replace

from colo_gateway.concern import concerning, kind_of
from colo_gateway.event_log import EventLogEntry

__all__ = ["EventFilter"]


class EventFilter(Struct, frozen=True, kw_only=True):
    """Which facts a reader gets: of these types, of these kinds, of this node and of this job. An empty field accepts every value.

    A fact that tells of several replicas or nodes is cut to those that are asked for.
    """

    types: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    node: str = ""
    job: str = ""

    def passed(self, entry: EventLogEntry) -> EventLogEntry | None:
        """The entry as the reader gets it, or None when it does not pass."""
        if self.types and entry.type not in self.types:
            return None
        if self.kinds and kind_of(entry.type) not in self.kinds:
            return None
        fact = concerning(entry.fact, node=self.node, job=self.job)
        if fact is None or fact is entry.fact:
            return None if fact is None else entry
        return replace(entry, fact=fact)
