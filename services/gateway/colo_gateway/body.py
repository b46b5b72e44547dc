"""Reads request bodies: JSON or YAML of a bounded size and depth, as plain values. A key that is written twice is refused."""

from typing import Any, Final

import msgspec
from aiohttp import web

from colo_common.model.invalid import InvalidInput
from colo_common.model.plain_yaml import check_json_keys, read_yaml

__all__ = ["BODY_BYTES_MAX", "TooLarge", "plain_mapping", "read_mapping"]

BODY_BYTES_MAX: Final = 1 << 20
_YAML_SAYS_SO: Final = (
    "YAML needs `Content-Type: application/yaml` (curl: -H and, as -d drops line ends, --data-binary @FILE)"
)


class TooLarge(Exception):
    """The body is larger than BODY_BYTES_MAX."""


async def read_mapping(request: web.Request) -> dict[str, Any]:
    """Read the body as a mapping. Raises TooLarge above BODY_BYTES_MAX, InvalidInput when it is no JSON or YAML mapping."""
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
    """Decode JSON or YAML bytes into a mapping. Raises InvalidInput when they are not a mapping in that format."""
    if is_yaml:
        value = read_yaml(data)
    else:
        try:
            value = msgspec.json.decode(data)
            check_json_keys(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            rule = f"must be JSON: {' '.join(str(error).split())}; {_YAML_SAYS_SO}"
            raise InvalidInput("body", rule, data[:40]) from error
    if not isinstance(value, dict):
        raise InvalidInput("body", "must be a mapping of the job's fields", value)
    return value
