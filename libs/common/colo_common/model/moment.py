"""Points in time in text form ("2026-11-22T08:00:00Z", with Z or an offset), as Unix milliseconds inside."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from colo_common.model.invalid import InvalidInput

__all__ = ["date_and_time", "moment_text", "parse_moment_ms"]

_MOMENT: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?(Z|[+-][0-9]{2}:[0-9]{2})", re.ASCII
)
_RULE: Final = 'must be a moment with its zone, such as "2026-11-22T08:00:00Z"'
_DAYS_OF_MONTH: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EPOCH_YEAR: Final = 1970


def parse_moment_ms(value: object, field: str) -> int:
    """Return Unix milliseconds. Raises InvalidInput when the value is no point in time since 1970 or has no zone."""
    match = _MOMENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InvalidInput(field, _RULE, value)
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    is_date = year >= _EPOCH_YEAR and 1 <= month <= 12 and 1 <= day <= _days_of(year, month)
    if not is_date or hour > 23 or minute > 59 or second > 59:
        raise InvalidInput(field, _RULE, value)
    days = sum(366 if _is_leap(each) else 365 for each in range(_EPOCH_YEAR, year))
    days += sum(_days_of(year, each) for each in range(1, month)) + day - 1
    seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - _offset_s(match[7], field, value)
    if seconds < 0:
        raise InvalidInput(field, _RULE, value)
    return seconds * 1_000


def moment_text(at_ms: int) -> str:
    """Unix milliseconds as RFC 3339 text in UTC; the text has a fraction unless the milliseconds are 0."""
    seconds, ms = divmod(at_ms, 1_000)
    return f"{date_and_time(seconds)}{f'.{ms:03d}' if ms else ''}Z"


@lru_cache(maxsize=16)
def date_and_time(seconds: int) -> str:
    """Unix seconds as RFC 3339 text up to the seconds; days become dates as in Howard Hinnant's `civil_from_days`."""
    days, second_of_day = divmod(seconds, 86_400)
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    hour, rest = divmod(second_of_day, 3_600)
    return f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{rest // 60:02d}:{rest % 60:02d}"


def _offset_s(zone: str, field: str, value: object) -> int:
    if zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if hours > 23 or minutes > 59:
        raise InvalidInput(field, _RULE, value)
    return (hours * 3_600 + minutes * 60) * (-1 if zone[0] == "-" else 1)


def _days_of(year: int, month: int) -> int:
    return 29 if month == 2 and _is_leap(year) else _DAYS_OF_MONTH[month - 1]


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
