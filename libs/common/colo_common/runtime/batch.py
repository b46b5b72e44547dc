"""One batch of a core: the effects of each event kept together, from the first handle to the parcel that leaves."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from colo_common.events.effects import Effect, Publish, Record, Reply, Write
from colo_common.events.requests import Refusal
from colo_common.events.wire import encode_reply
from colo_common.ports import Outgoing
from colo_common.runtime.stamp import Stamp, row_from_outgoing

__all__ = ["DecisionEffects", "decision_from_effects", "parts_of", "units_of"]


@dataclass(slots=True)
class DecisionEffects:
    """What one event led to: rows to record, own effects to perform, messages and replies to send.

    `said_before` counts, for each record, the messages that came before it. `outbox` are the outbox rows of its units.
    """

    records: list[tuple[Write, ...]] = field(default_factory=list)
    said_before: list[int] = field(default_factory=list)
    own: list[Effect] = field(default_factory=list)
    messages: list[Outgoing] = field(default_factory=list)
    replies: list[tuple[str, bytes]] = field(default_factory=list)
    refusals: int = 0
    outbox: list[Write] = field(default_factory=list)


def decision_from_effects(effects: Sequence[Effect], stamp: Stamp) -> DecisionEffects:
    """Sort the effects by what is done with them; order within each kind is kept."""
    records: list[tuple[Write, ...]] = []
    said_before: list[int] = []
    own: list[Effect] = []
    messages: list[Outgoing] = []
    replies: list[tuple[str, bytes]] = []
    refusals = 0
    for effect in effects:
        match effect:
            case Publish():
                messages.append(stamp.outgoing(effect))
            case Record():
                records.append(effect.writes)
                said_before.append(len(messages))
            case Reply():
                replies.append((effect.request, encode_reply(effect.body)))
                refusals += isinstance(effect.body, Refusal)
            case Struct():
                own.append(effect)
    return DecisionEffects(records, said_before, own, messages, replies, refusals)


def parts_of(effects: Sequence[Effect]) -> list[Sequence[Effect]]:
    """The effects cut before each Record but the first: what stands or falls alone when a store refuses a row.

    What comes before the first Record goes with it; what follows one, up to the next, was said because of it.
    """
    if len(effects) == 1:
        return [effects]
    at = [number for number, effect in enumerate(effects) if isinstance(effect, Record)][1:]
    if not at:
        return [effects]
    return [effects[begin:end] for begin, end in zip([0, *at], [*at, len(effects)], strict=True)]


def units_of(decision: DecisionEffects, outbox_kind: str, outbox_id: str) -> list[tuple[Write, ...]]:
    """The rows to record. A record that is followed by messages carries them in an outbox row; the first also those before it.

    The state and what must be said about it are then durable together: a crash after any unit loses neither.
    """
    if not decision.records:
        return []
    units: list[tuple[Write, ...]] = []
    ends = [*decision.said_before[1:], len(decision.messages)]
    begin = 0
    for number, (writes, end) in enumerate(zip(decision.records, ends, strict=True)):
        durable = [message for message in decision.messages[begin:end] if message.durable]
        begin = end
        if durable:
            id_ = f"{outbox_id}-{number:06d}" if number else outbox_id
            row = Write(kind=outbox_kind, id=id_, value=row_from_outgoing(durable), expect=0)
            decision.outbox.append(row)
            writes = (*writes, row)
        units.append(writes)
    return units
