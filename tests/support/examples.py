"""One full value of any message type, made from its annotations: every field is set, always to the same thing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct
from msgspec import inspect as static_filters

__all__ = ["example_of"]


def example_of(kind: type[Struct]) -> Any:
    """A value of the type in which no field has its default: numbers count up, names are legal node names."""
    return msgspec.convert(_value(static_filters.type_info(kind), "", itertools.count(1)), kind, strict=False)


def _value(shape: static_filters.Type, name: str, numbers: Iterator[int]) -> Any:
    match shape:
        case static_filters.StructType(fields=fields):
            return {field.encode_name: _value(field.type, field.encode_name, numbers) for field in fields}
        case static_filters.BoolType():
            return True
        case static_filters.IntType():
            return next(numbers)
        case static_filters.FloatType():
            return next(numbers) + 0.5
        case static_filters.StrType():
            return f"{name.replace('_', '-') or 'text'}-{next(numbers)}"
        case static_filters.LiteralType(values=values):
            return values[-1]
        case static_filters.EnumType(cls=cls):
            return list(cls)[-1].value
        case static_filters.VarTupleType(item_type=item) | static_filters.ListType(item_type=item):
            return [_value(item, name, numbers)]
        case static_filters.TupleType(item_types=items):
            return [_value(item, name, numbers) for item in items]
        case static_filters.DictType(key_type=key, value_type=value):
            return {_value(key, "key", numbers): _value(value, "value", numbers)}
        case static_filters.UnionType(types=types):
            return _value(next(each for each in types if not isinstance(each, static_filters.NoneType)), name, numbers)
    raise TypeError(f"{name}: no example for {shape!r}")
