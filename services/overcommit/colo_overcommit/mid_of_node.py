"""The terms of the mid tier of one node by a sample, from its holds, what its online work has used, and its policy."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from colo_common.events.node import NodeUsageSampled
from colo_overcommit.allocatable import ZoneInputs
from colo_overcommit.known_node import KnownNode
from colo_overcommit.mid import MidInputs, mid_inputs, mid_use, only_held_mid
from colo_overcommit.policy import MidMode, OvercommitPolicy
from colo_overcommit.prod_peaks import ProdPeaks, ProdUse

__all__ = ["mid_of_node", "mid_under"]


def mid_of_node(
    known: KnownNode, sample: NodeUsageSampled, inputs: Sequence[ZoneInputs], policy: OvercommitPolicy
) -> tuple[MidInputs, ...]:
    """The terms, () where the tier is off and nothing is held of it. Online work is learned from while the policy asks for it."""
    held = known.held.mid_by_zone()
    if policy.mid_mode == MidMode.OFF:
        known.prod_peaks = None
        return only_held_mid(inputs, held) if held else ()
    own, used = _used(known, sample)
    if policy.mid_mode == MidMode.STATIC:
        return mid_inputs(inputs, used, (ProdUse(),) * len(inputs), policy, held)
    if known.prod_peaks is None:
        known.prod_peaks = ProdPeaks(known.restored.prod if known.restored is not None else None)
        if known.restored is not None:
            known.restored = replace(known.restored, prod=None) if known.restored.zones else None
    known.learned_ms = sample.at_ms
    prod = known.prod_peaks.learn(known.held, inputs, sample.workloads, sample.at_ms, own)
    return mid_inputs(inputs, used, prod, policy, held)


def mid_under(
    known: KnownNode, sample: NodeUsageSampled, inputs: Sequence[ZoneInputs], policy: OvercommitPolicy
) -> tuple[MidInputs, ...]:
    """The terms that the newest sample would have under another policy; nothing is learned.

    The expected peak of online work is the one that is known now. Where the tier gives nothing of online work's back now no peak is
    known, and what it would give back is 0 at first, as when the policy is applied.
    """
    held = known.held.mid_by_zone()
    if policy.mid_mode == MidMode.OFF:
        return only_held_mid(inputs, held) if held else ()
    own, used = _used(known, sample)
    prod: Sequence[ProdUse] = (ProdUse(),) * len(inputs)
    if policy.mid_mode == MidMode.RECLAIMABLE:
        prod = ProdPeaks().learn(known.held, inputs, sample.workloads, sample.at_ms, own)
        if known.prod_peaks is not None and len(known.mid_inputs) == len(prod):
            prod = [
                ProdUse(
                    requested=each.requested,
                    measured=(now.cpu.prod_measured, now.memory.prod_measured),
                    peak=(now.cpu.prod_peak, now.memory.prod_peak),
                )
                for each, now in zip(prod, known.mid_inputs, strict=True)
            ]
    return mid_inputs(inputs, used, prod, policy, held)


def _used(known: KnownNode, sample: NodeUsageSampled) -> tuple[Mapping[int, tuple[int, int]], list[tuple[int, int]]]:
    """Zone -> what work of the tier uses, and what other work uses in each zone of the sample, in mcpu and bytes."""
    own = mid_use(known.held, sample.workloads, [zone.zone for zone in sample.zones])
    used = [(zone.cpu_used_mcpu, zone.memory_used_bytes) for zone in sample.zones]
    if own:
        used = [
            (max(mcpu - own[zone.zone][0], 0), max(size - own[zone.zone][1], 0))
            for zone, (mcpu, size) in zip(sample.zones, used, strict=True)
        ]
    return own, used
