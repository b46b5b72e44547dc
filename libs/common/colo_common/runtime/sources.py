"""Joins the subscriptions of a service into few consumers, because each costs the server state, files and timers."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from msgspec import structs

from colo_common.events.registry import EVENTS
from colo_common.model.invalid import InvalidInput
from colo_common.ports import Source
from colo_common.runtime.core import Subscription, parameter_tokens, source_of

__all__ = ["is_catch_all", "sources_of"]


def sources_of(service: str, subscriptions: Sequence[Subscription]) -> tuple[Source, ...]:
    """The sources of all subscriptions of a service.

    Subscriptions share a source when they have the same stream, start, parameters and `may_wait_ms`:

    - when they cover every subject below a prefix, the source is that prefix with ">";
    - otherwise concrete subjects share one source, and a subject with "*" is a source by itself: a server that filters by several
      subjects goes through all matching ones for each message, and there are some for every node.

    A shared durable consumer is named colo-<service>[-<node>]-<evt, cmd or node>, whatever its subjects; others are named as by
    `source_of`. A type that a later version adds to a shared consumer is delivered from the consumer's present position. Raises
    InvalidInput as `source_of` does, and when two sources would have the same durable consumer.
    """
    groups: dict[tuple[Any, ...], list[Subscription]] = {}
    for subscription in subscriptions:
        source = source_of(service, subscription)
        kind = bool(source.durable), source.last_per_subject, source.since_s, source.since_most, source.may_wait_ms
        groups.setdefault((source.stream or source.subject, *kind, *parameter_tokens(subscription)), []).append(
            subscription
        )
    sources = tuple(source for group in groups.values() for source in _shared(service, group))
    names = [source.durable for source in sources if source.durable]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInput("subscription.may_wait_ms", "must be equal where messages share a durable consumer", twice)
    return sources


def is_catch_all(source: Source) -> bool:
    """Whether the source is a prefix with ">", which also delivers unregistered events of a later version."""
    return source.subject.endswith(".>")


def _shared(service: str, subscriptions: Sequence[Subscription]) -> list[Source]:
    """The sources of subscriptions with the same stream, start and parameters, in order of the subscriptions."""
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
        name = "-".join(
            ["colo", service, *parameter_tokens(subscriptions[0]), first.stream.removeprefix("COLO_").lower()]
        )
    catch_all = _catch_all_subject(first.stream, [source.subject for source in sources], subscriptions[0].parameters)
    if catch_all:
        return [structs.replace(first, subject=catch_all, durable=name)]
    concrete = [source.subject for source in sources if "*" not in source.subject]
    found = [source for source in sources if "*" in source.subject]
    if concrete:
        found.append(structs.replace(first, subject=concrete[0], also=tuple(concrete[1:]), durable=name))
    return found


def _catch_all_subject(stream: str, subjects: Sequence[str], parameters: Mapping[str, str]) -> str:
    """The prefix with ">" that covers these subjects of the stream and no others; empty when there is none, or only one subject."""
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
