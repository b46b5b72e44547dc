"""Reads `since`: a position of the event log, or how long ago."""

from msgspec import Struct

from colo_common.model.duration import parse_duration_ms
from colo_common.model.invalid import InvalidInput

__all__ = ["Since", "since_of"]

_MAX_MS = 7 * 86_400_000
_POSITION_MAX = 2**62
_RULE = 'must be a time such as "10s", "1m" or "1h30m", or a position of the event log (a whole number)'


class Since(Struct, frozen=True):
    """Where to begin: after a position, or so many milliseconds ago. Exactly one of them is set."""

    position: int | None = None
    ago_ms: int | None = None


def since_of(text: str, field: str = "since") -> Since:
    """The text of a query parameter: digits alone are a position. Raises InvalidInput for anything that is neither."""
    if text.isascii() and text.isdigit():
        if len(text) > 19 or int(text) > _POSITION_MAX:
            raise InvalidInput(field, f"must be a position of at most {_POSITION_MAX}", text)
        return Since(position=int(text))
    try:
        return Since(ago_ms=parse_duration_ms(text, field, max_ms=_MAX_MS))
    except InvalidInput as error:
        raise InvalidInput(field, error.rule if "from 0 to" in error.rule else _RULE, text) from error
