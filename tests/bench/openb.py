"""Requests as a real cluster of machine-learning jobs has them, and machines as most of its are.

From the public openb trace (cluster-trace-gpu-v2023, 8,152 pods on 1,523 nodes): each pair of CPU and memory that was asked for,
with how often. A pod that asks for no memory is given one MiB.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from colo_common.events.job import PlacementRequest
from colo_common.model.workload import ResourceRequest
from tests.support.builders import GIB, a_topology
from tests.support.scheduler_story import a_placement_request

MIB: Final = 1 << 20

#: 596 of the 1,523 nodes have 96 CPUs and 384 GiB.
ZONE_CPUS: Final = 48
ZONE_GIB: Final = 192
MACHINE: Final = a_topology(sockets=2, zones_per_socket=1, cpus=ZONE_CPUS, memory_gib=ZONE_GIB)

# fmt: off
#: (pods, mcpu, MiB), the most frequent first.
CLASSES: Final = (
    (1592, 3152, 5600), (857, 11300, 49152), (778, 11908, 47104), (649, 8000, 30517), (534, 11400, 48128),
    (364, 12500, 57344), (284, 32000, 49152), (255, 18708, 64512), (195, 9810, 41560), (189, 4000, 22888),
    (182, 4000, 15258), (162, 12000, 24576), (158, 15700, 58368), (152, 4152, 10600), (136, 4000, 30517),
    (120, 15400, 51200), (110, 16000, 32768), (106, 8000, 16384), (104, 4000, 24576), (99, 12000, 16384),
    (95, 16500, 51200), (93, 14200, 58368), (84, 24200, 93184), (65, 11400, 77824), (55, 8000, 32768),
    (51, 6000, 6144), (51, 11900, 77824), (44, 12000, 15360), (41, 8200, 33792), (40, 4000, 31250),
    (36, 15200, 80896), (34, 16000, 65536), (29, 6000, 12288), (28, 6000, 22888), (27, 16400, 125952),
    (26, 1000, 2048), (18, 6000, 18432), (18, 64200, 263168), (18, 88000, 327680), (16, 11300, 37888),
    (15, 1000, 6144), (12, 8000, 15625), (11, 7000, 30000), (11, 11400, 57344), (11, 16000, 31250), (10, 6000, 8192),
    (9, 15400, 90112), (9, 32200, 132096), (8, 4000, 16384), (8, 6000, 16384), (8, 12000, 32768), (8, 12000, 47104),
    (8, 14900, 73728), (7, 16200, 66560), (6, 6000, 23552), (6, 6000, 32768), (6, 9400, 52224), (6, 12000, 18432),
    (5, 2000, 8192), (5, 2000, 16384), (5, 4000, 32768), (5, 8000, 31250), (4, 11900, 43008), (4, 12000, 49152),
    (3, 6000, 65536), (3, 8000, 8192), (3, 16000, 16384), (3, 16000, 49152), (3, 30200, 160768), (3, 32000, 62500),
    (3, 32000, 131072), (3, 60200, 320512), (3, 64000, 262144), (3, 120000, 737280), (2, 6000, 30517),
    (2, 8000, 16000), (2, 8000, 65536), (2, 12000, 16000), (2, 12000, 23552), (2, 12500, 65536), (2, 16400, 84992),
    (2, 17400, 43008), (2, 20000, 65536), (2, 32000, 32768), (2, 120200, 640000), (1, 4000, 4096), (1, 4000, 8192),
    (1, 5000, 10240), (1, 8000, 24576), (1, 8000, 61035), (1, 8000, 62500), (1, 8710, 41560), (1, 10000, 48828),
    (1, 11300, 23552), (1, 11800, 78848), (1, 12000, 12288), (1, 14000, 0), (1, 14000, 60000), (1, 15900, 90112),
    (1, 16000, 15625), (1, 16000, 24576), (1, 16000, 62500), (1, 32000, 65536),
)
# fmt: on


def real_mix(seed: int, prefix: str = "j", priorities: int = 1) -> Iterator[PlacementRequest]:
    """Wants without end, drawn from the classes as often as they were seen; each job is of one of so many priorities."""
    rng = random.Random(seed)
    weights = [pods for pods, _, _ in CLASSES]
    number = 0
    while True:
        for _, mcpu, mib in rng.choices(CLASSES, weights, k=1_000):
            replica = f"{prefix}{number // 50}/t/{number}"
            yield a_placement_request(
                replica,
                mcpu=mcpu,
                memory_bytes=max(mib, 1) * MIB,
                queued_at_ms=number,
                priority=number // 50 % priorities,
            )
            number += 1


def real_requests(seed: int, most_mcpu: int, most_bytes: int) -> Iterator[ResourceRequest]:
    """Requests without end, drawn from the classes that ask for no more than this, as often as they were seen."""
    rng = random.Random(seed)
    fitting = [each for each in CLASSES if each[1] <= most_mcpu and each[2] * MIB <= most_bytes]
    weights = [pods for pods, _, _ in fitting]
    while True:
        for _, mcpu, mib in rng.choices(fitting, weights, k=1_000):
            yield ResourceRequest(cpu_mcpu=mcpu, memory_bytes=max(mib, 1) * MIB)


def different_requests(seed: int) -> Iterator[ResourceRequest]:
    """Requests without end, no two alike, about as large as the real ones."""
    rng = random.Random(seed)
    while True:
        yield ResourceRequest(cpu_mcpu=rng.randrange(1_000, 20_000), memory_bytes=rng.randrange(GIB, 80 * GIB))


def all_different(seed: int, prefix: str = "d") -> Iterator[PlacementRequest]:
    """Wants without end, each asking for something else."""
    for number, request in enumerate(different_requests(seed)):
        yield a_placement_request(
            f"{prefix}{number // 50}/t/{number}",
            mcpu=request.cpu_mcpu,
            memory_bytes=request.memory_bytes,
            queued_at_ms=number,
        )
