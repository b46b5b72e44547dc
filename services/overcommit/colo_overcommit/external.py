"""What systems outside say that a node has for batch work: checks what they say, and bounds the zones' numbers by it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from colo_common.events.effects import Publish
from colo_common.events.external import (
    TTL_MOST_MS,
    ClearExternalCapacity,
    ExternalCapacity,
    ExternalCapacityChanged,
    NodeExternal,
    SetExternalCapacity,
)
from colo_common.events.requests import Refusal
from colo_common.model.invalid import InvalidInput
from colo_common.model.restriction import BY_MOST
from colo_overcommit.allocatable import Limit, Resource, ZoneInputs
from colo_overcommit.known_node import KnownNode

__all__ = ["bounds_with", "entry_of", "external_again", "unexpired", "with_external"]

SOURCES_MOST: Final = 8
TTL_LEAST_MS: Final = 1_000
_NUMBER_MOST: Final = 1 << 40
_BYTES_MOST: Final = 1 << 60
_SOURCE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)


def entry_of(asked: SetExternalCapacity, now_ms: int) -> ExternalCapacity:
    """What the source says from now on. Raises InvalidInput for a value out of its range."""
    if not _SOURCE.fullmatch(asked.source):
        rule = "must be 1 to 63 letters, digits and _ . -, beginning and ending with a letter or digit"
        raise InvalidInput("source", rule, asked.source[:80])
    if not TTL_LEAST_MS <= asked.ttl_ms <= TTL_MOST_MS:
        raise InvalidInput("for", "must be from 1s to 24h", f"{asked.ttl_ms} ms")
    if asked.cpu_mcpu is None and asked.memory_bytes is None:
        raise InvalidInput("cpu", "cpu or memory must be given, or both", None)
    for field, value, most in (("cpu", asked.cpu_mcpu, _NUMBER_MOST), ("memory", asked.memory_bytes, _BYTES_MOST)):
        if value is not None and not 0 <= value <= most:
            raise InvalidInput(field, "must not be negative, nor more than any machine has", value)
    if len(asked.by) > BY_MOST:
        raise InvalidInput("by", f"must have at most {BY_MOST} characters", asked.by[:40])
    return ExternalCapacity(
        source=asked.source,
        until_ms=now_ms + asked.ttl_ms,
        cpu_mcpu=asked.cpu_mcpu,
        memory_bytes=asked.memory_bytes,
        by=asked.by,
    )


def bounds_with(
    asked: SetExternalCapacity | ClearExternalCapacity, entries: Iterable[ExternalCapacity], now_ms: int
) -> NodeExternal | Refusal:
    """What sources say of the node after this request, beside the `entries` that they said before."""
    before = unexpired(entries, now_ms)
    after = {each.source: each for each in before if each.source != asked.source}
    if isinstance(asked, SetExternalCapacity):
        try:
            after[asked.source] = entry_of(asked, now_ms)
        except InvalidInput as error:
            return Refusal(code=400, field=error.field, rule=error.rule, got=error.value)
        if len(after) > SOURCES_MOST:
            rule = f"at most {SOURCES_MOST} may bound a node at once"
            return Refusal(code=409, field="source", rule=rule, got=asked.source)
    found = unexpired(after.values(), now_ms)
    return NodeExternal(node=asked.node, now_ms=now_ms, entries=found, changed=found != before)


def unexpired(entries: Iterable[ExternalCapacity], now_ms: int) -> tuple[ExternalCapacity, ...]:
    """Those that still count, by the names of their sources."""
    return tuple(sorted((each for each in entries if each.until_ms > now_ms), key=lambda each: each.source))


def with_external(inputs: tuple[ZoneInputs, ...], entries: Sequence[ExternalCapacity]) -> tuple[ZoneInputs, ...]:
    """The terms, bounded by what the entries say of the node. A zone's part of the bound is proportional to its own number, rounded
    down, so that the sum of the zones is the minimum of the bound and of the number without it, or up to a unit a zone less.
    """
    cpu = _least(entries, "cpu_mcpu")
    memory = _least(entries, "memory_bytes")
    if cpu is None and memory is None:
        return inputs
    cpus = _bounded([zone.cpu for zone in inputs], cpu)
    memories = _bounded([zone.memory for zone in inputs], memory)
    sources = ", ".join(each.source for each in entries)
    return tuple(
        replace(zone, cpu=cpus[index], memory=memories[index], external_by=sources) if _is_open(zone) else zone
        for index, zone in enumerate(inputs)
    )


def _is_open(zone: ZoneInputs) -> bool:
    """Where nothing more is promised a bound would explain nothing."""
    return zone.limit == Limit.POLICY


def _least(entries: Iterable[ExternalCapacity], field: str) -> int | None:
    return min((value for each in entries if (value := getattr(each, field)) is not None), default=None)


def _bounded(resources: Sequence[Resource], most: int | None) -> list[Resource]:
    if most is None:
        return list(resources)
    weights = [max(each.raw, 0) for each in resources]
    total = sum(weights)
    return [
        replace(each, external=most * weight // total if total else most // len(resources))
        for each, weight in zip(resources, weights, strict=True)
    ]


def external_again(nodes: Mapping[str, KnownNode], now_ms: int) -> list[Publish]:
    """What counts for each of these nodes, for a bus that lost it."""
    return [
        Publish(
            fact=ExternalCapacityChanged(at_ms=max(now_ms, known.external_at_ms), node=node, entries=known.external)
        )
        for node, known in nodes.items()
        if known.external
    ]
