"""With how few consumers a service can hear all that it wants to: each of them costs the server state, files and timers."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from msgspec import structs

from colo_common.events.registry import EVENTS
from colo_common.model.invalid import InvalidInput
from colo_common.ports import Source
from colo_common.runtime.core import Subscription, given_of, source_of

__all__ = ["is_whole", "sources_of"]


def sources_of(service: str, subscriptions: Sequence[Subscription]) -> tuple[Source, ...]:
    """Where all hearings' messages come from.

    Of the hearings of one stream that begin alike and have the same parameters:

    - all there is below some subject is one source, its subject ends in ">";
    - otherwise concrete subjects share one source, and one with "*" is a source by itself: a server that filters by several
      subjects looks through all that fit for each message, and there are some for every node.

    Hearings share a source only if their messages may wait equally long.

    A shared durable consumer is named colo-<service>[-<node>]-<evt, cmd or node>, whatever it hears, the others as source_of
    does. What a later version adds to one is heard from where it stands. Raises InvalidInput as source_of does, and when two
    sources would be one durable consumer.
    """
    groups: dict[tuple[Any, ...], list[Subscription]] = {}
    for subscription in subscriptions:
        source = source_of(service, subscription)
        kind = bool(source.durable), source.last_per_subject, source.may_wait_ms
        groups.setdefault((source.stream or source.subject, *kind, *given_of(subscription)), []).append(subscription)
    sources = tuple(source for group in groups.values() for source in _shared(service, group))
    names = [source.durable for source in sources if source.durable]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInput("hearing.may_wait_ms", "must be equal where messages share a durable consumer", twice)
    return sources


def is_whole(source: Source) -> bool:
    """Whether the source also brings events that are not registered here: those of a later version."""
    return source.subject.endswith(".>")


def _shared(service: str, subscriptions: Sequence[Subscription]) -> list[Source]:
    """The sources of hearings that begin alike, in the order of the hearings."""
    sources = list(
        {
            source.subject: source for source in (source_of(service, subscription) for subscription in subscriptions)
        }.values()
    )
    first = sources[0]
    if not first.stream:
        return sources
    name = ""
    if first.durable:
        name = "-".join(["colo", service, *given_of(subscriptions[0]), first.stream.removeprefix("COLO_").lower()])
    whole = _whole(first.stream, [source.subject for source in sources], subscriptions[0].parameters)
    if whole:
        return [structs.replace(first, subject=whole, durable=name)]
    concrete = [source.subject for source in sources if "*" not in source.subject]
    found = [source for source in sources if "*" in source.subject]
    if concrete:
        found.append(structs.replace(first, subject=concrete[0], also=tuple(concrete[1:]), durable=name))
    return found


def _whole(stream: str, subjects: Sequence[str], parameters: Mapping[str, str]) -> str:
    """The pattern below which the stream has these subjects and no others; empty when there is none, or only one subject."""
    if len(subjects) < 2:
        return ""
    columns = zip(*(subject.split(".") for subject in subjects), strict=False)
    prefix = [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]
    for row in EVENTS:
        if row.stream is None or row.stream.value != stream:
            continue
        given = {name: value for name, value in parameters.items() if name in row.subject.parameters}
        subject = row.subject.wildcard(**given)
        pairs = zip(prefix, subject.split("."), strict=False)
        if subject not in subjects and all(one == other or "*" in (one, other) for one, other in pairs):
            return ""
    return ".".join([*prefix, ">"])
