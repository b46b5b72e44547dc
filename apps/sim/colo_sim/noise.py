"""Numbers that look random but are plain functions of a seed and a position, so call order never matters.

The mixer is splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014), in 64-bit integers.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

__all__ = ["PPM", "chance_ppm", "key_of", "mix", "uniform"]

PPM: Final = 1_000_000
"""Parts per million: the whole."""

_MASK: Final = 2**64 - 1


def key_of(seed: int, *names: str) -> int:
    """Return a 64-bit key of a seed and names; equal arguments give equal keys on every machine and in every process."""
    digest = blake2b(str(seed).encode(), digest_size=8)
    for name in names:
        digest.update(b"\0" + name.encode())
    return int.from_bytes(digest.digest(), "big")


def mix(key: int, position: int) -> int:
    """Return 64 well mixed bits of a key and a position (the position-th output of splitmix64 seeded with the key)."""
    bits = (key + (position + 1) * 0x9E3779B97F4A7C15) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return bits ^ (bits >> 31)


def uniform(bits: int, low: int, high: int) -> int:
    """Return a whole number from `low` to `high`, both included, from 64 bits (rounded down)."""
    return low + (bits * (high - low + 1) >> 64)


def chance_ppm(bits: int, ppm: int) -> bool:
    """Return whether an event of `ppm` parts per million happens for these 64 bits."""
    return bits * PPM >> 64 < ppm
