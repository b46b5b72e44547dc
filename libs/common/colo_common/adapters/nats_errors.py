"""Translates errors of the NATS library into errors of the ports: what is only for now, what is refused, what is poison.

The server's numbers of JetStream errors are those of its `server/errors.json`.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import nats.errors
import nats.js.errors

from colo_common.ports import PoisonMessage, PortError, Refused, Unavailable

__all__ = ["NATS_ERRORS", "NoStream", "keeps_cancellation", "port_error", "to_its_end"]

# Errors that the library's calls raise for a server or network failure.
NATS_ERRORS: Final = (nats.errors.Error, OSError, TimeoutError)

_JETSTREAM_ABSENT: Final = (10039, 10076)
_WITHOUT_JETSTREAM: Final = (
    "the NATS server runs without JetStream: its disk was full, make room and start it again; or it was started without -js"
    " and without a jetstream section"
)
# A server whose disk is full answers no publish, and one that was started on such a disk answers with a number.
_STORES_NOT: Final = "its disk may be full, or may have been since its start"
_NO_ROOM: Final = (10023, 10047)
# Limits that lift by themselves or by an operator, whatever their HTTP-like code: resources of the account (10002), insufficient
# resources (10023), memory (10028), storage (10047).
_LIMITS: Final = (10002, 10023, 10028, 10047)
# The message is larger than its stream takes (10054), or its headers are (10097).
_POISON: Final = (10054, 10097)
_POISON_ERRORS: Final = (nats.errors.BadHeaderError, nats.errors.BadSubjectError, nats.errors.MaxPayloadError)

_HOPELESS: Final = (
    nats.errors.AuthorizationError,
    nats.errors.InvalidUserCredentialsError,
    nats.errors.SecureConnRequiredError,
    nats.errors.SecureConnWantedError,
)


class NoStream(Refused):
    """No stream stores the subject at present."""


def port_error(error: BaseException, doing: str, *, stores: bool = False) -> PortError:
    """The one place that tells "never" (PoisonMessage) and "not as it is configured" (Refused) from "not now" (Unavailable).

    The sentence begins with `doing`, the attempted call. `stores`: a stream had to store something for the answer.
    """
    if isinstance(error, nats.js.errors.ServiceUnavailableError) and not error.description:
        # Nobody listens on the subjects of the JetStream API.
        return Refused(f"{doing}: {_WITHOUT_JETSTREAM}")
    if isinstance(error, nats.js.errors.APIError):
        return _api_error(error, doing)
    if isinstance(error, nats.js.errors.NoStreamResponseError):
        return NoStream(f"{doing}: no stream keeps this subject")
    if isinstance(error, nats.errors.NoRespondersError):
        return Unavailable(f"{doing}: nobody answers")
    if isinstance(error, TimeoutError):
        return Unavailable(f"{doing}: no answer in time{f' ({_STORES_NOT})' if stores else ''}")
    sentence = f"{doing}: {str(error).removeprefix('nats: ') or type(error).__name__}"
    if isinstance(error, _POISON_ERRORS):
        return PoisonMessage(sentence)
    return Refused(sentence) if isinstance(error, _HOPELESS) else Unavailable(sentence)


@contextmanager
def keeps_cancellation() -> Iterator[None]:
    """Raise CancelledError at the end of the block when the task was cancelled in it and the library swallowed that.

    Python 3.11's wait_for, which the library uses, loses a cancellation that arrives together with the answer.
    """
    task = asyncio.current_task()
    cancelled_before = task.cancelling() if task else 0
    try:
        yield
    finally:
        if task and task.cancelling() > cancelled_before:
            raise asyncio.CancelledError


_T = TypeVar("_T")
#: Calls that run on although nobody waits for them any more; a task without a reference may vanish.
_running_on: set[asyncio.Task[Any]] = set()


async def to_its_end(call: Coroutine[Any, Any, _T]) -> _T:
    """The result of a call of the library that runs to its end, even when the task that waits for it is cancelled.

    The library's reader ends when an answer to a flush arrives that nobody waits for any more, and the connection is deaf from then
    on. So a call that flushes is never cancelled.
    """
    task = asyncio.get_running_loop().create_task(call)
    _running_on.add(task)
    task.add_done_callback(_ended)
    return await asyncio.shield(task)


def _ended(task: asyncio.Task[Any]) -> None:
    _running_on.discard(task)
    if not task.cancelled():
        # Taken, so that asyncio does not complain of an error that nobody looked at.
        task.exception()


def _api_error(error: nats.js.errors.APIError, doing: str) -> PortError:
    """The port error of a JetStream API error: `code` is HTTP-like, `err_code` the server's own number."""
    code, number = error.code or 500, error.err_code or 0
    if number in _JETSTREAM_ABSENT:
        return Refused(f"{doing}: {_WITHOUT_JETSTREAM}")
    sentence = f"{doing}: {error.description or ''} ({number or code})"
    if number in _POISON:
        return PoisonMessage(sentence)
    if number in _NO_ROOM:
        sentence += f": {_STORES_NOT}"
    return Unavailable(sentence) if code >= 500 or number in _LIMITS else Refused(sentence)
