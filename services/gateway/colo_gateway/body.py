"""Request bodies: JSON or YAML of a bounded size, read as plain values."""

from typing import Any

import msgspec
from aiohttp import web

from colo_common.model.invalid import InvalidInput

__all__ = ["BODY_BYTES_MAX", "TooLarge", "read_mapping"]

BODY_BYTES_MAX = 1 << 20


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
    decode = msgspec.yaml.decode if "yaml" in request.content_type else msgspec.json.decode
    try:
        value = decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        form = "YAML" if "yaml" in request.content_type else "JSON"
        raise InvalidInput("body", f"must be {form}: {error}", data[:40]) from error
    if not isinstance(value, dict):
        raise InvalidInput("body", "must be a mapping of the job's fields", value)
    return value
