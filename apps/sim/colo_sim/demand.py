"""The demand of the online services of a simulated node: a trace, plus modelled short bursts, plus injected spikes.

Traces are sampled every 10 to 300 s, so everything shorter is MODELLED, not measured. The model is a function of
(seed, node, time) alone: each second carries a symmetric ripple, and each window of a few seconds may carry a burst.
A fleet mean is smoother than its machines; a node made from it also gets its own level (0.85 to 1.15 of the mean) and
stronger bursts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from colo_common.model.invalid import InvalidInput
from colo_sim.noise import PPM, chance_ppm, key_of, mix, uniform
from colo_sim.trace import LoadTrace

__all__ = [
    "MEMORY_SHARE_PPM",
    "FLEET_NOISE",
    "MACHINE_NOISE",
    "NO_NOISE",
    "BurstNoise",
    "OnlineDemand",
    "NodeDemand",
    "Spike",
]

_RIPPLE_STEP_MS: Final = 1_000
MEMORY_SHARE_PPM: Final = 700_000
_REQUEST_SLACK_PPM: Final = 460_000
_LEVEL_POSITION: Final = 2**40
"""Position of a node's level in its key; windows and seconds stay far below it."""


@dataclass(frozen=True, slots=True)
class BurstNoise:
    """Sizes of the modelled short-term structure, shares in ppm.

    `ripple_ppm`: the largest change of a second, relative to the load then (triangular, mean 0). Each window of
    `window_ms` bursts with `burst_chance_ppm` by `burst_low_ppm` to `burst_high_ppm` of the machine.
    `level_ppm`: the node's own level differs from the series by at most this much, relative to it.
    """

    ripple_ppm: int = 30_000
    window_ms: int = 5_000
    burst_chance_ppm: int = 20_000
    burst_low_ppm: int = 20_000
    burst_high_ppm: int = 120_000
    level_ppm: int = 0

    def __post_init__(self) -> None:
        for name in ("ripple_ppm", "burst_chance_ppm", "burst_low_ppm", "burst_high_ppm", "level_ppm"):
            if not 0 <= getattr(self, name) <= PPM:
                raise InvalidInput(name, f"must be from 0 to {PPM}", getattr(self, name))
        if self.burst_low_ppm > self.burst_high_ppm:
            raise InvalidInput("burst_low_ppm", "must be at most burst_high_ppm", self.burst_low_ppm)
        if self.window_ms < 1:
            raise InvalidInput("window_ms", "must be at least 1", self.window_ms)


MACHINE_NOISE: Final = BurstNoise()
"""For series of single machines: their samples hold the minute-scale structure already."""

FLEET_NOISE: Final = BurstNoise(
    ripple_ppm=60_000, burst_chance_ppm=60_000, burst_low_ppm=40_000, burst_high_ppm=220_000, level_ppm=150_000
)
"""For the mean of a fleet, from which averaging removed the bursts."""

NO_NOISE: Final = BurstNoise(ripple_ppm=0, burst_chance_ppm=0, burst_low_ppm=0, burst_high_ppm=0)


@dataclass(frozen=True, slots=True)
class Spike:
    """Injected extra demand from `start_ms` (included) for `length_ms`; shares of the machine in ppm, memory too."""

    start_ms: int
    length_ms: int
    cpu_ppm: int = 0
    mem_ppm: int = 0

    def __post_init__(self) -> None:
        if self.length_ms < 1:
            raise InvalidInput("spike.length_ms", "must be at least 1", self.length_ms)
        if self.start_ms < 0 or self.cpu_ppm < 0 or self.mem_ppm < 0:
            raise InvalidInput("spike", "start and shares must be at least 0", self)


class OnlineDemand(NamedTuple):
    """The present demand of online services. CPU may exceed the machine (then they wait); memory never does."""

    cpu_mcpu: int
    memory_bytes: int


