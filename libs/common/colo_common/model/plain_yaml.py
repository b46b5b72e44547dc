"""Reads YAML or JSON into plain values. Refuses text that is nested too deep, repeats values by aliases, or has a key twice."""

import json
from collections.abc import Hashable
from typing import Any, Final

import yaml

from colo_common.model.invalid import InvalidInput

__all__ = ["check_json_keys", "read_documents", "read_yaml"]

_DEPTH_MAX: Final = 32
_VALUES_MAX: Final = 100_000
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_LOADER):  # type: ignore[misc]
    """Refuses a mapping with the same key twice: the library would drop the first value silently."""


def _mapping(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.constructor.ConstructorError(None, None, "keys must be text", key_node.start_mark)
        _refuse_twice(key, found)
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def read_yaml(text: str | bytes, field: str = "body", *, may_repeat: bool = False) -> Any:
    """The plain value of a YAML or JSON text. `may_repeat` allows aliases.

    Raises InvalidInput with a rule of one line; its field is the key that is written twice, else `field`.
    """
    try:
        _check(text, field, may_repeat=may_repeat)
        return yaml.load(text, Loader=_Loader)
    except InvalidInput:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _no_yaml(text, field, error) from error


def read_documents(text: str | bytes, field: str = "body") -> list[Any]:
    """The plain values of the documents in a YAML or JSON text, aliases allowed; empty documents are left out.

    Raises InvalidInput as `read_yaml` does.
    """
    try:
        _check(text, field, may_repeat=True)
        return [value for value in yaml.load_all(text, Loader=_Loader) if value is not None]
    except InvalidInput:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _no_yaml(text, field, error) from error


def _no_yaml(text: str | bytes, field: str, error: Exception) -> InvalidInput:
    if "maximum nesting depth" in str(error):
        # Since 0.2.6 libyaml refuses it itself while it reads ahead, before it has said where the thirty-third level begins.
        return _too_deep(text, field)
    return InvalidInput(field, f"must be YAML: {' '.join(str(error).split())}", text[:40])


def _too_deep(text: str | bytes, field: str) -> InvalidInput:
    return InvalidInput(field, f"must not be nested deeper than {_DEPTH_MAX} levels", text[:40])


def check_json_keys(text: bytes) -> None:
    """Raise InvalidInput when a mapping in the text has a key twice. The text must be valid JSON."""
    json.loads(text, object_pairs_hook=_pairs)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        _refuse_twice(key, found)
        found[key] = value
    return found


def _refuse_twice(key: Hashable, found: dict[Any, Any]) -> None:
    if key in found:
        raise InvalidInput(str(key)[:63], "is written twice in one mapping", str(key)[:63])


def _check(text: str | bytes, field: str, *, may_repeat: bool) -> None:
    """Raise InvalidInput for text whose cost is not bounded by its length: the YAML library composes nested values on the C stack,
    and the process ends when that is full; an alias can repeat a value without limit.
    """
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        if isinstance(event, yaml.AliasEvent) and not may_repeat:
            raise InvalidInput(field, "must not use YAML aliases", f"*{event.anchor}")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEPTH_MAX:
            raise _too_deep(text, field)
        if count > _VALUES_MAX:
            raise InvalidInput(field, f"must have at most {_VALUES_MAX} values", len(text))
