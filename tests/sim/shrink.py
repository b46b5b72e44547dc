"""Makes a broken world smaller while it breaks alike: fewer nodes, jobs and faults, fewer network faults, less time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from colo_sim.faults import NO_NETWORK_FAULTS
from colo_sim.world import WorldSettings
from tests.sim.lives import Life

Live = Callable[[WorldSettings], Life]

_LEAST = {
    "nodes": 1,
    "jobs": 1,
    "online_jobs": 0,
    "spikes": 0,
    "restrictions": 0,
    "skew_most_ms": 0,
    "other_versions": 0,
}


def shrunk(life: Life, live: Live, lives_most: int) -> Life:
    """The smallest world found that breaks with the same message, after at most `lives_most` more lives."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for settings in _smaller(life.settings):
            if lives_most <= 0:
                return life
            lives_most -= 1
            found = live(settings)
            if found.kind == life.kind:
                life, is_smaller = found, True
                break
    return life


def _smaller(settings: WorldSettings) -> Iterator[WorldSettings]:
    """One step smaller in each way that there is, what shortens a history most first."""
    faults = settings.faults
    half = len(faults.weights) // 2
    if half:
        for weights in (faults.weights[:half], faults.weights[half:]):
            yield replace(settings, faults=replace(faults, weights=weights))
    elif faults.weights:
        yield replace(settings, faults=replace(faults, weights=()))
    if faults.network_faults != NO_NETWORK_FAULTS:
        yield replace(settings, faults=replace(faults, network_faults=NO_NETWORK_FAULTS))
        for name in faults.network_faults.__struct_fields__:
            if getattr(faults.network_faults, name) and not name.endswith("_ms"):
                yield replace(settings, faults=replace(faults, network_faults=_with(faults.network_faults, name, 0)))
    for name, least in _LEAST.items():
        now = getattr(settings, name)
        if now > least:
            yield _with(settings, name, max(now // 2, least))
    if settings.schedulers > 1:
        yield replace(settings, schedulers=1, shards=0)
    if settings.job_sharers > 1:
        yield replace(settings, job_sharers=1, job_partitions=0)
    if settings.sharers > 1:
        yield replace(settings, sharers=1, partitions=0)
    if settings.jobs_within_ms > 20_000:
        yield replace(
            settings,
            jobs_within_ms=settings.jobs_within_ms // 2,
            faults=replace(faults, quiet_after_ms=faults.quiet_after_ms // 2),
        )


def _with(part: Any, name: str, value: int) -> Any:
    made: Struct = replace(part, **{name: value})
    return made
