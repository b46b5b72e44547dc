"""The usage of unmanaged online work, which colo did not place. The scheduler leaves room for it when it places online work.

Online work that colo placed counts with its holds in the ledger; unmanaged online work is only known by its usage.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from colo_common.events.node import NodeUsageSampled, UnmanagedUse, WorkloadUsage
from colo_common.model.percentile import percentile
from colo_common.model.qos import PriorityBand
from colo_overcommit.allocatable import ZoneInputs
from colo_overcommit.held_by_batch import HeldByBatch
from colo_overcommit.load import STEP_MS

__all__ = ["WINDOW_MS", "UnmanagedHistory"]

WINDOW_MS: Final = 300_000
_RECLAIMED: Final = (PriorityBand.BATCH, PriorityBand.FREE)

# Time (Unix ms), and mcpu and bytes of each zone.
_Usage = tuple[int, tuple[tuple[int, int], ...]]


class UnmanagedHistory:
    """The unmanaged usage of one node over five minutes: the newest sample of each step."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[_Usage] = deque()

    def add(self, sample: NodeUsageSampled, inputs: Sequence[ZoneInputs], held: HeldByBatch) -> None:
        """Add the newest sample with its terms.

        Unmanaged usage is the online usage of a zone minus that of work with a hold in the ledger. The latter is divided evenly
        over the zones it may use, rounded down, so unmanaged usage is rather too large than too small.
        """
        now = tuple(_unmanaged(inputs, sample.workloads, held))
        samples, at_ms = self._samples, sample.at_ms
        if samples and (at_ms < samples[-1][0] or len(samples[-1][1]) != len(now)):
            # The clock was set back, or the zones of the machine changed: the kept samples do not compare.
            samples.clear()
        if samples and at_ms // STEP_MS == samples[-1][0] // STEP_MS:
            samples.pop()
        samples.append((at_ms, now))
        while samples[0][0] <= at_ms - WINDOW_MS:
            samples.popleft()

    def usage(self, inputs: Sequence[ZoneInputs]) -> tuple[UnmanagedUse, ...]:
        """The usage in the newest sample, in the order of its terms `inputs`. Percentiles cover the kept samples."""
        samples = self._samples
        now = samples[-1][1]
        return tuple(
            UnmanagedUse(
                zone=zone.zone,
                cpu_mcpu=now[slot][0],
                memory_bytes=now[slot][1],
                cpu_p95_mcpu=percentile([usage[1][slot][0] for usage in samples], 95),
                memory_p95_bytes=percentile([usage[1][slot][1] for usage in samples], 95),
            )
            for slot, zone in enumerate(inputs)
        )

    def has_risen(self, last: Sequence[UnmanagedUse], inputs: Sequence[ZoneInputs], rise_pct: int) -> bool:
        """Whether a zone uses more than the `last` published usage (now or p95) by at least `rise_pct` of its capacity."""
        if len(last) != len(inputs):
            return True
        for use, zone, (mcpu, memory_bytes) in zip(last, inputs, self._samples[-1][1], strict=True):
            more_mcpu = mcpu - max(use.cpu_mcpu, use.cpu_p95_mcpu)
            more_bytes = memory_bytes - max(use.memory_bytes, use.memory_p95_bytes)
            if more_mcpu > 0 and 100 * more_mcpu >= rise_pct * zone.cpu.capacity:
                return True
            if more_bytes > 0 and 100 * more_bytes >= rise_pct * zone.memory.capacity:
                return True
        return False


def _unmanaged(
    inputs: Sequence[ZoneInputs], workloads: Iterable[WorkloadUsage], held: HeldByBatch
) -> Iterable[tuple[int, int]]:
    """The online usage of each zone (mcpu, bytes) without that of work with a hold in the ledger; at least 0."""
    known = [zone.zone for zone in inputs]
    placed = dict.fromkeys(known, (0, 0))
    for workload in workloads:
        if not workload.replica or workload.band in _RECLAIMED or not held.holds(workload.replica, workload.attempt):
            continue
        zones = [zone for zone in workload.zones if zone in placed] or known
        for zone in zones:
            mcpu, memory_bytes = placed[zone]
            placed[zone] = (
                mcpu + workload.cpu_used_mcpu // len(zones),
                memory_bytes + workload.memory_used_bytes // len(zones),
            )
    for zone_inputs in inputs:
        mcpu, memory_bytes = placed[zone_inputs.zone]
        yield max(zone_inputs.cpu.online_used - mcpu, 0), max(zone_inputs.memory.online_used - memory_bytes, 0)
