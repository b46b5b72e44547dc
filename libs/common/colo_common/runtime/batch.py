"""One batch of a core: the effects of each event kept together, from the first handle to the parcel that leaves."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from colo_common.events.effects import Effect, Publish, Record, Reply, Write
from colo_common.events.wire import encode_reply
from colo_common.ports import Outgoing
from colo_common.runtime.stamp import Stamp, row_from_outgoing

__all__ = ["Decision", "decision_from_effects", "units_of"]


@dataclass(slots=True)
class Decision:
    """What one event led to: rows to record, own effects to perform, messages and replies to send."""

    records: list[tuple[Write, ...]] = field(default_factory=list)
    own: list[Effect] = field(default_factory=list)
    messages: list[Outgoing] = field(default_factory=list)
    replies: list[tuple[str, bytes]] = field(default_factory=list)
    outbox: Write | None = None


def decision_from_effects(effects: Sequence[Effect], stamp: Stamp) -> Decision:
    """Sort the effects by what is done with them; order within each kind is kept."""
    decision = Decision()
    for effect in effects:
        match effect:
            case Record():
                decision.records.append(effect.writes)
            case Publish():
                decision.messages.append(stamp.outgoing(effect))
            case Reply():
                decision.replies.append((effect.request, encode_reply(effect.body)))
            case Struct():
                decision.own.append(effect)
    return decision


def units_of(decision: Decision, outbox_kind: str, outbox_id: str) -> list[tuple[Write, ...]]:
    """The rows to record. Where the decision also says something, the last unit carries an outbox row with these messages.

    The state and what must be said about it are then durable together: a crash between the two loses neither.
    """
    if not decision.records:
        return []
    durable = [message for message in decision.messages if message.durable]
    if not durable:
        return decision.records
    decision.outbox = Write(kind=outbox_kind, id=outbox_id, value=row_from_outgoing(durable), expect=0)
    return [*decision.records[:-1], (*decision.records[-1], decision.outbox)]
