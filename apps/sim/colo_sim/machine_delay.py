"""How much longer a request of online work takes than on an idle machine: the modelled delay, and what counts as harm.

MODELLED, not measured: the delay of a zone is the sum of three terms, each a share of the request's time on an idle machine.

- Shared cores: a busy sibling thread slows its neighbour by `smt_slowdown_permille`, and a sibling is busy as often as a CPU of
  the zone is. Two threads of a core do 16 to 28 % more than one in the work of servers (Marr and others, "Hyper-Threading
  Technology Architecture and Microarchitecture", Intel Technology Journal 6(1), 2002); at 25 % each runs at 0.625 of its speed.
- Waiting for other online work: the mean wait of M/M/c with the zone's CPUs as servers (Erlang C). Batch work has a lower weight
  and is not in this queue.
- Waking up: while no CPU is idle, `wakeup_wait_permille` (see `Interference`).

CPUs are taken as independent. Caches and memory bandwidth are left out. CPUs of LSE work are no part of a zone here: nobody else
gets them, so its use lengthens no wait of the others. What LSE work feels is not judged, nor a sibling thread of its CPUs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from colo_sim.machine_spec import Interference

__all__ = ["DELAY_MOST_PERMILLE", "DelayModel", "SharedZone", "delay_model"]

_PERMILLE: Final = 1_000
DELAY_MOST_PERMILLE: Final = 10_000
"""A longer delay counts as this one: ten times the time on an idle machine."""


class DelayModel(NamedTuple):
    """The delay of a zone in permille: `by_use[all use] + by_online_use[online use]`, both indexed by permille of the zone.

    `bound_permille` is the delay above which online work counts as hurt: that of a zone which online work alone fills to
    `harm_use_permille`.
    """

    by_use: tuple[int, ...]
    by_online_use: tuple[int, ...]
    busy: tuple[int, ...]
    bound_permille: int


class SharedZone(NamedTuple):
    """The CPUs of a zone that no LSE work has: `capacity_mcpu` of them (0: none), and the delay there. `lse_mcpu` is used of the
    others.
    """

    capacity_mcpu: int
    lse_mcpu: int
    model: DelayModel


@lru_cache(maxsize=256)
def delay_model(cpus: int, threads_per_core: int, limits: Interference) -> DelayModel:
    """The model of zones with this many CPUs. Every entry is rounded to the nearest permille."""
    busy = tuple(round((used / _PERMILLE) ** cpus * _PERMILLE) for used in range(_PERMILLE + 1))
    smt = limits.smt_slowdown_permille if threads_per_core > 1 else 0
    by_use = tuple(
        round((smt * used + limits.wakeup_wait_permille * busy[used]) / _PERMILLE) for used in range(_PERMILLE + 1)
    )
    by_online_use = tuple(_queue_permille(cpus, used / _PERMILLE) for used in range(_PERMILLE + 1))
    at = limits.harm_use_permille
    return DelayModel(by_use, by_online_use, busy, by_use[at] + by_online_use[at])


def _queue_permille(servers: int, use: float) -> int:
    """The mean wait of M/M/c in permille of the mean service time: C(c, a) / (c (1 - use)), at most the longest delay."""
    if use >= 1:
        return DELAY_MOST_PERMILLE
    offered = servers * use
    blocked = 1.0  # Erlang B by its recurrence, from which Erlang C follows
    for server in range(1, servers + 1):
        blocked = offered * blocked / (server + offered * blocked)
    waits = blocked / (1 - use * (1 - blocked))
    return min(round(waits / (servers * (1 - use)) * _PERMILLE), DELAY_MOST_PERMILLE)
