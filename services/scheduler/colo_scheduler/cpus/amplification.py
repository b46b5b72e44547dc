"""Prices on a node that claims to have more CPU than it has: who binds CPUs pays for them in the claimed unit."""

from fractions import Fraction
from functools import lru_cache
from typing import Final

from colo_common.model.invalid import InvalidInput

__all__ = ["amplified_room_mcpu", "amplified_used_mcpu", "amplify"]

_CPU_MCPU: Final = 1_000
_RATIOS_REMEMBERED: Final = 256


@lru_cache(maxsize=_RATIOS_REMEMBERED)
def _exact(ratio: float) -> Fraction:
    """The decimal number that was written: 1.1 is eleven tenths, not the nearest binary fraction, which rounds up differently."""
    if not 0 < ratio < float("inf"):
        raise InvalidInput("amplification_ratio", "must be a number above 0", ratio)
    return Fraction(repr(ratio))


def amplify(quantity: int, ratio: float) -> int:
    """quantity x ratio, rounded up; a ratio of 1 or less changes nothing (koordinator-sh/koordinator:apis/extension/node.go)."""
    exact = _exact(ratio)
    if exact <= 1:
        return quantity
    return -(-quantity * exact.numerator // exact.denominator)


def amplified_used_mcpu(requested_mcpu: int, bound_cpus: int, ratio: float) -> int:
    """What the node's requests amount to when its `bound_cpus` are paid in the claimed unit:
    requested - 1000 n + amplify(1000 n), only if requested >= 1000 n > 0 (plugin.go:461).
    """
    bound_mcpu = bound_cpus * _CPU_MCPU
    if not 0 < bound_mcpu <= requested_mcpu:
        return requested_mcpu
    return requested_mcpu - bound_mcpu + amplify(bound_mcpu, ratio)


def amplified_room_mcpu(
    request_mcpu: int, *, is_bound: bool, allocatable_mcpu: int, requested_mcpu: int, bound_cpus: int, ratio: float
) -> int:
    """What would be left on the node, in the claimed unit, with the request on it; below 0 it does not fit.

    `allocatable_mcpu` is the amplified one. A request that binds CPUs pays amplify(request), another the plain request.
    """
    price_mcpu = amplify(request_mcpu, ratio) if is_bound else request_mcpu
    return allocatable_mcpu - amplified_used_mcpu(requested_mcpu, bound_cpus, ratio) - price_mcpu
