"""Durations in text form: "500ms", "10s", "2m", "1h30m"; a bare number counts seconds."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final

from colo_common.model.invalid import InvalidInput

__all__ = ["format_duration", "parse_duration_ms", "span_text"]

_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)")
_BARE: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")
_RULE: Final = 'must be a time such as "500ms", "10s", "2m" or "1h30m"; a bare number counts seconds'
_MAX_CHARACTERS: Final = 64


def parse_duration_ms(value: object, field: str, *, max_ms: int) -> int:
    """Return milliseconds, 0 to `max_ms`. Raises InvalidInput when the value is no duration or no whole number of milliseconds."""
    span_ms = _exact_ms(value, field)
    if span_ms.denominator != 1:
        raise InvalidInput(field, "must be a whole number of milliseconds", value)
    if not 0 <= span_ms <= max_ms:
        raise InvalidInput(field, f"must be from 0 to {format_duration(max_ms)}", value)
    return span_ms.numerator


def format_duration(span_ms: int) -> str:
    """Return the text that parse_duration_ms reads back exactly, with the largest unit that divides the duration."""
    for unit in ("d", "h", "m", "s"):
        if span_ms and span_ms % _UNIT_MS[unit] == 0:
            return f"{span_ms // _UNIT_MS[unit]}{unit}"
    return f"{span_ms}ms"


def span_text(span_ms: int) -> str:
    """Return a span of time in its two largest units, for people: "1.5s", "45s", "3m05s", "2h10m"."""
    seconds = span_ms // 1000
    if seconds < 120:
        return f"{span_ms / 1000:.1f}s" if seconds < 10 else f"{seconds}s"
    if seconds < 7200:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"


def _exact_ms(value: object, field: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InvalidInput(field, _RULE, value)
    if isinstance(value, int):
        return Fraction(value * 1_000)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(field, "must be a finite number", value)
        return Fraction(repr(value)) * 1_000
    text = value.strip()
    if _BARE.fullmatch(text):
        return Fraction(text) * 1_000
    parts = _PART.findall(text)
    if len(text) > _MAX_CHARACTERS or not parts or "".join(number + unit for number, unit in parts) != text:
        raise InvalidInput(field, _RULE, value)
    return sum((Fraction(number) * _UNIT_MS[unit] for number, unit in parts), Fraction(0))
