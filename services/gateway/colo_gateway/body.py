"""Request bodies: JSON or YAML of a bounded size and depth, read as plain values."""

from typing import Any, Final

import msgspec
import yaml
from aiohttp import web

from colo_common.model.invalid import InvalidInput

__all__ = ["BODY_BYTES_MAX", "TooLarge", "plain_mapping", "read_mapping"]

BODY_BYTES_MAX: Final = 1 << 20
_YAML_DEPTH_MAX: Final = 32
_YAML_VALUES_MAX: Final = 100_000
_YAML: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TooLarge(Exception):
    """The body is larger than BODY_BYTES_MAX."""


async def read_mapping(request: web.Request) -> dict[str, Any]:
    """The body as a mapping. Raises InvalidInput when it is neither JSON nor YAML or not a mapping, TooLarge when too large."""
    if (request.content_length or 0) > BODY_BYTES_MAX:
        raise TooLarge
    try:
        data = await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise TooLarge from error
    if len(data) > BODY_BYTES_MAX:
        raise TooLarge
    return plain_mapping(data, is_yaml="yaml" in request.content_type)


def plain_mapping(data: bytes, *, is_yaml: bool) -> dict[str, Any]:
    """The mapping that the bytes write down. Raises InvalidInput for everything else."""
    form = "YAML" if is_yaml else "JSON"
    try:
        if is_yaml:
            _check_yaml(data)
        value = (msgspec.yaml.decode if is_yaml else msgspec.json.decode)(data)
    except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput("body", f"must be {form}: {' '.join(str(error).split())}", data[:40]) from error
    if not isinstance(value, dict):
        raise InvalidInput("body", "must be a mapping of the job's fields", value)
    return value


def _check_yaml(data: bytes) -> None:
    """Refuse what could cost more than it is long: the YAML library composes nested values on the C stack, which ends the
    process when it is full, and an alias can repeat a value without limit.
    """
    depth = 0
    for count, event in enumerate(yaml.parse(data, Loader=_YAML)):
        if isinstance(event, yaml.AliasEvent):
            raise InvalidInput("body", "must not use YAML aliases", f"*{event.anchor}")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _YAML_DEPTH_MAX:
            raise InvalidInput("body", f"must not be nested deeper than {_YAML_DEPTH_MAX} levels", data[:40])
        if count > _YAML_VALUES_MAX:
            raise InvalidInput("body", f"must have at most {_YAML_VALUES_MAX} values", len(data))
