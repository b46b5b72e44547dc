"""One full value of any message type, made from its annotations: every field is set, always to the same thing."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct
from msgspec import inspect as shapes

__all__ = ["example_of"]


def example_of(kind: type[Struct]) -> Any:
    """A value of the type in which no field has its default: numbers count up, names are legal node names."""
    return msgspec.convert(_value(shapes.type_info(kind), "", itertools.count(1)), kind, strict=False)


def _value(shape: shapes.Type, name: str, numbers: Iterator[int]) -> Any:
    match shape:
        case shapes.StructType(fields=fields):
            return {field.encode_name: _value(field.type, field.encode_name, numbers) for field in fields}
        case shapes.Metadata(type=inner, extra_json_schema=extra):
            given = (extra or {}).get("examples")
            return given[0] if given else _value(inner, name, numbers)
        case shapes.BoolType():
            return True
        case shapes.IntType():
            return next(numbers)
        case shapes.FloatType():
            return next(numbers) + 0.5
        case shapes.StrType():
            return f"{name.replace('_', '-') or 'text'}-{next(numbers)}"
        case shapes.BytesType():
            return base64.b64encode(f"{name}-{next(numbers)}".encode()).decode()
        case shapes.LiteralType(values=values):
            return values[-1]
        case shapes.EnumType(cls=cls):
            return list(cls)[-1].value
        case shapes.VarTupleType(item_type=item) | shapes.ListType(item_type=item):
            return [_value(item, name, numbers)]
        case shapes.TupleType(item_types=items):
            return [_value(item, name, numbers) for item in items]
        case shapes.DictType(key_type=key, value_type=value):
            return {_value(key, "key", numbers): _value(value, "value", numbers)}
        case shapes.UnionType(types=types):
            return _value(next(each for each in types if not isinstance(each, shapes.NoneType)), name, numbers)
    raise TypeError(f"{name}: no example for {shape!r}")
