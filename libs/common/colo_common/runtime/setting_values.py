"""What text, or a value of a file, becomes for a setting of a type, and in a user's words what is wrong with it."""

import json
import re
import types
import typing
from collections.abc import Sequence
from typing import Any, Final, Literal, Union

import msgspec
from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_common.model.nearest import nearest

__all__ = ["struct_of", "value_of", "value_of_text"]

_ERROR: Final = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_STEP: Final = re.compile(r"\[([0-9]+)\]|\.([A-Za-z0-9_]+)", re.ASCII)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_EXPECTED: Final = re.compile(r"Expected `([a-z]+)`, got `.*`")
_MUST_BE: Final = {
    "array": "a list",
    "object": "members and values",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
}
"""What msgspec calls a type, and what a person does."""


def value_of_text(text: str, kind: Any, where: str) -> Any:
    """The value that the text of a flag or of the environment means. Raises InvalidInput, about the field `where`.

    A list of words is `a,b`, a map `k=v,k=v`; a list or a map of structs is JSON, as it would be in a file.
    """
    origin = typing.get_origin(kind)
    value: Any = text
    if _structs_in(kind) and text.strip():
        return value_of(_parsed(text, kind, where), kind, where, strict=True)
    if origin is tuple:
        value = [part.strip() for part in text.split(",") if part.strip()]
    elif origin is dict:
        value = dict(part.strip().partition("=")[::2] for part in text.split(",") if part.strip())
    elif kind is bool:
        value = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(text.lower(), text.lower())
    elif _is_optional(kind) and text.lower() in ("", "none"):
        value = None
    return value_of(value, kind, where, strict=False)


def value_of(value: Any, kind: Any, where: str, *, strict: bool) -> Any:
    """The value as the setting's type. Raises InvalidInput: about `where`, or about the member of a struct there."""
    try:
        return msgspec.convert(_as_word(value, kind), kind, strict=strict)
    except msgspec.ValidationError as error:
        if _structs_in(kind):
            raise _member_error(str(error), value, kind, where) from None
        raise InvalidInput(where, _rule_of(kind) or str(error), value) from None


def struct_of(kind: Any) -> type[Struct] | None:
    """The type, where it is one of a struct."""
    return kind if isinstance(kind, type) and issubclass(kind, Struct) else None


def _structs_in(kind: Any) -> list[type[Struct]]:
    """The structs that a list, a map or a union is of."""
    return [found for inner in typing.get_args(kind) if (found := struct_of(inner)) is not None]


def _parsed(text: str, kind: Any, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where_in = f"; at character {error.pos + 1}: {error.msg[:1].lower()}{error.msg[1:]}"
    except (ValueError, RecursionError):
        where_in = ""
    name = _structs_in(kind)[0].__struct_fields__[0]
    shape = f'[{{"{name}": ...}}]' if typing.get_origin(kind) is tuple else f'{{"...": {{"{name}": ...}}}}'
    raise InvalidInput(where, f"must be JSON such as {shape}{where_in}", text)


def _member_error(sentence: str, value: Any, kind: Any, where: str) -> InvalidInput:
    """What is wrong with which member: "process_unmanaged[0].weight_least: must be a whole number"."""
    match = _ERROR.fullmatch(sentence)
    what, path = (sentence, "") if match is None else (match["what"], match["path"] or "")
    if _STEP.sub("", path):
        return InvalidInput(f"{where}{path}", what, value)
    steps = [int(number) if number else name for number, name in _STEP.findall(path)]
    for step in steps:
        value = value[step]
    if (unknown := _UNKNOWN.fullmatch(what)) is not None:
        name = unknown[1]
        near = nearest(name, _members_at(kind, steps))
        rule = f"there is no such member{f'; did you mean {near}?' if near else ''}"
        return InvalidInput(f"{where}{path}.{name}", rule, value.get(name))
    if (missing := _MISSING.fullmatch(what)) is not None:
        return InvalidInput(f"{where}{path}.{missing[1]}", "must be given", value)
    expected = _EXPECTED.fullmatch(what)
    words = _MUST_BE.get(expected[1], "") if expected is not None else ""
    return InvalidInput(f"{where}{path}", f"must be {words}" if words else what, value)


def _members_at(kind: Any, steps: Sequence[int | str]) -> tuple[str, ...]:
    """The names of the members of the struct that is reached by these steps."""
    for step in steps:
        found = struct_of(kind)
        if found is None:
            kind = next(iter(_structs_in(kind)), None)
        else:
            kind = next((each.type for each in msgspec.structs.fields(found) if each.encode_name == step), None)
    found = struct_of(kind)
    return () if found is None else found.__struct_encode_fields__


def _rule_of(kind: Any) -> str:
    """What a value of a kind with few values must be; "" of any other kind."""
    values = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
    return f"must be one of {', '.join(str(value) for value in values)}" if values else ""


def _as_word(value: Any, kind: Any) -> Any:
    """The value; the word that was meant where YAML took `off`, `no`, `on` or `yes` for a truth and the setting is one of words."""
    truth = {"true": True, "false": False}.get(value) if isinstance(value, str) else value
    if typing.get_origin(kind) is not Literal or not isinstance(truth, bool):
        return value
    return next((word for word in (("on", "yes") if truth else ("off", "no")) if word in typing.get_args(kind)), value)


def _is_optional(kind: Any) -> bool:
    return typing.get_origin(kind) in (Union, types.UnionType) and type(None) in typing.get_args(kind)
