"""Batch jobs for simulated fleets: made from a seed, or shaped like the rows of a real table.

A source returns its i-th job and keeps no state; a JobFeeder decides how many jobs are submitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Protocol

from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_sim.noise import chance_ppm, key_of, mix, uniform

__all__ = ["GeneratedJobs", "JobFeeder", "JobShape", "JobSource", "SimJob", "TableJobs", "fit_shape"]

MIB: Final = 2**20
MIN_RUNTIME_MS: Final = 60_000
MAX_RUNTIME_MS: Final = 30 * 60_000
_MAX_ARRIVALS: Final = 10_000_000


class SimJob(Struct, frozen=True, kw_only=True):
    """A job of equal replicas; `cpu_mcpu`, `memory_bytes` and `work_mcpu_ms` are of one replica.

    A replica that always gets its request runs `work_mcpu_ms / cpu_mcpu` ms.
    """

    name: str
    replicas: int
    cpu_mcpu: int
    memory_bytes: int
    work_mcpu_ms: int
    arrival_ms: int

    @property
    def total_cpu_mcpu(self) -> int:
        """Request of all replicas."""
        return self.replicas * self.cpu_mcpu


class JobSource(Protocol):
    """Answers with its i-th job, the same for the same i. Arrival times never fall as i grows."""

    def job(self, index: int) -> SimJob: ...


# Share of the jobs (ppm) and CPU request of each size: small ones are common, the largest rare.
_SIZES: Final = (
    (250_000, 500),
    (300_000, 1_000),
    (230_000, 2_000),
    (160_000, 4_000),
    (60_000, 8_000),
)
_MEMORY_PER_CPU_MIB: Final = (256, 512, 1_024, 2_048)
_MIN_MEMORY_MIB: Final = 256
_MAX_MEMORY_MIB: Final = 8_192


class GeneratedJobs:
    """Jobs made from a seed: 0.5 to 8 CPUs, 256 MiB to 8 GiB, 1 to 30 minutes at full request, 1 to 8 replicas.

    Arrivals: the first jobs, together `backlog_ratio` times the spare CPU, arrive at 0; afterwards one arrives whenever
    the spare CPU could have worked off the one before it, so the backlog stays near its start as long as `spare_mcpu`
    is right. Where it is not known, submit through a JobFeeder, which looks at what is outstanding.
    """

    def __init__(self, seed: int, *, spare_mcpu: int = 100_000, backlog_ratio_pct: int = 250) -> None:
        if spare_mcpu < 1:
            raise InvalidInput("spare_mcpu", "must be at least 1", spare_mcpu)
        if not 0 <= backlog_ratio_pct <= 1_000:
            raise InvalidInput("backlog_ratio_pct", "must be from 0 to 1000", backlog_ratio_pct)
        self._key = key_of(seed, "jobs")
        self._spare_mcpu = spare_mcpu
        self._backlog_mcpu = spare_mcpu * backlog_ratio_pct // 100

    def job(self, index: int) -> SimJob:
        """Return the index-th job; its arrival is estimated from the mean job, so no earlier job is looked at."""
        shape = self._shape(index)
        before_mcpu = index * _MEAN_JOB_MCPU - self._backlog_mcpu
        # Spare CPU works off `spare` mcpu of requests in the mean runtime of a job.
        arrival_ms = max(0, before_mcpu * _MEAN_RUNTIME_MS // self._spare_mcpu)
        return SimJob(
            name=f"gen-{index:06d}",
            replicas=shape.replicas,
            cpu_mcpu=shape.cpu_mcpu,
            memory_bytes=shape.memory_bytes,
            work_mcpu_ms=shape.cpu_mcpu * shape.runtime_ms,
            arrival_ms=arrival_ms,
        )

    def _shape(self, index: int) -> JobShape:
        if not 0 <= index < _MAX_ARRIVALS:
            raise InvalidInput("index", f"must be from 0 to {_MAX_ARRIVALS - 1}", index)
        key = mix(self._key, index)
        cpu_mcpu = _size_of(mix(key, 0))
        per_cpu_mib = _MEMORY_PER_CPU_MIB[uniform(mix(key, 1), 0, len(_MEMORY_PER_CPU_MIB) - 1)]
        memory_mib = min(max(per_cpu_mib * cpu_mcpu // 1_000, _MIN_MEMORY_MIB), _MAX_MEMORY_MIB)
        return JobShape(
            replicas=1 << uniform(mix(key, 2), 0, 3) if chance_ppm(mix(key, 3), 300_000) else 1,
            cpu_mcpu=cpu_mcpu,
            memory_bytes=memory_mib * MIB,
            runtime_ms=_runtime_of(mix(key, 4)),
        )


class JobShape(Struct, frozen=True, kw_only=True):
    """What a job asks for, and how long one replica runs at its full request."""

    replicas: int = 1
    cpu_mcpu: int
    memory_bytes: int
    runtime_ms: int


def _size_of(bits: int) -> int:
    reached_ppm = bits * 1_000_000 >> 64
    for share_ppm, cpu_mcpu in _SIZES:
        if reached_ppm < share_ppm:
            return cpu_mcpu
        reached_ppm -= share_ppm
    return _SIZES[-1][1]


def _runtime_of(bits: int) -> int:
    """Return 1 to 30 minutes: evenly spread by octave, so that short ones are as many as long ones are heavy."""
    low_ms = MIN_RUNTIME_MS << uniform(mix(bits, 0), 0, 4)
    return min(uniform(mix(bits, 1), low_ms, 2 * low_ms), MAX_RUNTIME_MS)


# Means of the mix above: 300,000 ppm of the jobs have (1+2+4+8)/4 replicas, sizes as listed (rounded down).
_MEAN_SIZE_MCPU: Final = sum(share * cpu for share, cpu in _SIZES) // 1_000_000
_MEAN_JOB_MCPU: Final = _MEAN_SIZE_MCPU * (700_000 + 300_000 * 15 // 4) // 1_000_000
_MEAN_RUNTIME_MS: Final = 556_500
"""Mean of _runtime_of over its octaves, (1.5 + 3 + 6 + 12 + 23.875) / 5 minutes; the last octave is cut at 30."""


def fit_shape(shape: JobShape, *, max_cpu_mcpu: int, max_memory_bytes: int) -> JobShape:
    """Return the shape shrunk to fit: CPU and memory by one factor, so their ratio stays; each rounds down, at least 1.

    The time a replica runs is brought into 1 to 30 minutes.
    """
    for name, value in (("max_cpu_mcpu", max_cpu_mcpu), ("max_memory_bytes", max_memory_bytes)):
        if value < 1:
            raise InvalidInput(name, "must be at least 1", value)
    cpu_mcpu, memory_bytes = shape.cpu_mcpu, shape.memory_bytes
    if cpu_mcpu > max_cpu_mcpu:
        cpu_mcpu, memory_bytes = max_cpu_mcpu, memory_bytes * max_cpu_mcpu // cpu_mcpu
    if memory_bytes > max_memory_bytes:
        cpu_mcpu, memory_bytes = cpu_mcpu * max_memory_bytes // memory_bytes, max_memory_bytes
    return JobShape(
        replicas=shape.replicas,
        cpu_mcpu=max(1, cpu_mcpu),
        memory_bytes=max(1, memory_bytes),
        runtime_ms=min(max(shape.runtime_ms, MIN_RUNTIME_MS), MAX_RUNTIME_MS),
    )


class TableJobs:
    """Jobs shaped like the rows of a table, over and over: later rounds follow with new names.

    `rows` are (name, shape, arrival_ms) with arrivals that never fall.
    """

    def __init__(self, rows: Sequence[tuple[str, JobShape, int]]) -> None:
        if not rows:
            raise InvalidInput("jobs", "must have at least one row", 0)
        for position, ((_, _, earlier), (name, _, later)) in enumerate(pairwise(rows), start=1):
            if later < earlier:
                raise InvalidInput(f"jobs[{position}].arrival_ms", "must not fall from row to row", name)
        self._rows = tuple(rows)
        self._round_ms = rows[-1][2] - rows[0][2] + 1

    def __len__(self) -> int:
        return len(self._rows)

    def job(self, index: int) -> SimJob:
        """Return the index-th job; rounds follow one another."""
        if not 0 <= index < _MAX_ARRIVALS:
            raise InvalidInput("index", f"must be from 0 to {_MAX_ARRIVALS - 1}", index)
        round_, row = divmod(index, len(self._rows))
        name, shape, arrival_ms = self._rows[row]
        return SimJob(
            name=name if round_ == 0 else f"{name}-{round_}",
            replicas=shape.replicas,
            cpu_mcpu=shape.cpu_mcpu,
            memory_bytes=shape.memory_bytes,
            work_mcpu_ms=shape.cpu_mcpu * shape.runtime_ms,
            arrival_ms=arrival_ms - self._rows[0][2] + round_ * self._round_ms,
        )


class JobFeeder:
    """Keeps the outstanding requests of submitted jobs near a target, within limits, by submitting the source's next jobs.

    The target is `backlog_ratio_pct` of the spare CPU (250: two and a half times). Never more than `max_jobs` jobs are
    outstanding, and one call returns at most `max_batch`.
    """

    def __init__(
        self, source: JobSource, *, backlog_ratio_pct: int = 250, max_jobs: int = 2_000, max_batch: int = 100
    ) -> None:
        for name, value in (("backlog_ratio_pct", backlog_ratio_pct), ("max_jobs", max_jobs), ("max_batch", max_batch)):
            if value < 1:
                raise InvalidInput(name, "must be at least 1", value)
        self._source = source
        self._ratio_pct = backlog_ratio_pct
        self._max_jobs = max_jobs
        self._max_batch = max_batch
        self._next = 0

    def feed(self, now_ms: int, *, spare_mcpu: int, outstanding_mcpu: int, outstanding_jobs: int) -> tuple[SimJob, ...]:
        """Return the jobs to submit now, arriving `now_ms`: as many as fill the backlog, the last may exceed it."""
        target_mcpu = spare_mcpu * self._ratio_pct // 100
        jobs: list[SimJob] = []
        while (
            outstanding_mcpu < target_mcpu
            and outstanding_jobs + len(jobs) < self._max_jobs
            and len(jobs) < self._max_batch
        ):
            job = self._source.job(self._next)
            self._next += 1
            outstanding_mcpu += job.total_cpu_mcpu
            jobs.append(
                SimJob(
                    name=job.name,
                    replicas=job.replicas,
                    cpu_mcpu=job.cpu_mcpu,
                    memory_bytes=job.memory_bytes,
                    work_mcpu_ms=job.work_mcpu_ms,
                    arrival_ms=now_ms,
                )
            )
        return tuple(jobs)