class NodeDemand:
    """The demand of one node. `at` depends on its arguments only: it may be called in any order, any number of times.

    `memory_share_ppm` scales the trace's memory: published machine traces include the memory of batch work and page
    cache, so MEMORY_SHARE_PPM (the default, 0.7) leaves room as a machine without batch would. `cpu_share_ppm`
    scales its CPU.
    """

    __slots__ = (
        "_capacity_bytes",
        "_capacity_mcpu",
        "_copy",
        "_key",
        "_level_ppm",
        "_memory_share_ppm",
        "_noise",
        "_spikes",
        "_trace",
    )

    def __init__(
        self,
        trace: LoadTrace,
        *,
        node: str,
        node_index: int,
        seed: int,
        cpu_capacity_mcpu: int,
        memory_capacity_bytes: int,
        noise: BurstNoise | None = None,
        spikes: tuple[Spike, ...] = (),
        memory_share_ppm: int = MEMORY_SHARE_PPM,
        cpu_share_ppm: int = PPM,
    ) -> None:
        for name, value in (("cpu_capacity_mcpu", cpu_capacity_mcpu), ("memory_capacity_bytes", memory_capacity_bytes)):
            if value < 1:
                raise InvalidInput(name, "must be at least 1", value)
        if node_index < 0:
            raise InvalidInput("node_index", "must be at least 0", node_index)
        for name, value in (("memory_share_ppm", memory_share_ppm), ("cpu_share_ppm", cpu_share_ppm)):
            if not 0 <= value <= PPM:
                raise InvalidInput(name, f"must be from 0 to {PPM}", value)
        self._trace = trace
        self._copy = node_index
        self._capacity_mcpu = cpu_capacity_mcpu
        self._capacity_bytes = memory_capacity_bytes
        self._memory_share_ppm = memory_share_ppm
        self._noise = noise if noise is not None else FLEET_NOISE if trace.is_fleet_mean else MACHINE_NOISE
        self._spikes = tuple(sorted(spikes, key=lambda spike: (spike.start_ms, spike.length_ms)))
        self._key = key_of(seed, "demand", node)
        level = uniform(mix(self._key, _LEVEL_POSITION), -self._noise.level_ppm, self._noise.level_ppm)
        self._level_ppm = (PPM + level) * cpu_share_ppm // PPM

    @property
    def request_mcpu(self) -> int:
        """ASSUMED CPU requests of the node's services: its mean load over 1 less the slack, at least its highest sample.

        The slack is 46 % of a request, that of jobs with hand-set limits (Rzadca and others, "Autopilot", EuroSys 2020). Rounds up,
        and is at most the machine.
        """
        shares_ppm = self._trace.series_of(self._copy).cpu_ppm
        mean_ppm = -(-sum(shares_ppm) * PPM // (len(shares_ppm) * (PPM - _REQUEST_SLACK_PPM)))
        wanted_ppm = min(max(mean_ppm, *shares_ppm) * self._level_ppm // PPM, PPM)
        return -(-wanted_ppm * self._capacity_mcpu // PPM)

    def at(self, t_ms: int) -> OnlineDemand:
        """Return the demand at a simulated moment; every product of shares rounds down."""
        load = self._trace.at(self._copy, t_ms)
        noise = self._noise
        cpu_ppm = load.cpu_ppm * self._level_ppm // PPM
        mem_ppm = load.mem_ppm * self._memory_share_ppm // PPM
        if noise.ripple_ppm:
            bits = mix(self._key, 2 * (t_ms // _RIPPLE_STEP_MS))
            # The sum of two uniform halves is triangular: small changes are common, the largest is rare.
            triangle_ppm = ((bits & 0xFFFFFFFF) + (bits >> 32) - 0xFFFFFFFF) * noise.ripple_ppm >> 32
            cpu_ppm += cpu_ppm * triangle_ppm // PPM
        if noise.burst_chance_ppm:
            bits = mix(self._key, 2 * (t_ms // noise.window_ms) + 1)
            if chance_ppm(bits, noise.burst_chance_ppm):
                cpu_ppm += uniform(mix(bits, 0), noise.burst_low_ppm, noise.burst_high_ppm)
        cpu_ppm = min(max(cpu_ppm, 0), PPM)  # a measured or modelled machine is never more than full; a spike may be
        for spike in self._spikes:
            if spike.start_ms > t_ms:
                break
            if t_ms < spike.start_ms + spike.length_ms:
                cpu_ppm += spike.cpu_ppm
                mem_ppm += spike.mem_ppm
        return OnlineDemand(cpu_ppm * self._capacity_mcpu // PPM, min(mem_ppm, PPM) * self._capacity_bytes // PPM)
