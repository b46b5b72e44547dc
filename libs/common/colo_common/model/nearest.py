"""The known name that is nearest to a name that is not known: what a person meant by a typo."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice
from typing import Final

__all__ = ["hint", "nearest"]

_ALIKE_LEAST: Final = 0.5
"""Twice the matching characters over all characters of both names (difflib's ratio); below it two names have little in common."""
_KNOWN_MOST: Final = 10_000
_CHARACTERS_MOST: Final = 253
_LISTED_MOST: Final = 20


def nearest(text: str, known: Iterable[str]) -> str:
    """Return the known name most like the text, "" when none is like it.

    Case does not count, and "_" equals "-". Of names that are equally near the first in alphabetical order is returned, so that the
    answer does not depend on the order of `known`. At most 10,000 names are looked at, and 253 characters of a name.
    """
    plain = _plain(text)
    if not plain:
        return ""
    matcher = difflib.SequenceMatcher(b=plain, autojunk=False)
    best, least = "", _ALIKE_LEAST
    for name in sorted(islice(known, _KNOWN_MOST)):
        matcher.set_seq1(_plain(name))
        # The first two are cheap upper bounds of the third.
        if min(matcher.real_quick_ratio(), matcher.quick_ratio()) < least or (ratio := matcher.ratio()) < least:
            continue
        if not best or ratio > least:
            best, least = name, ratio
    return best


def hint(text: str, known: Iterable[str], what: str = "known") -> str:
    """Return the last part of a rule that refuses a name: "did you mean `memory`?", else "known keys: cpu memory".

    `what` stands before the list ("known keys"); the list has at most 20 names, and "" is returned when nothing is known.
    """
    names = list(known)
    near = nearest(text, names)
    if near:
        return f"did you mean `{near}`?"
    if not names:
        return ""
    more = len(names) - _LISTED_MOST
    return f"{what}: {' '.join(names[:_LISTED_MOST])}" + (f" and {more} more" if more > 0 else "")


def _plain(name: str) -> str:
    return name[:_CHARACTERS_MOST].lower().replace("_", "-")
