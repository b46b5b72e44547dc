"""The public keys of an identity provider: fetched, kept, and asked for again when a token names one that is not known.

However many tokens name keys that nobody has, and however slow the provider is, it is asked once in ten seconds, one question at a
time; a token whose key is known waits for no answer.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import aiohttp
import structlog

__all__ = ["IssuerKeys", "KeysUnavailable", "fetch_over_https"]

_FRESH_S: Final = 600.0
_KEPT_S: Final = 3600.0
_ASK_AGAIN_S: Final = 10.0
_FETCH_S: Final = 5.0
_BYTES_MOST: Final = 1_000_000


class KeysUnavailable(Exception):
    """The provider does not say its keys now, and none that were heard lately will do."""


class IssuerKeys:
    """Keys by their names, from a `fetch` that raises OSError, TimeoutError or ValueError when there is no answer, or no good one.

    Keys are asked for again after ten minutes, and while the provider does not answer the last ones hold for an hour. `now_s` is a
    clock that only goes forward.
    """

    def __init__(self, fetch: Callable[[], Awaitable[Mapping[str, Any]]], now_s: Callable[[], float]) -> None:
        self._fetch = fetch
        self._now_s = now_s
        self._log = structlog.get_logger(source="issuer-keys")
        self._keys: Mapping[str, Any] = {}
        self._fetched_s = -math.inf
        self._asked_s = -math.inf
        self._is_answered = False
        self._asking: asyncio.Task[None] | None = None

    async def key(self, name: str) -> Any:
        """The key of that name. Raises KeyError when the provider has none, and KeysUnavailable when it is not known whether."""
        now_s = self._now_s()
        is_known = name in self._keys and now_s < self._fetched_s + _KEPT_S
        if not is_known or now_s >= self._fetched_s + _FRESH_S:
            self._ask(now_s)
        if is_known:
            return self._keys[name]
        if self._asking is not None:
            # A client that goes away takes the question from nobody.
            await asyncio.shield(self._asking)
        is_old = self._now_s() >= self._fetched_s + _KEPT_S
        if is_old or (name not in self._keys and not self._is_answered):
            raise KeysUnavailable
        return self._keys[name]

    def _ask(self, now_s: float) -> None:
        """Begin to ask, unless somebody does or did a moment ago."""
        if self._asking is None and now_s >= self._asked_s + _ASK_AGAIN_S:
            self._asking = asyncio.create_task(self._hear())

    async def _hear(self) -> None:
        try:
            self._keys = await self._fetch()
            self._fetched_s = self._now_s()
            self._is_answered = True
            self._log.info("issuer-keys-read", keys=len(self._keys))
        except (OSError, TimeoutError, ValueError) as error:
            self._is_answered = False
            self._log.warning("issuer-keys-unavailable", error=str(error) or type(error).__name__)
        finally:
            self._asked_s = self._now_s()
            self._asking = None


async def fetch_over_https(address: str) -> bytes:
    """What the address answers, without following it elsewhere. Raises OSError, TimeoutError or ValueError."""
    limit = aiohttp.ClientTimeout(total=_FETCH_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit, trust_env=True) as http,
            http.get(address, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise ValueError(f"it answers {answer.status}")
            text = await answer.content.read(_BYTES_MOST + 1)
            while len(text) <= _BYTES_MOST and (more := await answer.content.read(_BYTES_MOST)):
                text += more
    except aiohttp.ClientError as error:
        raise OSError(str(error)) from error
    if len(text) > _BYTES_MOST:
        raise ValueError(f"it answers more than {_BYTES_MOST} bytes")
    return text
