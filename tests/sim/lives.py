"""One world from its settings to what came of it, so that other processes can live it and report it."""

from __future__ import annotations

import time
from io import StringIO

from msgspec import Struct

from colo_common.model.invalid import InvariantBroken
from colo_common.runtime import logs
from colo_sim.wire_filter import WireFilter
from colo_sim.world import Outcome, World, WorldSettings
from tests.sim.bounds import broken_bound
from tests.sim.drawn import settings_from
from tests.support.newer_wire import NewerWire
from tests.support.older_wire import OlderWire

LINES_KEPT = 200


def versions(settings: WorldSettings) -> tuple[WireFilter, ...]:
    """The other versions of a world: the first one of the wire, and one that knows more than this one.

    The first one does not know that the jobs may be divided: the number of partitions is raised when it runs nowhere any more.
    """
    return (NewerWire(),) if settings.job_partitions else (OlderWire(), NewerWire())


class Life(Struct, frozen=True, kw_only=True):
    """What came of a world. `broken` is empty, or the sentence that says what broke at `at_ms`; `lines`: the last."""

    settings: WorldSettings
    outcome: Outcome
    took_s: float
    broken: str = ""
    kind: str = ""
    at_ms: int = 0
    lines: tuple[str, ...] = ()


def lived(settings: WorldSettings) -> Life:
    """A world lived to its end. Whatever its code raises and a broken bound count as broken; `kind` is that without its details."""
    # `broken` reports a crash of a service, so the service's own log line is dropped.
    logs.configure("error", stream=StringIO())
    started_s = time.process_time()
    world = World(settings, versions=versions(settings))
    broken = kind = ""
    try:
        outcome = world.run()
        broken = broken_bound(settings, outcome)
        kind = broken.partition(":")[0]
    except InvariantBroken as error:
        broken, kind = str(error), error.message
    except Exception as error:
        broken, kind = f"{type(error).__name__}: {error}", type(error).__name__
    return Life(
        settings=settings,
        outcome=world.outcome(),
        took_s=time.process_time() - started_s,
        broken=broken,
        kind=kind,
        at_ms=world.elapsed_ms,
        lines=tuple(world.world_log.last(LINES_KEPT)) if broken else (),
    )


def life_of(seed: int) -> Life:
    """What comes of the world of a seed, its settings drawn from the seed too."""
    return lived(settings_from(seed))
