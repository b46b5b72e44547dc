"""Quantities: integer milli-CPU and bytes, read from the Kubernetes notation and written back without loss.

All arithmetic is exact (integers and fractions). A number that is not whole in the target unit is refused, not rounded.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final

from colo_common.model.invalid import InvalidInput, InvariantBroken

MCPU_PER_CPU: Final = 1000
MIN_BATCH_MCPU: Final = 10
"""The kernel's smallest CPU quota is 1 ms in a period of 100 ms, which is 10 milli-CPU."""

MAX_BYTES: Final = 2**62
MAX_MCPU: Final = 10**15
"""More than every machine of the largest known fleets together."""

_MAX_CHARACTERS: Final = 64
_MAX_EXPONENT: Final = 40

_NUMBER: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<suffix>[A-Za-z]{1,2}))?"
)

_DECIMAL_SUFFIXES: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
}
_BINARY_SUFFIXES: Final = {
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_LARGEST_FIRST: Final = tuple(
    (suffix, factor.numerator) for suffix, factor in sorted(_BINARY_SUFFIXES.items(), key=lambda item: -item[1])
)
_BYTE_SUFFIXES: Final = {**_DECIMAL_SUFFIXES, **_BINARY_SUFFIXES}
_CPU_SUFFIXES: Final = {name: _DECIMAL_SUFFIXES[name] for name in ("n", "u", "m", "", "k")} | {"c": Fraction(1)}

# A CPU quantity knows k of these, but a batch quantity counts milli-CPU.
_MULTIPLES: Final = {name: _DECIMAL_SUFFIXES[name] for name in ("k", "M", "G")}

_CPU_RULE: Final = 'must be a CPU quantity such as 2, 1.5, "500m" or "8c"'
_BYTES_RULE: Final = 'must be a size in bytes such as 128974848, "500M" or "2Gi"'


def parse_mcpu(value: str | int | float, field: str, *, allow_negative: bool = False) -> int:
    """Return milli-CPU for a Kubernetes CPU quantity: 2, 1.5, "2", "0.5", "500m", "8c".

    A bare number counts whole CPUs ("8" is 8000 milli). Raises InvalidInput when the text is no quantity, when it is
    finer than one milli-CPU, negative (unless allowed) or above MAX_MCPU.
    """
    exact = _exact(value, field, _CPU_RULE, _CPU_SUFFIXES) * MCPU_PER_CPU
    if exact.denominator != 1:
        raise InvalidInput(field, "must be a whole number of milli-CPU", value)
    return _bounded(exact.numerator, value, field, MAX_MCPU, "milli-CPU", allow_negative)


def parse_batch_mcpu(value: str | int | float, field: str) -> int:
    """Return milli-CPU for a field whose bare numbers are already milli-CPU (`batch_cpu_mcpu`, `batch-cpu`).

    A number with a unit ("8c", "200m") is read like parse_mcpu; k, M and G multiply milli-CPU as in Kubernetes, so "2k" is 2 CPUs.
    The kernel cannot enforce less than 10 milli-CPU, so InvalidInput is raised below that; for a bare number, which is nearly
    always a count of CPUs by mistake, the rule says how to write it.
    """
    is_bare = not isinstance(value, str) or _is_bare(value) or value.endswith(tuple(_MULTIPLES))
    if not is_bare:
        mcpu = parse_mcpu(value, field)
        if mcpu < MIN_BATCH_MCPU:
            raise InvalidInput(field, f"must be at least {MIN_BATCH_MCPU} milli-CPU", value)
        return mcpu
    exact = _exact(
        value, field, 'must be whole milli-CPU such as 8000, or have a unit such as "8c"', _CPU_SUFFIXES | _MULTIPLES
    )
    if 0 <= exact < MIN_BATCH_MCPU:
        rule = f"a bare number here is milli-CPU and must be at least {MIN_BATCH_MCPU}"
        if exact > 0:
            cpus = _decimal_text(exact)
            rule += f'; write "{cpus}c" or {_decimal_text(exact * MCPU_PER_CPU)} if you mean {cpus} CPUs'
        raise InvalidInput(field, rule, value)
    if exact.denominator != 1:
        raise InvalidInput(field, "must be a whole number of milli-CPU", value)
    return _bounded(exact.numerator, value, field, MAX_MCPU, "milli-CPU", allow_negative=False)


def parse_bytes(value: str | int | float, field: str, *, allow_negative: bool = False) -> int:
    """Return bytes for a Kubernetes quantity: 128974848, "500M", "2Gi", "1e9", "128974848000m".

    Raises InvalidInput when the text is no quantity, when it is no whole number of bytes, negative (unless allowed)
    or above 2**62.
    """
    exact = _exact(value, field, _BYTES_RULE, _BYTE_SUFFIXES)
    if exact.denominator != 1:
        raise InvalidInput(field, "must be a whole number of bytes", value)
    return _bounded(exact.numerator, value, field, MAX_BYTES, "bytes", allow_negative)


def format_mcpu(mcpu: int) -> str:
    """Return the shortest Kubernetes text that parse_mcpu reads back exactly: "2" for 2000, "1500m" for 1500."""
    whole, rest = divmod(mcpu, MCPU_PER_CPU)
    return str(whole) if rest == 0 else f"{mcpu}m"


def format_bytes(size_bytes: int) -> str:
    """Return the text with the largest binary unit that divides the size, so that parse_bytes reads it back exactly."""
    if size_bytes == 0:
        return "0"
    for suffix, factor in _LARGEST_FIRST:
        if size_bytes % factor == 0:
            return f"{size_bytes // factor}{suffix}"
    return str(size_bytes)


def cpu_text(mcpu: int) -> str:
    """Return milli-CPU as text in CPUs, exact: "2", "1.5", "0.064"."""
    return _trimmed(f"{'-' if mcpu < 0 else ''}{abs(mcpu) // MCPU_PER_CPU}.{abs(mcpu) % MCPU_PER_CPU:03d}")


def bytes_text(size_bytes: int) -> str:
    """Return a size as text in its largest binary unit, rounded toward 0 to hundredths of it: "64Mi", "1.5Gi", "-2.09Gi".

    The error is below one percent of the text's value. A size below 1Ki is given in bytes ("100 bytes").
    """
    size = abs(size_bytes)
    sign = "-" if size_bytes < 0 else ""
    for suffix, factor in _LARGEST_FIRST:
        if size >= factor:
            hundredths = size * 100 // factor
            return f"{sign}{_trimmed(f'{hundredths // 100}.{hundredths % 100:02d}')}{suffix}"
    return f"{size_bytes} byte{'' if size == 1 else 's'}" if size else "0"


def _trimmed(decimal: str) -> str:
    return decimal.rstrip("0").rstrip(".")


def ceil_div(numerator: int, denominator: int) -> int:
    """Return the quotient rounded up (toward plus infinity). The denominator must be positive."""
    _refuse_denominator(numerator, denominator)
    return -(-numerator // denominator)


def _refuse_denominator(numerator: int, denominator: int) -> None:
    if denominator <= 0:
        raise InvariantBroken("a division needs a positive denominator", numerator=numerator, denominator=denominator)


def _is_bare(text: str) -> bool:
    """Return whether a quantity text carries no unit. Text that is no quantity counts as bare; the caller refuses it later."""
    match = _NUMBER.fullmatch(text)
    return match is None or match["suffix"] is None


def _exact(value: str | int | float, field: str, rule: str, suffixes: dict[str, Fraction]) -> Fraction:
    """Return the exact value of a quantity; a float counts as the decimal text that Python prints for it."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InvalidInput(field, rule, value)
    if isinstance(value, int):
        return Fraction(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(field, "must be a finite number", value)
        value = repr(value)
    if len(value) > _MAX_CHARACTERS:
        raise InvalidInput(field, f"must be at most {_MAX_CHARACTERS} characters", value)
    match = _NUMBER.fullmatch(value)
    if match is None or not (match["whole"] or match["part"]):
        raise InvalidInput(field, rule, value)
    suffix = match["suffix"] or ""
    if suffix not in suffixes:
        known = " ".join(name for name in suffixes if name)
        raise InvalidInput(field, f"{rule}; known units: {known}", value)
    exponent = int(match["exponent"] or 0)
    if abs(exponent) > _MAX_EXPONENT:
        raise InvalidInput(field, f"must have an exponent between -{_MAX_EXPONENT} and {_MAX_EXPONENT}", value)
    part = match["part"] or ""
    digits = int((match["whole"] or "") + part)
    exact = digits * Fraction(10) ** (exponent - len(part)) * suffixes[suffix]
    return -exact if match["sign"] == "-" else exact


def _bounded(number: int, value: object, field: str, limit: int, unit: str, allow_negative: bool) -> int:
    if number < 0 and not allow_negative:
        raise InvalidInput(field, "must not be negative", value)
    if abs(number) > limit:
        raise InvalidInput(field, f"must be at most {limit} {unit}", value)
    return number


def _decimal_text(exact: Fraction) -> str:
    """Return a short decimal text for a hint; only a fraction that came from decimal digits reaches this."""
    return str(exact.numerator) if exact.denominator == 1 else f"{float(exact):g}"
