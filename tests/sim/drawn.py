"""Draws the settings of a world from its seed: its size, its instances, its network faults, its kinds of faults, and what is lost.

The kinds are drawn too, because a world with all kinds of faults rarely gets far with any: leaving kinds out reaches states that
all of them together hide (Groce and others, "Swarm Testing", 2012).
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from colo_sim.faults import FORGETFUL, FORGETFUL_STREAMS, HARSH, ROUGH_NETWORK, TEARING, FaultPlan, NetworkFaults
from colo_sim.world import WorldSettings

SECOND_MS = 1_000


def settings_from(seed: int) -> WorldSettings:
    """Equal for equal seeds, on every machine. Worlds are small: many short histories find more than few long ones."""
    rng = Random(f"settings of world {seed}")
    schedulers = rng.choice((1, 1, 2, 3))
    within_ms = rng.choice((60, 90, 120)) * SECOND_MS
    settings = WorldSettings(
        seed=seed,
        nodes=rng.choice((2, 3, 3, 4, 6)),
        jobs=rng.randint(2, 14),
        online_jobs=rng.choice((0, 0, 3, 8)),
        schedulers=schedulers,
        shards=0 if schedulers == 1 else rng.choice((3, 4, 8)),
        jobs_within_ms=within_ms,
        sample_ms=rng.choice((500, 1_000, 2_000)),
        reflex_ms=rng.choice((200, 500, 1_000)),
        skew_most_ms=rng.choice((0, 500, 5_000)),
        spikes=rng.randint(0, 4),
        faults=_faults(rng, within_ms + rng.choice((20, 60)) * SECOND_MS),
        # Drawn late, as what follows: what came before it is as it was.
        restrictions=rng.choice((0, 0, 2, 6)),
    )
    sharers = rng.choice((1, 1, 1, 2, 3))
    forgetting = rng.choice((None, None, None, None, TEARING, FORGETFUL, FORGETFUL_STREAMS))
    drawn = replace(
        settings,
        sharers=sharers,
        partitions=0 if sharers == 1 else rng.choice((2, 4)),
        faults=settings.faults if forgetting is None else _forgetting(settings.faults, forgetting),
        jobs_within_ms=within_ms if forgetting in (None, TEARING) else min(within_ms, 60 * SECOND_MS),
        other_versions=0 if forgetting is FORGETFUL_STREAMS else rng.choice((0, 0, 0, 2, 5, 9)),
    )
    # With other versions too: lives.versions leaves out the one that does not know that the jobs may be divided.
    if rng.choice((True, True, True, False)):
        return drawn
    return replace(drawn, job_sharers=2, job_partitions=rng.choice((2, 3)))


def _forgetting(faults: FaultPlan, plan: FaultPlan) -> FaultPlan:
    """The plan of what is lost: entries of journals beside other faults; rows and holds, or messages, by themselves."""
    if plan is TEARING:
        return replace(faults, weights=(*faults.weights, *(one for one in TEARING.weights if one not in HARSH.weights)))
    return replace(plan, network_faults=faults.network_faults)


def _faults(rng: Random, quiet_after_ms: int) -> FaultPlan:
    weights = tuple((kind, weight) for kind, weight in HARSH.weights if rng.randrange(4))
    return FaultPlan(
        network_faults=_network_faults(rng),
        quiet_after_ms=quiet_after_ms,
        every_ms=rng.choice(((500, 4_000), (2_000, 8_000), (2_000, 14_000), (10_000, 40_000))),
        down_most_ms=rng.choice((500, 6_000, 20_000)),
        away_most_ms=rng.choice((3_000, 15_000)),
        long_permille=rng.choice((0, 150)),
        weights=weights,
    )


def _network_faults(rng: Random) -> NetworkFaults:
    """Network faults with each rate of ROUGH_NETWORK taken once, three times, or not at all."""
    return NetworkFaults(
        late_most_ms=rng.choice((500, 5_000)),
        pause_most_ms=rng.choice((40, 400)),
        **{
            name: getattr(ROUGH_NETWORK, name) * rng.choice((0, 1, 1, 3))
            for name in ("lost", "twice", "late", "ack_lost", "publish_unsure", "ledger_unsure", "pause")
        },
    )
