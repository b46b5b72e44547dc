"""HTTP responses: a reply as JSON, a refusal as a Problem; and the reading of query parameters."""

from collections.abc import Mapping
from typing import Final

import msgspec
from aiohttp import web
from msgspec import Struct

from colo_common.events import requests as rq
from colo_common.model.invalid import InvalidInput
from colo_gateway.replies import Problem

__all__ = ["answer_of", "integer_of", "invalid_of", "json_of", "names_of", "problem_of"]

# What is not done now may be done a moment later: nothing was lost, and the services recover by themselves.
_AGAIN: Final = (429, 503)
_RETRY_AFTER_S: Final = "2"


def integer_of(query: Mapping[str, str], name: str, default: int, lowest: int, highest: int) -> int:
    """The query parameter as a number, `default` when absent. Raises InvalidInput unless it is from `lowest` to `highest`."""
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and lowest <= int(text) <= highest):
        raise InvalidInput(name, f"must be a whole number from {lowest} to {highest}", text)
    return int(text)


def names_of(query: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The comma-separated names of the query parameter; () when absent."""
    return tuple(each for part in query.get(name, "").split(",") if (each := part.strip()))


def json_of(body: Struct, status: int = 200) -> web.Response:
    """A response with the body as JSON."""
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def answer_of(answer: Struct) -> web.Response:
    """The response for a service's answer: its reply as JSON, or its Refusal as a Problem with the same code."""
    if isinstance(answer, rq.Refusal):
        return problem_of(answer.code, answer.field, answer.rule, answer.got)
    return json_of(answer)


def invalid_of(error: InvalidInput) -> web.Response:
    """A Problem with status 400 and the field and rule of the error."""
    return problem_of(400, error.field, error.rule, error.value)


def problem_of(status: int, field: str, rule: str, got: str = "") -> web.Response:
    """A response with a Problem: `field` broke `rule` with the value `got`. With 429 and 503 it says when to try again."""
    response = json_of(Problem(status=status, field=field, rule=rule, got=got), status)
    if status in _AGAIN:
        response.headers["Retry-After"] = _RETRY_AFTER_S
    return response
