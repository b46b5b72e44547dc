"""Requirements on a node's labels beside equality, with the operators of Kubernetes node affinity.

node_selector:
  - {key: disk, operator: In, values: [ssd, nvme]}
  - {key: spot, operator: DoesNotExist}
  - {key: cores, operator: Gt, values: [16]}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_common.model.plain_values import mapping_of, text_of

__all__ = [
    "Operator",
    "Requirement",
    "Selector",
    "check_requirements",
    "meets",
    "number_of",
    "requirements_of",
    "selects",
]

_REQUIREMENTS_MOST: Final = 64
_DEMANDS_MOST: Final = 100
_VALUES_MOST: Final = 100
_TEXT_MOST: Final = 253
_DIGITS_MOST: Final = 18
_KEYS: Final = ("key", "operator", "values")


class Operator(StrEnum):
    """How a label is compared. NotIn and DoesNotExist hold for a node without the label; Gt and Lt do not."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


class Requirement(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One requirement on one label."""

    key: str
    operator: Operator = Operator.IN
    values: tuple[str, ...] = ()

    def validate(self, field: str) -> None:
        """Raise InvalidInput unless the operator can take the given values."""
        if not 1 <= len(self.key) <= _TEXT_MOST:
            raise InvalidInput(f"{field}.key", f"must be 1 to {_TEXT_MOST} characters", self.key[:80])
        if len(self.values) > _VALUES_MOST:
            raise InvalidInput(f"{field}.values", f"must be at most {_VALUES_MOST}", len(self.values))
        for value in self.values:
            if len(value) > _TEXT_MOST:
                raise InvalidInput(f"{field}.values", f"must be at most {_TEXT_MOST} characters each", value[:80])
        match self.operator:
            case Operator.IN | Operator.NOT_IN:
                if not self.values:
                    raise InvalidInput(f"{field}.values", f"{self.operator} needs at least one", list(self.values))
            case Operator.EXISTS | Operator.DOES_NOT_EXIST:
                if self.values:
                    raise InvalidInput(f"{field}.values", f"{self.operator} takes none", list(self.values))
            case Operator.GT | Operator.LT:
                if len(self.values) != 1 or number_of(self.values[0]) is None:
                    raise InvalidInput(f"{field}.values", f"{self.operator} takes one whole number", list(self.values))


def number_of(text: str) -> int | None:
    """A whole number in at most 18 decimal digits with an optional minus sign, None for any other text."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MOST else None


def meets(requirement: Requirement, value: str | None) -> bool:
    """Whether a label's value meets a requirement; None is a node without the label."""
    match requirement.operator:
        case Operator.IN:
            return value is not None and value in requirement.values
        case Operator.NOT_IN:
            return value is None or value not in requirement.values
        case Operator.EXISTS:
            return value is not None
        case Operator.DOES_NOT_EXIST:
            return value is None
        case Operator.GT | Operator.LT:
            number = None if value is None else number_of(value)
            bound = number_of(requirement.values[0]) if requirement.values else None
            if number is None or bound is None:
                return False
            return number > bound if requirement.operator is Operator.GT else number < bound


class Selector(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it must hold: every label equal, every requirement met. An empty selector selects every node."""

    labels: Mapping[str, str] = {}
    requirements: tuple[Requirement, ...] = ()

    def validate(self, field: str = "selector") -> None:
        """Raise InvalidInput for the first requirement that makes no sense."""
        if len(self.requirements) + len(self.labels) > _DEMANDS_MOST:
            raise InvalidInput(field, f"must be at most {_DEMANDS_MOST} demands", len(self.requirements))
        for number, requirement in enumerate(self.requirements):
            requirement.validate(f"{field}.requirements[{number}]")

    @property
    def demands(self) -> tuple[Requirement, ...]:
        """Labels and requirements alike, labels first in order of key."""
        equal = (Requirement(key=k, operator=Operator.IN, values=(v,)) for k, v in sorted(self.labels.items()))
        return (*equal, *self.requirements)

    def text(self) -> str:
        """For people: "pool In edge and zone Exists"."""
        return " and ".join(
            f"{each.key} {each.operator.value} {','.join(each.values)}".strip() for each in self.demands
        )


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels is selected."""
    return all(meets(requirement, labels.get(requirement.key)) for requirement in selector.demands)


def check_requirements(requirements: tuple[Requirement, ...], field: str) -> None:
    """Raise InvalidInput for too many requirements, and for the first one that breaks a rule."""
    if len(requirements) > _REQUIREMENTS_MOST:
        raise InvalidInput(field, f"must be at most {_REQUIREMENTS_MOST}", len(requirements))
    for number, requirement in enumerate(requirements):
        requirement.validate(f"{field}[{number}]")


def requirements_of(value: object, field: str) -> tuple[Requirement, ...]:
    """Read a list of requirements from a file; () for None. All of them must hold. Raises InvalidInput with path and rule."""
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise InvalidInput(field, "must be a list of {key, operator, values}", value)
    if len(value) > _REQUIREMENTS_MOST:
        raise InvalidInput(field, f"must be at most {_REQUIREMENTS_MOST}", len(value))
    return tuple(_requirement(each, f"{field}[{number}]") for number, each in enumerate(value))


def _requirement(value: object, field: str) -> Requirement:
    given = mapping_of(value, field, _KEYS)
    if "key" not in given:
        raise InvalidInput(f"{field}.key", "is missing", None)
    operator = given.get("operator")
    if operator not in list(Operator):
        raise InvalidInput(f"{field}.operator", f"must be one of {' '.join(Operator)}", operator)
    values = given.get("values", ())
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
        raise InvalidInput(f"{field}.values", "must be a list", values)
    if len(values) > _VALUES_MOST:
        raise InvalidInput(f"{field}.values", f"must be at most {_VALUES_MOST}", len(values))
    found = Requirement(
        key=text_of(given["key"], f"{field}.key"),
        operator=Operator(operator),
        values=tuple(text_of(each, f"{field}.values[{number}]") for number, each in enumerate(values)),
    )
    found.validate(field)
    return found
