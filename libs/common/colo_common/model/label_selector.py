"""Reads a label selector as kubectl takes it: "disk=ssd,zone!=b,gpu,!spot,rack in (r1,r2),cores>16"."""

from __future__ import annotations

import re
from typing import Final

from colo_common.model.invalid import InvalidInput
from colo_common.model.node_selector import Operator, Requirement, check_requirements

__all__ = ["parse_selector"]

_KEY: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_./-]{0,251}[A-Za-z0-9])?"
_VALUE: Final = r"[A-Za-z0-9_.-]{0,253}"
_PART: Final = re.compile(
    rf"\s*(?:(?P<absent>!)\s*(?P<gone>{_KEY})"
    rf"|(?P<key>{_KEY})\s*(?:(?P<sign>==|=|!=|>|<)\s*(?P<value>{_VALUE})"
    rf"|\s(?P<word>in|notin)\s*\((?P<values>[^()]*)\))?)\s*(?:,|$)",
    re.ASCII,
)
_SIGNS: Final = {
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    ">": Operator.GT,
    "<": Operator.LT,
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
}
_RULE: Final = 'must be like "disk=ssd,zone!=b,gpu,!spot,rack in (r1,r2),cores>16"'
_LENGTH_MOST: Final = 4_096


def parse_selector(text: str, field: str) -> tuple[Requirement, ...]:
    """The requirements of the selector, all of which must hold; () for an empty text. Raises InvalidInput with field and rule."""
    if len(text) > _LENGTH_MOST:
        raise InvalidInput(field, f"must have at most {_LENGTH_MOST} characters", len(text))
    found: list[Requirement] = []
    at = 0
    while at < len(text.rstrip()):
        part = _PART.match(text, at)
        if part is None:
            raise InvalidInput(field, _RULE, text[at : at + 80])
        found.append(_requirement(part))
        at = part.end()
    if text.rstrip().endswith(","):
        raise InvalidInput(field, _RULE, text[-80:])
    requirements = tuple(found)
    check_requirements(requirements, field)
    return requirements


def _requirement(part: re.Match[str]) -> Requirement:
    if part["absent"]:
        return Requirement(key=part["gone"], operator=Operator.DOES_NOT_EXIST)
    if part["sign"]:
        return Requirement(key=part["key"], operator=_SIGNS[part["sign"]], values=(part["value"],))
    if part["word"]:
        values = tuple(value.strip() for value in part["values"].split(",") if value.strip())
        return Requirement(key=part["key"], operator=_SIGNS[part["word"]], values=values)
    return Requirement(key=part["key"], operator=Operator.EXISTS)
