"""Request bodies: JSON or YAML of a bounded size and depth, read as plain values; no key is written twice."""

from typing import Any, Final

import msgspec
from aiohttp import web

from colo_common.model.invalid import InvalidInput
from colo_common.model.plain_yaml import check_json_keys, read_yaml

__all__ = ["BODY_BYTES_MAX", "TooLarge", "plain_mapping", "read_mapping"]

BODY_BYTES_MAX: Final = 1 << 20


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
    if is_yaml:
        value = read_yaml(data)
    else:
        try:
            value = msgspec.json.decode(data)
            check_json_keys(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput("body", f"must be JSON: {' '.join(str(error).split())}", data[:40]) from error
    if not isinstance(value, dict):
        raise InvalidInput("body", "must be a mapping of the job's fields", value)
    return value
