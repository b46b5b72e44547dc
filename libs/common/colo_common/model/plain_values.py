"""Reads texts and mappings of job and reservation files; InvalidInput names the path and the rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from colo_common.model.invalid import InvalidInput
from colo_common.model.nearest import hint, nearest

__all__ = ["mapping_of", "name_among", "text_of"]

_SHOWN_MOST: Final = 63


def text_of(value: object, field: str) -> str:
    """The value as text. A whole number is taken as its digits (YAML reads 60 in `[sleep, 60]` as a number).

    Raises InvalidInput for any other type, because its text has several spellings.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= 64:
        return str(value)
    raise InvalidInput(field, "must be text; put it in quotes", value)


def name_among(text: str, known: Iterable[str], field: str) -> str:
    """The known name that equals the text without regard to case. Raises InvalidInput with all known names for any other text."""
    names = {name.lower(): name for name in known}
    if text.lower() not in names:
        near = nearest(text, names.values())
        rule = f"must be among {' '.join(names.values())}" + (f"; did you mean `{near}`?" if near else "")
        raise InvalidInput(field, rule, text)
    return names[text.lower()]


def mapping_of(
    value: object, field: str, known: tuple[str, ...] = (), *, within: str | None = None, most: int | None = None
) -> Mapping[str, Any]:
    """The value as a mapping with text keys: at most `most` keys, and only `known` ones unless `known` is empty.

    Raises InvalidInput. Its field for a bad key is `within` and the key; `within` is the field and a dot when None.
    """
    if not isinstance(value, Mapping):
        raise InvalidInput(field, "must be a mapping of keys to values", value)
    if most is not None and len(value) > most:
        raise InvalidInput(field, f"must have at most {most} keys", len(value))
    prefix = f"{field}." if within is None else within
    for key in value:
        if not isinstance(key, str):
            raise InvalidInput(field, "keys must be text; put them in quotes", key)
        if known and key not in known:
            shown = key[:_SHOWN_MOST]
            raise InvalidInput(f"{prefix}{shown}", f"is not a key here; {hint(shown, known, 'known keys')}", key)
    return value
